"""What the log keeps of a search besides its key: its rankings, whose it is, its segments."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

DIGEST_BYTES = 16
UNIT_BYTES = 8
SEED_BYTES = 16


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request said of a search.

    Attributes
    ----------
    rankings : str or None
        A digest of what the rankers gave.
    unit : str or None
        A hash of whose it is.
    segments : dict
        What else is known of it, by name.

    Examples
    --------
    >>> Told("ab12").text
    'ab12'
    >>> told = Told("ab12", segments={"market": "de"})
    >>> told.text, Told.read(told.text) == told
    ('{"rankings":"ab12","segments":{"market":"de"}}', True)
    """

    rankings: str | None = None
    unit: str | None = None
    segments: dict[str, str] = {}

    @property
    def text(self) -> str | None:
        """As the log keeps it: the digest alone where there is no more, as ever."""
        if self.unit is None and not self.segments:
            return self.rankings
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def read(cls, text: str | None) -> Told:
        """Return what :attr:`text` gave."""
        if text is None or not text.startswith("{"):
            return cls(text)
        return msgspec.json.decode(text, type=cls)


def digest_of(rankings: Mapping[str, Any]) -> str:
    """Return a hash of rankings: the log need not hold them all to know them again.

    Examples
    --------
    >>> digest_of({"old": ["a", "b"]}) == digest_of({"old": ["a", "b"]})
    True
    >>> digest_of({"old": ["a", "b"]}) == digest_of({"old": ["b", "a"]})
    False
    """
    content = msgspec.json.encode(rankings)
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def unit_of(seed: int, user: str | None, session: str | None) -> str | None:
    """Return a hash of whose a search is, the user's or else the session's; None if not known.

    Parameters
    ----------
    seed : int
        The placement's, so that no other one knows the same user by the same hash.
    user, session : str or None
    """
    kind, id = ("user", user) if user is not None else ("session", session)
    if id is None:
        return None
    key = seed.to_bytes(SEED_BYTES, "little")
    content = f"{kind}\0{id}".encode()
    hashed = hashlib.blake2b(content, digest_size=UNIT_BYTES, key=key, person=b"unit")
    return hashed.hexdigest()
