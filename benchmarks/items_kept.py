"""What was measured of items known by numbers, by part and stream: `items.json`, which `page.py` reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from venvs import HERE

ITEMS = HERE / "items.json"


def keep(part: str, name: str, found: dict[str, Any]) -> None:
    """Write what was found of a stream, in place of what was known of it."""
    parts = json.loads(ITEMS.read_text()) if ITEMS.exists() else {}
    parts.setdefault(part, {})[name] = found
    ITEMS.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n")


def spread(regrets: Any) -> dict[str, float]:
    """Return a mean and its standard error."""
    values = np.asarray(regrets, dtype=float)
    return {"score": float(values.mean()), "standard_error": float(values.std(ddof=1) / len(values) ** 0.5)}


def over(one: Any, other: Any) -> dict[str, float]:
    """Return the mean of some regrets over that of others on the same seeds, and its standard error."""
    first, second = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    ratio = float(first.mean() / second.mean())
    return {
        "score": ratio,
        "standard_error": spread(first - ratio * second)["standard_error"] / second.mean(),
    }
