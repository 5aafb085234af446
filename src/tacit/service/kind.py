"""Kinds of placements: a record of each kind with its classes and properties, and their registry.

Code that depends on the actions and feedback of a placement reads the record of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from tacit.errors import InvalidValue
from tacit.policies.action_kind import ActionKind, get_action_kind
from tacit.policies.base import Policy


class ExportTable(NamedTuple):
    """An additional table that the export of a log has for placements of a kind.

    Attributes
    ----------
    name : str
        Begin of the file's name.
    schema : function
        Returns the Arrow schema for the placement's options.
    rows : function
        Returns the rows of a decision, from its row, its feedback, the placement's name and its policy.
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
        Name in the configuration.
    path : str
        Path of decision requests below a placement.
    shows : str
        The policies' kind of action, as :attr:`tacit.Policy.shows` names it.
    table : type of PlacementTable
        Table of a placement in the configuration.
    parts : KindParts
        Classes of a placement's parts.
    view : type of View
        View of a placement for its page; it names the template.
    example : function
        Returns a valid request at ``path`` to a placement, as JSON data.
    form : Form
        Reads requests at ``path`` and writes answers.
    by_features : bool
        Whether policies read features of arms.
    takes_clicks : bool
        Whether feedback is clicked positions, not rewards.
    click_log : bool
        Whether decisions can be exported as rows of a click log (:mod:`tacit.logs`).
    has_arm_lifecycle : bool
        Whether arms can be added and retired.
    controls : tuple of str
        Possible policies of the control group of a holdout: ``uniform``, ``baseline``, ``arm`` or
        ``policy``; empty if there can be no holdout.
    export : ExportTable or None
        Additional table of a log's export.
    features_kind : Kind or None
        The kind of placements of this name whose policies read features of arms; None if there is none.
    """

    name: str
    path: str
    shows: str
    # The types are Any, since the modules of the classes import this one.
    table: type[Any]
    parts: Any
    view: type[Any]
    example: Callable[[Any], dict[str, Any]]
    form: Any
    by_features: bool = False
    takes_clicks: bool = False
    click_log: bool = False
    has_arm_lifecycle: bool = False
    controls: tuple[str, ...] = ()
    export: ExportTable | None = None
    features_kind: Kind | None = None

    def select_variant(self, policy: Policy) -> Kind:
        """Return ``features_kind`` for a policy that reads features of arms, else this kind."""
        return self.features_kind if self.features_kind is not None and any(policy.feature_dims) else self

    @property
    def showing(self) -> ActionKind:
        """Properties of the actions that policies of this kind show."""
        return get_action_kind(self.shows)


KINDS: dict[str, Kind | str] = {
    "arms": "tacit.service.http.arms",
    "features": "tacit.service.http.arms:FEATURES",
    "duels": "tacit.service.http.duels",
    "slates": "tacit.service.http.slates",
}
"""Kinds by name: a record, or its module, with the record's name after a colon unless it is ``KIND``.

Modules are imported when their kind is first used.
"""


def get_kind(name: str) -> Kind:
    """Return the record of the kind of placements with this name; the first call imports its module.

    Raises
    ------
    InvalidValue
        If there is no such kind.

    Examples
    --------
    >>> get_kind("slates").path, get_kind("slates").takes_clicks
    ('slate', True)
    """
    entry = KINDS.get(name)
    if entry is None:
        raise InvalidValue("kind", name, f"give one of {', '.join(KINDS)}")
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = KINDS[name] = getattr(import_module(module), attribute or "KIND")
    return entry


def check_path(placement: Any, path: str) -> None:
    """Check that a placement takes decision requests at a path, such as ``slate``; return nothing.

    Raises
    ------
    InvalidValue
        If it takes them at another path, which the error names.
    """
    kind_path = placement.kind.path
    if kind_path != path:
        raise InvalidValue(
            "placement",
            placement.name,
            f"its kind, {placement.kind.name!r}, takes {kind_path!r}, not {path!r}",
        )
