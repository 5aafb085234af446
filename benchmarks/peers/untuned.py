"""tacit's recommended policy, left as it is, played on streams."""

from __future__ import annotations

import runpy
from pathlib import Path

import tacit

_tacit = runpy.run_path(str(Path(__file__).with_name("tacit.py")))


def shifting(stream):
    """Arms by name."""
    return {"auto": _tacit["called"](tacit.auto(stream["chances"].shape[1]))}


def dueling(stream):
    """Duels of arms."""
    return _tacit["dueled"](stream, {"auto": tacit.auto(len(stream["preferences"]), shows="duel")}, 1)


def examination(stream):
    """Arms by their features."""
    half = stream["features"].shape[1] // 2
    policy = tacit.auto(relevance_dim=half, examination_dim=half)
    return {"auto": _tacit["called_with_features"](policy)(stream)}
