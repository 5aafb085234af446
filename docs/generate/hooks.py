"""What the site's builder calls: generated parts take the places that pages keep for them.

A line ``<!-- generated: PART -->`` of a page stands for a part.
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

PLACE = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
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
