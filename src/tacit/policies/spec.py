"""Policies as text and as plain tables, for the command line, configuration and snapshots."""

# 1. From a name or a table to a policy: ``policy_class``, ``policy_from_spec``; ``auto`` is the recommended
#    policy.
# 2. ``policy_from_stored``: the same for a spec from an earlier version, with that version's defaults.
# 3. ``policy_to_spec``: the way back; ``is_compatible``: whether a policy can use the state of another.

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

from tacit.core.dispatch import canonical_name
from tacit.core.part import GRAMMAR, find_class, match_arguments, parse_call, read_call
from tacit.core.reward_range import RewardRange
from tacit.errors import AssumptionWarning, InvalidValue, TacitError, read_signature
from tacit.policies.action_kind import ActionKind, get_action_kind
from tacit.policies.auto import auto
from tacit.policies.base import Policy, registry

AUTO = "auto"
NEVER_POSITIONAL = ("arms", "reward_range")
Setting = Mapping[str, Any]
NO_SETTING: Setting = MappingProxyType({})


def policy_class(name: str) -> type[Policy]:
    """Return the policy class with a name.

    Parameters
    ----------
    name : str
        A policy's name, in any case and with or without hyphens; or ``module:Class`` for a
        policy outside of tacit, whose module is imported.

    Raises
    ------
    UnknownName
        If there is no such policy.

    Examples
    --------
    >>> policy_class("epsilon-greedy").__name__
    'EpsilonGreedy'
    """
    return find_class(name, registry, Policy, AUTO)


def is_auto(spec: Any) -> bool:
    """True if a spec, a text or a table, names ``auto``, the recommended policy.

    Examples
    --------
    >>> is_auto("auto"), is_auto({"name": "auto", "relevance_dim": 5}), is_auto("thompson")
    (True, True, False)
    """
    name = spec.get("name") if isinstance(spec, dict) else spec
    return isinstance(name, str) and canonical_name(name.partition("(")[0].strip()) == AUTO


def read_action_kind(spec: str) -> ActionKind:
    """Return the kind of action of the policy that a text names; the policy itself is not created.

    Examples
    --------
    >>> [read_action_kind(spec).name for spec in ("rmed1", "auto", "auto(shows='slate')")]
    ['duel', 'arm', 'slate']
    """
    name, _, named = parse_call(spec)
    if canonical_name(name) == AUTO:
        return get_action_kind(str(named.get("shows", Policy.shows)))
    return get_action_kind(policy_class(name).shows)


def policy_from_spec(
    spec: Any, arms: Any = None, *, imports: bool = True, setting: Setting = NO_SETTING
) -> Policy:
    """Return a policy from text or from a plain table.

    Parameters
    ----------
    spec : Policy, str or dict
        A policy is returned as it is, over ``arms`` if given. Text is a name or a call, as on
        the command line; it is parsed, never evaluated. A table has the key ``name`` and one
        key per hyperparameter, as in TOML and in snapshots.
    arms : int or sequence of str, optional
        The arms, if the spec does not name them.
    imports : bool, default True
        Whether ``module:Class`` may import; False for specs from untrusted files.
    setting : mapping, optional
        Properties of the problem: arguments of ``auto``, such as ``shows``, that the spec does not
        have; for any policy, the number of features of arms.

    Raises
    ------
    UnknownName
        If there is no such policy.
    InvalidValue
        If the text cannot be parsed or a hyperparameter is unknown or out of range.

    Examples
    --------
    >>> policy_from_spec("exploration-floor(ucb1(alpha=1), epsilon=0.1)", arms=3)
    ExplorationFloor(policy=UCB1(arms=3, alpha=1.0, t0=0.0), epsilon=0.1, draws=16)
    >>> policy_from_spec({"name": "thompson", "discount": 0.99}, arms=["a", "b"]).discount
    0.99
    """
    if isinstance(spec, Policy):
        return spec if arms is None else spec.with_arms(arms)
    remedy = f"{GRAMMAR}, or a table with the key name"
    name, positional, named = read_call("policy", spec, remedy, imports=imports)
    if canonical_name(name) == AUTO:
        return _recommend(positional, named, arms, setting)
    kind = policy_class(name)
    arguments = _match_arguments(kind, positional, _find_dims(kind, positional, setting) | named, arms)
    if "classifier" in arguments:
        from tacit.classifiers.base import classifier_from_spec

        arguments["classifier"] = classifier_from_spec(arguments["classifier"], imports=imports)
    if "policy" in arguments:
        over = arguments.get("arms", arms)
        inner = arguments["policy"]
        arguments["policy"] = policy_from_spec(inner, over, imports=imports, setting=setting)
    try:
        return kind(**arguments)
    except ValueError as error:
        if isinstance(error, TacitError):
            raise
        raise InvalidValue(kind.__name__, arguments, str(error)) from error


