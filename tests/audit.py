"""Ask for known vulnerabilities of the exact versions that the tests passed with.

Fails if there is one, and says so if it cannot be known: no answer is no reason to stop work.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
SECONDS = 120


def main() -> int:
    """Print what was found; return the exit code."""
    dependencies = asked()
    audited = [each for each in dependencies if "skip_reason" not in each]
    wrong = [each for each in audited if each["vulns"]]
    for each in wrong:
        for found in each["vulns"]:
            mended = ", ".join(found["fix_versions"]) or "no version yet"
            print(f"{each['name']} {each['version']}: {found['id']}, mended in {mended}")
    if not audited:
        print("dependencies were NOT audited: the advisory service cannot be reached from here")
    elif len(audited) < len(dependencies):
        unknown = [each["name"] for each in dependencies if "skip_reason" in each]
        print(f"of {len(dependencies)} dependencies, NOT audited: {', '.join(unknown)}")
    return 1 if wrong else 0


def asked() -> list[dict]:
    """Return what pip-audit says of each dependency; nothing if it cannot ask."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(CONSTRAINTS)]
    command += ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        return json.loads(result.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return []


if __name__ == "__main__":
    raise SystemExit(main())
