"""The tables of items known by numbers, from `items.json`: what `page.py` puts into the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ITEMS = HERE / "items.json"
STREAMS = {
    "clusters, rank 50": "clusters in 50 directions",
    "paragraphs of a manual": "real: paragraphs of a manual by 64 numbers (TF-IDF, SVD); readers like topics",
    "user by item": "users of 32 numbers who like kinds of items",
    "isotropic": "no clusters, all directions",
    "items differ beyond": "items differ beyond their numbers",
    "clusters, rank 20": "clusters in 20 directions",
    "rare clicks": "clicks of 1.5 %",
    "items of a shop": "real: 34 items of a shop, of 10 on offer, by what is said of them",
    "redrawn halfway": "taste redrawn halfway",
    "two towers": "users near what they like",
}
"""What streams are called in tables."""
CONTEXTS = re.compile(
    r"^\| ([^|]+): [\d,]+, \d+, \d+ \| [^|]+ \| [^|]+ \| (\D+) [^|]+ \| ([\d.]+) ± ([\d.]+) \|$", re.MULTILINE
)
"""A stream of a user's context in TABLES.md: its name, who is best, and the default's regret over theirs."""


def read() -> dict[str, dict[str, Any]]:
    """Return what was measured, by part and stream."""
    return json.loads(ITEMS.read_text())  # type: ignore[no-any-return]


def whole(found: dict[str, float]) -> str:
    """Return a regret and its standard error, in whole clicks."""
    return f"{found['score']:,.0f} ± {found['standard_error']:,.0f}"


def beside(found: dict[str, float] | None) -> str:
    """Return a ratio and its standard error."""
    if not found:
        return "–"
    error = f" ± {found['standard_error']:.2f}" if found["standard_error"] else ""
    return f"{found['score']:.2f}{error}"


def first(streams: dict[str, Any]) -> list[str]:
    """Return the names of streams, where the default is least good first."""
    return sorted(streams, key=lambda name: -float(streams[name]["ratio"]["score"]))


def rows(part: str, titles: dict[str, str]) -> list[tuple[str, ...]]:
    """Return a row for each stream: ours, the best of seeds for tuning, and Vowpal Wabbit over ours.

    ′ marks where who is best was seen on the same seeds.
    """
    found, elsewhere = read()[part], read()["elsewhere"]
    return [
        (
            titles.get(name, name) + "′" * (found[name]["tuning"] == 0),
            whole(found[name]["ours"]),
            whole(found[name]["theirs"]),
            found[name]["policy"].replace("(", "").replace(")", ""),
            beside(found[name]["ratio"]),
            beside(elsewhere.get(name, {}).get("ratio")),
            f"{found[name]['any']['score']:,.0f}",
        )
        for name in first(found)
    ]


def lost(tables: str) -> list[tuple[str, ...]]:
    """Return where rivals who knew all scales beforehand have less regret, by twice the error.

    Those of a user's context stand in TABLES.md, which is given.
    """
    part = tables.partition("## docs/who-is-asking.md: how good it is")[2]
    found = [
        (f"who is asking: {name}", rival, float(ratio), float(error))
        for name, rival, ratio, error in CONTEXTS.findall(part)
    ]
    kept = read()
    for name, row in [*kept["embeddings"].items(), *kept["lists"].items()]:
        found.append((where_of(name), row["policy"].split(" (")[0].split(" ×")[0], *values(row["ratio"])))
    for name, row in kept["elsewhere"].items():
        ratio, error = values(row["ratio"])
        found.append((where_of(name), "Vowpal Wabbit", 1.0 / ratio, error / ratio**2))
    found = [each for each in found if round(each[2] - 1.0, 2) >= round(2.0 * each[3], 2)]
    found.sort(key=lambda each: -each[2])
    return [(where, who, f"{ratio:.2f} ± {error:.2f}") for where, who, ratio, error in found]


def values(found: dict[str, float]) -> tuple[float, float]:
    """Return a ratio and its standard error."""
    return found["score"], found["standard_error"]


def where_of(name: str) -> str:
    """Return what a stream is called among what is lost."""
    title = STREAMS.get(name, "").removeprefix("real: ").partition(",")[0].partition(" by ")[0]
    return f"items by embeddings: {title}" if title else f"lists of items: {name}"
