"""Write the hashes of what the image and what all extras install, from what pip-compile found.

PYTHONPATH=docs python tools/lock.py COMPILED   writes deploy/requirements.txt and -all.txt: `make lock`
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from generate import licences

ROOT = Path(__file__).resolve().parents[1]
IMAGE = {"service", "postgres"}
"""The extras that deploy/Containerfile installs."""
ENTRY = re.compile(r"^([\w.-]+)==[^\n]*\\\n(?:    --hash=[^\n]*\n)+", re.MULTILINE)
HEAD = """# What {what} installs, with the hashes of its files: pip install --require-hashes -r {name}
# The versions are those of constraints.txt. Made by: make lock
"""


def main() -> None:
    """Write both files."""
    compiled = Path(sys.argv[1]).read_text().rstrip("\n") + "\n"
    entries = {licences.canonical(found[1]): found[0] for found in ENTRY.finditer(compiled)}
    image = licences.needed(IMAGE)
    for name, what, wanted in (
        ("deploy/requirements.txt", "the image", [each for each in entries if each in image]),
        ("deploy/requirements-all.txt", "tacit with all extras", list(entries)),
    ):
        text = "".join(entries[each] for each in wanted)
        (ROOT / name).write_text(HEAD.format(what=what, name=name) + text)


if __name__ == "__main__":
    main()
