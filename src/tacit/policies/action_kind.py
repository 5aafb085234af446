"""What a policy shows in a decision, as one record: code that depends on it asks the record, not the name."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import InvalidValue


@dataclass(frozen=True)
class Shows:
    """What a policy shows in a decision, and what comes back for it.

    Attributes
    ----------
    name : str
        As :attr:`tacit.Policy.shows` and the environments' ``takes`` say it.
    single : bool
        Whether it is one arm, which a reward is for. Its propensity tells what others would have earned.
    listed : bool
        Whether it is several positions, some perhaps empty. No arm stands at two of them, each is clicked on
        its own, and a log has a row for each. Propensities of the whole hardly tell what others would have
        earned.
    compared : bool
        Whether what comes back says which of two is better, and nothing of what either earns.

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


SHOWS = {
    each.name: each
    for each in (Shows("arm", single=True), Shows("duel", compared=True), Shows("slate", listed=True))
}
"""All of them by their names. A package with policies that show something else adds its record here."""


def shows_of(name: str) -> Shows:
    """Return the record of what is shown.

    Raises
    ------
    InvalidValue
        If there is none of this name.

    Examples
    --------
    >>> shows_of("slate").listed
    True
    """
    if name not in SHOWS:
        raise InvalidValue("shows", name, f"give one of {', '.join(SHOWS)}")
    return SHOWS[name]
