"""A search in the log besides its key: a digest of its rankings, a hash of its user, its segments."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

DIGEST_BYTES = 16
UNIT_BYTES = 8
SEED_BYTES = 16
SUBJECTS = USER, SESSION, CLIENT = "user", "session", "client"
SUBJECT_FIELDS = {USER: ("client_id",), SESSION: ("session_id",), CLIENT: ("client_id",)}
"""Fields that identify a user in a record of User Behavior Insights, for each kind of subject."""
REMAINING_FIELDS = (
    "action_name", "application", "query_id", "query_response_hit_ids", "query_response_id",
    "timestamp",
)  # fmt: skip
"""Fields of a record that stay when its user is forgotten."""


class SearchFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a search request that the log stores.

    Attributes
    ----------
    rankings : str or None
        Digest of the rankers' lists.
    unit : str or None
        Hash of the user or session.
    segments : dict
        Segments by name.

    Examples
    --------
    >>> SearchFields("ab12").text
    'ab12'
    >>> fields = SearchFields("ab12", segments={"market": "de"})
    >>> fields.text, SearchFields.read(fields.text) == fields
    ('{"rankings":"ab12","segments":{"market":"de"}}', True)
    """

    rankings: str | None = None
    unit: str | None = None
    segments: dict[str, str] = {}

    @property
    def text(self) -> str | None:
        """Text for the log: the digest if there is nothing else, or JSON."""
        if self.unit is None and not self.segments:
            return self.rankings
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def read(cls, text: str | None) -> SearchFields:
        """Return the fields from the text of a log row: JSON, or a digest of rankings alone, or None."""
        if text is None or not text.startswith("{"):
            return cls(text)
        return msgspec.json.decode(text, type=cls)


def hash_rankings(rankings: Mapping[str, Any]) -> str:
    """Return a hash of rankers' lists as hexadecimal digits; the log recognizes repeated requests by it.

    Examples
    --------
    >>> hash_rankings({"old": ["a", "b"]}) == hash_rankings({"old": ["a", "b"]})
    True
    >>> hash_rankings({"old": ["a", "b"]}) == hash_rankings({"old": ["b", "a"]})
    False
    """
    return hashlib.blake2b(msgspec.json.encode(rankings), digest_size=DIGEST_BYTES).hexdigest()


def hash_unit(salt: str, placement: int, user: str | None, session: str | None) -> str | None:
    """Return a hash of the user of a search, or else of its session; None if both are unknown.

    Parameters
    ----------
    salt : str
        The store's salt, without which names cannot be guessed from hashes.
    placement : int
        The placement's number, so that the hashes of a user differ between placements.
    user, session : str or None
    """
    kind, id = ("user", user) if user is not None else ("session", session)
    if id is None:
        return None
    content = f"{placement}\0{kind}\0{id}".encode()
    hashed = hashlib.blake2b(content, digest_size=UNIT_BYTES, key=salt.encode(), person=b"unit")
    return hashed.hexdigest()


def hash_unit_until_0_2(seed: int, kind: str, id: str) -> str:
    """Return the hash of a user or session in rows of versions up to 0.2, in stores that 0.3 has opened."""
    key, content = seed.to_bytes(SEED_BYTES, "little"), f"{kind}\0{id}".encode()
    return hashlib.blake2b(content, digest_size=UNIT_BYTES, key=key, person=b"unit").hexdigest()


class Subject(NamedTuple):
    """A user, session or client whose data are to be blanked.

    Attributes
    ----------
    kind : str
        ``user``, ``session`` or ``client``.
    name : str
        Its id in requests.
    """

    kind: str
    name: str

    def hash_units(self, salt: str, placement: int, seed: int) -> list[str]:
        """Return the possible hashes of the subject in decisions of a placement; [] for a client.

        The first is by :func:`hash_unit`, then those of versions up to 0.2 and of shards of 0.3.
        """
        if self.kind == CLIENT:
            return []
        user, session = (self.name if kind == self.kind else None for kind in (USER, SESSION))
        salted, of_shards = hash_unit(salt, placement, user, session), hash_unit("", 0, user, session)
        return [str(salted), hash_unit_until_0_2(seed, self.kind, self.name), str(of_shards)]

    def blank_record(self, content: str) -> str | None:
        """Return a record of User Behavior Insights (JSON) without the subject's data.

        None if the record is not the subject's. The action, its time and its objects stay; typed text and
        additional attributes do not.
        """
        record = msgspec.json.decode(content)
        if not any(record.get(field) == self.name for field in SUBJECT_FIELDS[self.kind]):
            return None
        return msgspec.json.encode(
            {field: value for field, value in record.items() if field in REMAINING_FIELDS}, order="sorted"
        ).decode()


def remove_unit(asked: str | None, units: Collection[str] = ("",)) -> str | None:
    """Return a decision's ``asked`` field without the hash of the user or session, if it is one of ``units``.

    By default any hash is removed: "" is a part of each.

    Examples
    --------
    >>> remove_unit('{"rankings":"ab12","unit":"ff"}')
    'ab12'
    """
    if asked is None or '"unit":' not in asked or not any(unit in asked for unit in units):
        return asked
    return msgspec.structs.replace(SearchFields.read(asked), unit=None).text
