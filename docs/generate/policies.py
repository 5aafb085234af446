"""The decision tables: what policies assume, as they say, and what they cost, as was measured.

``benchmarks/policies.py`` writes the measurements.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import tacit
from generate.tables import summary, table
from tacit.core.dispatch import list_parts
from tacit.environments import Environment
from tacit.environments.base import registry as environments
from tacit.policies import Policy
from tacit.policies.base import describe_propensities, registry

MEASURED = json.loads(Path(__file__).with_name("policies.json").read_text())
# It is loaded on first use only.
importlib.import_module("tacit.environments.interleaved_rankers")
SPACE = "\u00a0"
"""Keeps a number and its unit on one line."""
HEAD = [
    "policy", "assumes", "what goes wrong otherwise", "use then", "a round", "a key", "propensity",
]  # fmt: skip

GROUPS = ("stationary", "shifting", "duels", "features", "lists", "baselines")
"""The tables: rooms of ``tacit.policies``; what is in none of them stands in the first."""


def known() -> dict[str, type[Policy]]:
    """Return every policy of the package by its name."""
    return {kind.__name__: kind for kind in list_parts(registry, "policies")}


def group_of(policy: type[Policy]) -> str:
    """Return the table in which a policy stands."""
    room = policy.__module__.split(".")[2]
    return room if room in GROUPS else GROUPS[0]


def part(group: str) -> str:
    """Return the table of a group."""
    return table(HEAD, [row(kind) for kind in known().values() if group_of(kind) == group])


def row(policy: type[Policy]) -> list[str]:
    """Return what there is to know of a policy."""
    name, about = policy.__name__, policy.about
    link = f"[`{name}`](reference/python/policies.md#{public_path(policy)})"
    facts = MEASURED["policies"].get(name)
    measured = ["", ""]
    if facts is not None:
        time = facts["nanoseconds"]
        measured = [duration(time) if time else "", memory(facts["bytes"])]
    propensities = describe_propensities(policy.example())
    return [link, about.assumes, about.fails, about.otherwise, *measured, propensities]


def public_path(kind: type) -> str:
    """Return the dotted name by which users import a class of the package.

    Examples
    --------
    >>> from tacit.policies import BWC, LinUCB, baselines
    >>> [public_path(kind) for kind in (BWC, LinUCB, baselines.RUCB)]
    ['tacit.BWC', 'tacit.policies.LinUCB', 'tacit.policies.baselines.RUCB']
    """
    rooms = (tacit, tacit.policies, tacit.policies.baselines, tacit.environments)
    room = next((room for room in rooms if kind.__name__ in room.__all__), None)
    return f"{room.__name__ if room else kind.__module__}.{kind.__name__}"


def duration(nanoseconds: float) -> str:
    """Return a time in a unit that suits it.

    Examples
    --------
    >>> [duration(time).replace(SPACE, " ") for time in (35.0, 1200.0, 2.4e6)]
    ['35 ns', '1.2 µs', '2.4 ms']
    """
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:g}{SPACE}{unit}"
    return f"{nanoseconds:g}{SPACE}ns"


def memory(count: int) -> str:
    """Return a number of bytes in a unit that suits it.

    Examples
    --------
    >>> [memory(count).replace(SPACE, " ") for count in (88, 50_129)]
    ['88 B', '50 kB']
    """
    return f"{count}{SPACE}B" if count < 10_000 else f"{count / 1000:.0f}{SPACE}kB"


def settings() -> str:
    """Return the machine and the settings in which costs were measured."""
    machine = MEASURED["machine"]
    kinds: dict[str, list[str]] = {}
    for name, facts in MEASURED["policies"].items():
        kinds.setdefault(facts["setting"] or "nothing, so no time was measured", []).append(name)
    where = (
        f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores, Python "
        f"{machine['python']}, busy with other work; processor time, the least of three. "
        "Policies play"
    )
    lists = "\n".join(f"- {setting}: {', '.join(names)}" for setting, names in kinds.items())
    later = [
        f"{name} (beside {facts['beside']})"
        for name, facts in MEASURED["policies"].items()
        if "beside" in facts
    ]
    told = f"\n\nMeasured later, by the ratio to another one: {', '.join(later)}." if later else ""
    return f"{where}\n\n{lists}{told}"


def worlds() -> str:
    """Return every environment with the policies that it suits."""
    rows = [
        [
            f"[`{kind.__name__}`](reference/python/simulation.md#{public_path(kind)})",
            summary(kind),
            suited(kind),
        ]
        for kind in list_parts(environments, "environments")
    ]
    return table(["environment", "what it is", "for policies that show"], rows)


def suited(environment: type[Environment]) -> str:
    """Say which policies an environment suits."""
    by_features = environment.feature_dims is not Environment.feature_dims
    by_signals = environment.context_dim is not Environment.context_dim
    shown = {"arm": "one arm", "duel": "a duel", "slate": "a list"}[environment.takes]
    return shown + ", also by features" * by_features + ", also by signals" * by_signals
