"""What the site's builder calls: generated parts take the places that pages keep for them.

A line ``<!-- generated: PART -->`` of a page stands for a part. Pages of the reference hold their part, up to
a line ``<!-- end of PART -->``, so that it can be read in a checkout; ``make reference`` writes it anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from generate import (
    cli,
    configuration,
    errors,
    feed_map,
    gallery,
    http,
    licences,
    logs,
    metrics,
    papers,
    policies,
)

PLACE = re.compile(r"^<!-- generated: ([\w-]+) -->$(?:\n.*?^<!-- end of \1 -->$)?", re.MULTILINE | re.DOTALL)
HELD = ("cli", "configuration", "errors", "feed-map", "http", "logs", "metrics")
"""Parts that pages of the reference hold; licences depend on what is installed."""
NOT_YET = "*Generated from the code: `make docs` writes what is missing here into `site/`.*\n\n"
"""What stands before the first place, for those who read the source."""
PARTS: dict[str, Callable[[], str]] = {
    "cli": cli.part,
    "configuration": configuration.part,
    "errors": errors.part,
    "feed-map": feed_map.part,
    "gallery": gallery.part,
    "http": http.part,
    "licences": licences.part,
    "logs": logs.part,
    "metrics": metrics.part,
    **{f"papers-{paper}": partial(papers.part, paper) for paper in papers.PAPERS},
    **{f"policies-{group}": partial(policies.part, group) for group in policies.GROUPS},
    "policies-measured": policies.settings,
    "environments": policies.worlds,
}


def expanded(text: str) -> str:
    """Return a page with its generated parts."""
    text = text.replace(NOT_YET, "")
    return PLACE.sub(lambda match: PARTS[match.group(1)](), text)


def filled(text: str) -> str:
    """Return a page of the reference with its present part, between the lines that begin and end it."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in HELD:
            return match.group(0)
        return f"<!-- generated: {name} -->\n\n{PARTS[name]().strip()}\n\n<!-- end of {name} -->"

    is_held = any(name in HELD for name in PLACE.findall(text))
    return PLACE.sub(fill, text.replace(NOT_YET, "") if is_held else text)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the generated parts in their places."""
    return expanded(markdown)


def on_files(files: Any, config: Any) -> Any:
    """Add the OpenAPI document, for tools."""
    from mkdocs.structure.files import File

    from tacit.service.app.routes import document

    content = json.dumps(document(), indent=1)
    files.append(File.generated(config, "reference/openapi.json", content=content))
    return files


if __name__ == "__main__":
    for page in Path(__file__).parents[1].glob("reference/*.md"):
        page.write_text(filled(page.read_text("utf-8")), encoding="utf-8")
