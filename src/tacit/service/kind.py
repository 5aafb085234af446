"""A kind of placement as one record, and which kinds there are.

Whatever depends on what a placement shows and takes asks the record of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.policies.action_kind import Shows, shows_of
from tacit.policies.base import Policy


class ExportTable(NamedTuple):
    """A table of its own that the export of a log has of placements of a kind.

    Attributes
    ----------
    name : str
        What its file's name begins with.
    schema : function
        Returns the Arrow schema, from the placement's options.
    rows : function
        Returns rows, from a decision, what came back for it, the placement's name and its policy.
    """

    name: str
    schema: Callable[[Any], Any]
    rows: Callable[[Any, Any, str, Any], list[dict[str, Any]]]


@dataclass(frozen=True)
class Kind:
    """A kind of placement.

    Attributes
    ----------
    name : str
        As the configuration says it.
    path : str
        The path below a placement at which decisions are asked for.
    shows : str
        What its policies show, as :attr:`tacit.Policy.shows` says it.
    table : type of PlacementTable
        Its table in the configuration.
    placement : type of Placement
    view : type of View
        What the page shows of a placement; it names its template.
    example : function
        Returns, for a placement, a request at ``path`` that it will answer, as JSON data.
    form : Form
        How requests at ``path`` are read and answers written.
    by_features : bool
        Whether its policies read features of arms.
    takes_clicks : bool
        Whether clicked positions come back, and not rewards.
    click_log : bool
        Whether its decisions are rows of a click log (:mod:`tacit.logs`).
    living : bool
        Whether its arms can come and go.
    controls : tuple of str
        What can decide for a part of its traffic, so that the lift is known: ``uniform``,
        ``baseline``, ``arm`` or ``policy``; empty for nothing.
    export : ExportTable or None
        What the export of a log has of it besides.
    featured : Kind or None
        The kind of those of its placements whose policies read features of arms, where others do not.
    """

    name: str
    path: str
    shows: str
    # What these are of stands above this file, and asks it.
    table: type[Any]
    placement: type[Any]
    view: type[Any]
    example: Callable[[Any], dict[str, Any]]
    form: Any
    by_features: bool = False
    takes_clicks: bool = False
    click_log: bool = False
    living: bool = False
    controls: tuple[str, ...] = ()
    export: ExportTable | None = None
    featured: Kind | None = None

    def fit_for(self, policy: Policy) -> Kind:
        """Return the kind of those of its placements that have such a policy."""
        return self.featured if self.featured is not None and any(policy.feature_dims) else self

    @property
    def showing(self) -> Shows:
        """What is known of what its policies show."""
        return shows_of(self.shows)


KINDS: dict[str, Kind | str] = {
    "arms": "tacit.service.http.arms",
    "features": "tacit.service.http.arms:FEATURES",
    "duels": "tacit.service.http.duels",
    "slates": "tacit.service.http.slates",
}
"""All kinds by their names: records, or modules that have one as ``KIND``, or by another name, and are
imported when it is first asked for."""


def kind_of(name: str) -> Kind:
    """Return the record of a kind.

    Raises
    ------
    InvalidValue
        If there is no such kind.

    Examples
    --------
    >>> kind_of("slates").path, kind_of("slates").takes_clicks
    ('slate', True)
    """
    known = KINDS.get(name)
    if known is None:
        raise InvalidValue("kind", name, f"give one of {', '.join(KINDS)}")
    if isinstance(known, str):
        module, _, called = known.partition(":")
        known = KINDS[name] = getattr(import_module(module), called or "KIND")
    return known


def check_path(placement: Any, path: str) -> None:
    """Check that a placement is asked for decisions at a path.

    Raises
    ------
    InvalidValue
        If it is asked elsewhere; the error says where.
    """
    asked = placement.kind.path
    if asked != path:
        raise InvalidValue(
            "placement", placement.name, f"its kind, {placement.kind.name!r}, takes {asked!r}, not {path!r}"
        )
