"""Choose the recommended policy for a problem: ``auto``."""

from __future__ import annotations

import warnings
from typing import Any

from tacit.core import checks
from tacit.errors import AssumptionWarning, InvalidValue, with_suggestions
from tacit.policies.base import Policy
from tacit.policies.context import normalize_schema
from tacit.policies.duels.random_horizon import HorizonDraw
from tacit.policies.exploration_floor import MinimumDuelShares, MinimumShares
from tacit.policies.features.click_mixture import ClickMixture
from tacit.policies.features.context_mixture import ContextMixture
from tacit.policies.features.embedding_mixture import EmbeddingMixture
from tacit.policies.index import read_priors
from tacit.policies.lists.item_list_mix import ItemListMix
from tacit.policies.lists.list_mix import ListMix, SafeListMix
from tacit.policies.shifting.drift_mixture import DriftMixture
from tacit.policies.stationary.thompson import Thompson

SHOWS = ("arm", "duel", "slate")
EMBEDDING_DIM = 32
"""More relevance features than this are taken for an embedding."""
ANNOUNCED_SHARE = 0.9
"""Prior share of changes that signals announce, before any change was found."""


@with_suggestions
def auto(
    arms: Any = None,
    *,
    shows: str = "arm",
    positions: int | None = None,
    own_order: bool = False,
    context_dim: int = 0,
    context: Any = None,
    signals_dim: int = 0,
    per_key: bool = False,
    relevance_dim: int = 0,
    examination_dim: int = 0,
    notice_within: int | None = None,
    sums: bool = False,
    priors: Any = None,
    at_least: Any = None,
    reward_range: Any = (0.0, 1.0),
) -> Policy:
    """Return the recommended policy; it needs no tuning.

    ``print(policy.reason)`` says why it is recommended, what it assumes, and what to use if the
    assumptions do not hold. A later version may recommend another policy. Learners and placements
    that exist keep theirs, because snapshots and stores hold the policy by its own name.

    Parameters
    ----------
    arms : int or sequence of str, optional
        Number of arms, or their names; may be left out if arms are known by features.
    shows : str, default "arm"
        The action: one ``arm``, a ``duel`` of two arms, or a ``slate``, a list of several arms.
    positions : int, optional
        Number of arms in a slate, at least 1; 3 by default.
    own_order : bool, default False
        Whether the order in which arms are given is good already: then lists start from it and
        leave it only for lists that prove better.
    context_dim : int, default 0
        Length of a context, which describes the user or the time: the policy shows the best arm for it.
    context : dict of str to str or list of str, or rows, optional
        Instead of ``context_dim``, a schema for contexts that are dicts:
        ``{"device": ["ios", "web"], "age": "number"}``. See :class:`ContextMixture`. From a data frame or a
        list of dicts the schema is inferred by :func:`infer_schema`.
    signals_dim : int, default 0
        Number of signals that may announce a shift of intent, such as a query's volume. With
        ``context_dim`` they follow the numbers about the user; in a ``context`` each is a field that holds
        a ``"signal"``.
    per_key : bool, default False
        Whether each key has its own model of contexts, or all keys share one. A key's model takes
        ``policy.key_bytes``.
    relevance_dim, examination_dim : int, default 0
        Number of features that describe how relevant an arm is, and how likely it is to be seen. With more
        than 32 relevance features, or a context by names, and no examination features:
        :class:`EmbeddingMixture`. Slates read relevance features: :class:`ItemListMix`, whose first guess is
        the order in which arms are offered.
    notice_within : int, optional
        Within how many impressions of a key a change of an arm that is *not* shown must be noticed, at the
        price that :class:`DriftMixture` states; by default there is no limit.
    sums : bool, default False
        Whether the state must consist of sums, from which a reward can be removed again and which
        shards can add up.
    priors : dict of arm to (float, float), or table, optional
        Prior successes and failures of arms by name: ``{"film": (4, 96)}`` is 4 clicks in 100
        impressions. Or a data frame with the columns ``arm``, ``successes``, and ``plays`` or ``failures``.
    at_least : dict of arm to float, optional
        Minimum probabilities with which arms are shown, whatever is learned: ``{"control": 0.1}``;
        at most 0.5 in all. See :class:`MinimumShares`; for duels, where the arm is one of the two,
        :class:`MinimumDuelShares`; for lists, where it is at any position, :class:`ListMix`.
    reward_range : (float, float), (float, None) or None, default (0, 1)
        The lowest and the highest reward there can be. For named arms without a context there need be no
        highest one, such as of revenue, ``(0, None)``, or neither, such as of profit, ``None``. Give an end
        only if it is one: a range far wider than rewards makes learning slow.

    Raises
    ------
    InvalidValue
        If the arms are missing, or the arguments contradict each other.

    Examples
    --------
    >>> import tacit
    >>> tacit.auto(arms=5).label
    'DriftMixture'
    >>> tacit.auto(arms=5, context_dim=3).label
    'ContextMixture(context_dim=3)'
    >>> tacit.auto(arms=5, context_dim=3, signals_dim=1).label
    'ContextMixture(context_dim=4, signals_dim=1)'
    >>> tacit.auto(arms=20, shows="slate", positions=5).label
    'ListMix(positions=5)'
    >>> tacit.auto(arms=["old", "new"], shows="duel")
    HorizonDraw(arms=('old', 'new'), tail=4.0)
    >>> tacit.auto(relevance_dim=5, examination_dim=5).label
    'ClickMixture(relevance_dim=5, examination_dim=5)'
    >>> tacit.auto(relevance_dim=384, context_dim=32).label
    'EmbeddingMixture(relevance_dim=384, context_dim=32)'
    >>> tacit.auto(relevance_dim=384, shows="slate", positions=10).label
    'ItemListMix(relevance_dim=384, positions=10)'
    >>> tacit.auto(arms=["short", "long"], reward_range=(0, None)).label
    'DriftMixture(reward_range=(0, None))'
    """
    by_features = bool(relevance_dim or examination_dim)
    schema = () if context is None else normalize_schema("context", context)
    options = {
        "context_dim": context_dim,
        "context": schema,
        "signals_dim": signals_dim,
        "per_key": per_key,
        "own_order": own_order,
        "relevance_dim": relevance_dim,
        "examination_dim": examination_dim,
        "notice_within": notice_within,
        "sums": sums,
        "priors": read_priors(priors),
        "at_least": at_least,
    }
    for field in ("sums", "own_order"):
        checks.flag(field, options[field])
    for field in ("context_dim", "signals_dim", "relevance_dim", "examination_dim"):
        checks.integer(field, options[field], 0)
    if shows not in SHOWS:
        raise InvalidValue("shows", shows, f"give one of {', '.join(SHOWS)}")
    if positions is not None and shows != "slate":
        raise InvalidValue("positions", positions, "leave it out, or show a list of them: shows='slate'")
    length = 3 if positions is None else positions
    _check_arms(
        arms, shows, bool(relevance_dim) if shows == "slate" else by_features and shows == "arm", schema
    )
    return _recommend(arms, shows, length, options).with_range(reward_range)