def policy_from_stored(spec: Any, *, imports: bool = True) -> Policy:
    """Return the policy of a table that :func:`policy_to_spec` made, in this version or an earlier.

    A hyperparameter that an earlier version did not have gets the value that keeps its behaviour.

    Examples
    --------
    >>> spec = {"name": "ExplorationFloor", "policy": {"name": "UCB1", "arms": 2}, "epsilon": 0.1}
    >>> policy_from_stored(spec).draws, policy_from_spec(spec).draws
    (0, 16)
    """
    if isinstance(spec, dict):
        # The feedback rule belongs to the placement, and is stored next to its policy.
        spec = {name: value for name, value in spec.items() if name != "feedback_rule"}
    return policy_from_spec(_add_earlier_defaults(spec), imports=imports)


def format_policy_name(spec: Mapping[str, Any]) -> str:
    """Return the name of the policy in a spec table, joined by a hyphen to that of the policy it wraps.

    Examples
    --------
    >>> format_policy_name({"name": "ExplorationFloor", "policy": {"name": "UCB1", "arms": 2}})
    'ExplorationFloor-UCB1'
    """
    inner = spec.get("policy")
    return f"{spec['name']}-{format_policy_name(inner)}" if isinstance(inner, dict) else str(spec["name"])


def _add_earlier_defaults(spec: Any) -> Any:
    """Return a stored spec table, completed with earlier versions' defaults for the hyperparameters that it
    lacks.

    Wrapped policies are completed, too. A spec that is no table, or names a policy outside of tacit, is
    returned as it is.
    """
    if not isinstance(spec, dict) or ":" in spec.get("name", ":"):
        return spec
    completed = dict(policy_class(spec["name"]).earlier) | spec
    if "policy" in spec:
        completed["policy"] = _add_earlier_defaults(spec["policy"])
    return completed


def _recommend(positional: list[Any], named: dict[str, Any], arms: Any, setting: Setting) -> Policy:
    """Return the policy that ``auto`` recommends for the named arguments of a spec, completed by ``setting``.

    ``arms`` are ignored if arms are known by features. Raises InvalidValue for positional or unknown
    arguments.
    """
    takes = list(read_signature(auto).parameters)
    surplus = [*positional, *(name for name in named if name not in takes)]
    if surplus:
        raise InvalidValue(AUTO, surplus[0], f"it takes, by name, {', '.join(takes)}")
    options = {**setting, **named}
    if options.get("relevance_dim") or options.get("examination_dim"):
        arms = None
    return auto(**{"arms": arms, **options})


def _find_dims(kind: type[Policy], positional: list[Any], setting: Setting) -> dict[str, Any]:
    """Return the dimensions and the context schema in ``setting`` that a policy class takes, as its
    arguments.

    Fields that a positional argument of the spec fills are left out.
    """
    names = {"dim": "relevance_dim"} | {name: name for name in ("relevance_dim", "examination_dim")}
    takes = [field.name for field in fields(kind) if field.init and field.name not in NEVER_POSITIONAL]
    if "context" in takes or "relevance_dim" in takes:
        names |= {"context": "context", "context_dim": "context_dim"}
    free = takes[len(positional) :]
    return {name: setting[ours] for name, ours in names.items() if setting.get(ours) and name in free}


