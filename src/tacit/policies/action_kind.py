"""Kinds of actions (one arm, a duel, a list) as records: code asks the record, not the kind's name."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import InvalidValue


@dataclass(frozen=True)
class ActionKind:
    """The kind of action that a policy takes in a decision, and of the feedback for it.

    Attributes
    ----------
    name : str
        The name in :attr:`tacit.Policy.shows` and in the environments' ``takes``.
    single : bool
        Whether the action is one arm, and the feedback its reward. With its propensity, other policies can be
        evaluated.
    listed : bool
        Whether the action fills several positions, some perhaps empty. No arm is at two of them, each has
        clicks of its own, and a log has a row for each. Propensities of whole lists are of little use for the
        evaluation of other policies.
    compared : bool
        Whether the feedback says which of two arms is better, but not the reward of either.

    Examples
    --------
    >>> import tacit
    >>> tacit.ListMix(5, positions=2).showing.listed, tacit.policies.RMED1(2).showing.compared
    (True, True)
    """

    name: str
    single: bool = False
    listed: bool = False
    compared: bool = False


ACTION_KINDS = {
    record.name: record
    for record in (
        ActionKind("arm", single=True),
        ActionKind("duel", compared=True),
        ActionKind("slate", listed=True),
    )
}
"""All kinds by name. A package whose policies show something else adds its record here."""


def get_action_kind(name: str) -> ActionKind:
    """Return the kind of action with a name.

    Raises
    ------
    InvalidValue
        If there is no kind of this name.

    Examples
    --------
    >>> get_action_kind("slate").listed
    True
    """
    if name not in ACTION_KINDS:
        raise InvalidValue("shows", name, f"give one of {', '.join(ACTION_KINDS)}")
    return ACTION_KINDS[name]