def _recommend(arms: Any, shows: str, length: int, options: dict[str, Any]) -> Policy:
    """Return the recommended policy for rewards in [0, 1]; ``length`` is the number of positions of a list.

    Raises InvalidValue for an option that this policy does not read.
    """
    relevance_dim, examination_dim = options["relevance_dim"], options["examination_dim"]
    context_dim, schema, per_key = options["context_dim"], options["context"], options["per_key"]
    at_least = options["at_least"]
    if shows == "duel":
        _check_options(options, "a duel", ("at_least",))
        draw = HorizonDraw(_require_arms(arms))
        return MinimumDuelShares(draw, at_least=at_least) if at_least else draw
    if shows == "slate" and relevance_dim:
        reads: tuple[str, ...] = ("relevance_dim", "context_dim", "context", "per_key")
        _check_options(options, "a slate of arms by their features", reads)
        return ItemListMix(relevance_dim, context_dim, positions=length, context=schema, per_key=per_key)
    if shows == "slate":
        _check_options(options, "a slate", ("own_order", "at_least"))
        mix = SafeListMix if options["own_order"] else ListMix
        return mix(_require_arms(arms), positions=length, at_least=at_least or ())
    if relevance_dim or examination_dim:
        if not relevance_dim:
            raise InvalidValue("examination_dim", examination_dim, "give relevance_dim, too, at least 1")
        reads = ("relevance_dim", "examination_dim", "context_dim", "context", "per_key")
        _check_options(options, "an arm by its features", reads)
        if (relevance_dim > EMBEDDING_DIM or schema) and not examination_dim:
            return EmbeddingMixture(relevance_dim, context_dim, context=schema, per_key=per_key)
        _check_options(options, "an arm by few features", ("relevance_dim", "examination_dim", "context_dim"))
        return ClickMixture(relevance_dim, examination_dim, context_dim)
    policy = _recommend_named_arms(options, _require_arms(arms))
    return MinimumShares(policy, at_least=at_least) if at_least else policy


