"""What a placement began with: a learner that was fitted elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from tacit.service.log.rows import START, MarkRow


class Start(msgspec.Struct, frozen=True):
    """A learner's file, as a mark of the log names it. What it held is where the log begins.

    Attributes
    ----------
    file : str
        Its name, without the folder.
    sha256 : str
        Of all that was in it.
    decisions, keys : int
        How many it had learned.
    """

    file: str
    sha256: str
    decisions: int
    keys: int

    @property
    def text(self) -> str:
        """It as the value of a mark."""
        return msgspec.json.encode(self).decode()


def start_of(plan: str) -> Start | None:
    """Return what the fold began with that a snapshot's plan describes.

    Examples
    --------
    >>> start_of('{"start": {"file": "a.tacit", "sha256": "…", "decisions": 9, "keys": 1}}').file
    'a.tacit'
    >>> start_of('{"rule": {}}')
    """
    told = json.loads(plan).get("start")
    return None if told is None else msgspec.convert(told, Start)


def marked_start(marks: Iterable[MarkRow]) -> Start | None:
    """Return what a placement began with, by its marks."""
    found = (mark.value for mark in marks if mark.kind == START)
    return next((msgspec.json.decode(value, type=Start) for value in found), None)
