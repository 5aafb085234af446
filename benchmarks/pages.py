"""Run what the pages for those who come from elsewhere show of the other package, with that package."""

from __future__ import annotations

import re

from venvs import HERE, install, output

PAGES = HERE.parent / "docs" / "elsewhere"
PACKAGES = {"mabwiser": "mabwiser", "river": "river", "vowpal-wabbit": "vowpalwabbit"}


def theirs(page: str, package: str) -> str:
    """Return the code of a page that imports a package."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return "".join(code for code in blocks if re.search(rf"^(from|import) {package}\b", code, re.MULTILINE))


if __name__ == "__main__":
    for page, package in PACKAGES.items():
        code = theirs(page, package)
        assert code, f"{page}: nothing is shown of {package}"
        print(f"{page}: {output([str(install(package)), '-c', code]).strip() or 'runs, and prints nothing'}")