def _recommend_named_arms(options: dict[str, Any], arms: Any) -> Policy:
    """Return the recommended policy that shows one arm of known names.

    It is Thompson with ``sums``, ContextMixture with a context, else DriftMixture. Raises InvalidValue for an
    option that this policy does not read.
    """
    priors, schema, signals_dim = options["priors"] or (), options["context"], options["signals_dim"]
    if options["sums"]:
        _check_options(options, "an arm by what sums say", ("sums", "priors", "at_least"))
        return Thompson(arms, priors=priors)
    if options["context_dim"] or schema:
        reads = ("context_dim", "context", "signals_dim", "per_key", "priors", "at_least")
        _check_options(options, "an arm by who is asking", reads)
        numbers, per_key = options["context_dim"], options["per_key"]
        length = numbers + signals_dim if numbers else 0
        return ContextMixture(
            arms, length, context=schema, signals_dim=signals_dim, per_key=per_key, priors=priors
        )
    _check_options(options, "an arm by its name", ("signals_dim", "notice_within", "priors", "at_least"))
    return DriftMixture(
        arms,
        context_dim=signals_dim,
        notice_within=options["notice_within"],
        announced=ANNOUNCED_SHARE if signals_dim else 0.0,
        priors=priors,
    )


def _check_arms(arms: Any, shows: str, by_features: bool, schema: Any) -> None:
    """Raise InvalidValue if arms are named although they are known by features.

    Warns (AssumptionWarning) of a duel of one arm, and of a context field whose values are arms.
    """
    if by_features and arms is not None:
        remedy = "leave it out: arms known by features are named at each decision: choose(arms=[...])"
        raise InvalidValue("arms", arms, remedy)
    names = checks.as_list(arms) if isinstance(checks.as_list(arms), list | tuple) else ()
    doubt = "arms: a duel of one arm is no duel; give two" if shows == "duel" and len(names) == 1 else ""
    for name, holds in schema:
        if isinstance(holds, tuple) and set(holds) <= set(names):
            doubt = f"context.{name}: it holds arms; if it is what was shown, leave it out"
    if doubt:
        warnings.warn(doubt, AssumptionWarning, stacklevel=3)


def _require_arms(arms: Any) -> Any:
    """Return ``arms``, or raise InvalidValue if they are None."""
    if arms is None:
        raise InvalidValue(
            "arms",
            None,
            "say the number of arms or their names, or, where they are known by features, relevance_dim, "
            "at least 1",
        )
    return arms


def _check_options(options: dict[str, Any], action: str, supported: tuple[str, ...]) -> None:
    """Raise InvalidValue if an option outside ``supported`` is set, so that none is ignored silently.

    ``action`` says in the error what is shown.
    """
    for field, value in options.items():
        if value and field not in supported:
            takes = ", ".join(("arms", *supported))
            raise InvalidValue(field, value, f"leave it out: to show {action} takes {takes}")