def reads_features(spec: str) -> str | None:
    """Return the name of the policy in a spec if it knows arms by features; else None.

    Examples
    --------
    >>> reads_features("lin-ucb"), reads_features("thompson"), reads_features("auto")
    ('LinUCB', None, None)
    """
    name, _, _ = parse_call(spec)
    if canonical_name(name) == AUTO:
        return None
    kind = policy_class(name)
    takes = {field.name for field in fields(kind)}
    return kind.__name__ if takes & {"dim", "relevance_dim", "examination_dim"} else None


def _match_arguments(
    policy: type[Policy], positional: list[Any], named: dict[str, Any], arms: Any
) -> dict[str, Any]:
    """Return a spec's arguments by field name, and ``arms`` if the spec has none.

    Warns (AssumptionWarning) if the first positional number looks like a number of arms but is another field.
    Raises InvalidValue if the policy needs arms and there are none.
    """
    # Text names no arms by position: a first bare number would be read as the arms by mistake.
    defaults = {field.name: field.default for field in fields(policy) if field.init}
    order = [name for name in defaults if name not in NEVER_POSITIONAL]
    arguments, first = match_arguments(policy, order, positional, named), next(iter(positional), None)
    if type(first) is int and first > 1 and "arms" in defaults and isinstance(defaults[order[0]], float):
        what = f"{policy.__name__}: {first} is its {order[0]}, as arms are given elsewhere"
        warnings.warn(f"{what}; give {order[0]} by name, or leave it out", AssumptionWarning, stacklevel=3)
    if "policy" not in arguments and "arms" in defaults and arguments.setdefault("arms", arms) is None:
        raise InvalidValue("arms", None, "say the number of arms or their names")
    return arguments


def _to_plain(value: Any) -> Any:
    """Return a policy, classifier or reward range as a plain table or list; any other value as it is."""
    if isinstance(value, Policy):
        return policy_to_spec(value)
    if isinstance(value, RewardRange):
        return None if value.low is None else list(value)
    if is_dataclass(value):
        from tacit.classifiers.base import classifier_to_spec

        return classifier_to_spec(value)  # type: ignore[arg-type]
    return value


def policy_to_spec(policy: Policy) -> dict[str, Any]:
    """Return a policy as a plain table of numbers, strings and tables.

    Examples
    --------
    >>> import tacit
    >>> policy_to_spec(tacit.EpsilonGreedy(arms=3))
    {'name': 'EpsilonGreedy', 'arms': 3, 'epsilon': 0.1}
    """
    spec: dict[str, Any] = {"name": type(policy).__name__}
    if any(field.name == "arms" and field.init for field in fields(policy)):
        spec["arms"] = policy.arms if isinstance(policy.arms, int) else list(policy.arms)
    for field in fields(policy):
        value = getattr(policy, field.name)
        # Fields added in later versions are omitted at their default, so that older specs stay equal, unless
        # an older spec has another default.
        is_later = field.metadata.get("later") and field.name not in policy.earlier
        if field.name != "arms" and not (is_later and value == field.default):
            spec[field.name] = _to_plain(value)
    return spec


def is_compatible(configured: Policy, before: Policy) -> bool:
    """True if the configured policy can continue with the state of the policy ``before``.

    They must be equal, except that ``before`` may have the default of an earlier version where the configured
    policy has today's, and the configured policy may have priors of fewer arms.

    Examples
    --------
    >>> from tacit.policies.baselines import GLRKLUCB
    >>> is_compatible(GLRKLUCB(3), GLRKLUCB(3, alpha=0.02))   # the default of version 0.1
    True
    >>> is_compatible(GLRKLUCB(3), GLRKLUCB(3, alpha=0.03))
    False
    """
    if type(configured) is not type(before):
        return False
    for field in fields(configured):
        now, then = getattr(configured, field.name), getattr(before, field.name)
        if isinstance(now, Policy) and isinstance(then, Policy):
            same = is_compatible(now, then)
        else:
            was_default = field.name in configured.earlier and then == configured.earlier[field.name]
            same = now == then or (was_default and now == field.default)
            # Arms whose prior was removed have already begun with it.
            same = same or (field.name == "priors" and set(now) <= set(then))
        if not same:
            return False
    return True
