"""The addresses of the Personalizer API: below ``/personalizer``, and below each placement."""

from __future__ import annotations

import re
from typing import NamedTuple

from tacit.service.keys import ADMIN, DECIDE, FEEDBACK, READ

PATH = re.compile(
    r"(?:/v1/placements/(?P<placement>[^/]+))?/personalizer"
    r"(?:/v1\.[01](?:-preview\.\d)?)?/(?P<rest>.+)"
)
WITH_ID = re.compile(
    r"(?P<head>(?:multislot/)?events|evaluations)/(?P<id>.+?)(?P<tail>/reward|/activate|)"
)


ACTIONS = (
    "rank",
    "events/*/reward",
    "events/*/activate",
    "multislot/rank",
    "multislot/events/*/reward",
    "multislot/events/*/activate",
    "configurations/service",
    "configurations/policy",
    "configurations/applyFromEvaluation",
    "model",
    "model/properties",
    "logs",
    "logs/properties",
    "evaluations",
    "evaluations/*",
)


class Place(NamedTuple):
    """What an address names.

    Attributes
    ----------
    placement : str or None
        None for the one that the configuration names.
    action : str
        The path, with ``*`` in place of an id.
    id : str
    """

    placement: str | None
    action: str
    id: str = ""

    @property
    def label(self) -> str:
        """The path as metrics tell it; any may be asked for, so only those that exist are told
        apart."""
        return f"personalizer/{self.action}" if self.action in ACTIONS else "other"


def place_of(path: str) -> Place | None:
    """Return what an address of this API names; None for other addresses.

    Examples
    --------
    >>> place_of("/personalizer/v1.0/events/a/b/reward")
    Place(placement=None, action='events/*/reward', id='a/b')
    >>> place_of("/v1/placements/home/personalizer/v1.1-preview.3/rank")
    Place(placement='home', action='rank', id='')
    >>> place_of("/v1/placements/home/decide")
    """
    found = PATH.fullmatch(path)
    if found is None:
        return None
    named = WITH_ID.fullmatch(found["rest"])
    if named is None:
        return Place(found["placement"], found["rest"])
    return Place(found["placement"], f"{named['head']}/*{named['tail']}", named["id"])


def scope_of(method: str, action: str) -> str:
    """Return what a key must be for.

    Examples
    --------
    >>> scope_of("POST", "events/*/reward"), scope_of("PUT", "configurations/service")
    ('feedback', 'admin')
    """
    if method == "GET":
        return READ
    if action in ("rank", "multislot/rank"):
        return DECIDE
    return FEEDBACK if action.endswith(("/reward", "/activate")) else ADMIN
