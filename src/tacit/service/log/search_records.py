"""What the log keeps of a search besides its key: its rankings, whose it is, its segments."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

DIGEST_BYTES = 16
UNIT_BYTES = 8
SEED_BYTES = 16
SUBJECTS = USER, SESSION, CLIENT = "user", "session", "client"
RECORDED = {USER: ("client_id",), SESSION: ("session_id",), CLIENT: ("client_id",)}
"""The fields of a record of user behavior insights that name somebody."""
KEPT = (
    "action_name", "application", "query_id", "query_response_hit_ids", "query_response_id",
    "timestamp",
)  # fmt: skip
"""The fields of a record that stay when somebody is forgotten."""


class AskedSearch(msgspec.Struct, frozen=True, omit_defaults=True):
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
    >>> AskedSearch("ab12").text
    'ab12'
    >>> said = AskedSearch("ab12", segments={"market": "de"})
    >>> said.text, AskedSearch.read(said.text) == said
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
    def read(cls, text: str | None) -> AskedSearch:
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


def unit_of(salt: str, placement: int, user: str | None, session: str | None) -> str | None:
    """Return a hash of whose a search is, the user's or else the session's; None if not known.

    Parameters
    ----------
    salt : str
        The store's, without which nobody can try out names.
    placement : int
        Its number, so that no other one knows the same user by the same hash.
    user, session : str or None
    """
    kind, id = ("user", user) if user is not None else ("session", session)
    if id is None:
        return None
    content = f"{placement}\0{kind}\0{id}".encode()
    hashed = hashlib.blake2b(content, digest_size=UNIT_BYTES, key=salt.encode(), person=b"unit")
    return hashed.hexdigest()


def unit_until_0_2(seed: int, kind: str, id: str) -> str:
    """Return the hash that rows of versions up to 0.2 hold, in stores that 0.3 has opened since."""
    key, content = seed.to_bytes(SEED_BYTES, "little"), f"{kind}\0{id}".encode()
    hashed = hashlib.blake2b(content, digest_size=UNIT_BYTES, key=key, person=b"unit")
    return hashed.hexdigest()


class Subject(NamedTuple):
    """Somebody who is to be forgotten.

    Attributes
    ----------
    kind : str
        ``user``, ``session`` or ``client``.
    name : str
        As requests gave it.
    """

    kind: str
    name: str

    def units(self, salt: str, placement: int, seed: int) -> list[str]:
        """Return the hashes by which decisions of a placement know of it."""
        if self.kind == CLIENT:
            return []
        user, session = (self.name if kind == self.kind else None for kind in (USER, SESSION))
        salted = unit_of(salt, placement, user, session)
        return [str(salted), unit_until_0_2(seed, self.kind, self.name)]

    def without(self, content: str) -> str | None:
        """Return a record of user behavior insights without what tells of it; None if none does.

        What stays is what was done, when, and to what: no text that somebody typed, no attributes
        that somebody added.
        """
        record = msgspec.json.decode(content)
        if not any(record.get(field) == self.name for field in RECORDED[self.kind]):
            return None
        return msgspec.json.encode(
            {field: value for field, value in record.items() if field in KEPT}, order="sorted"
        ).decode()


def without_unit(asked: str | None) -> str | None:
    """Return what a decision keeps of its request without whose it was.

    Examples
    --------
    >>> without_unit('{"rankings":"ab12","unit":"ff"}')
    'ab12'
    """
    if asked is None or '"unit":' not in asked:
        return asked
    return msgspec.structs.replace(AskedSearch.read(asked), unit=None).text
