"""A trial of a policy: what a check found, and the same impressions and feedback in every test."""

# 1. ``Finding``, ``PolicyCheck``: what a check found, as table and text.
# 2. ``Trial``: impressions and feedback that are the same in every test, by the number of a round.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints, leaves
from tacit.core.text import Tabulated, left_aligned
from tacit.learning.decisions import Decision
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES, Impression, Policy

# ---- What a check of a policy found

MARKS = {True: "ok", False: "FAILED", None: "–"}


class Finding(NamedTuple):
    """What one test found.

    Attributes
    ----------
    name : str
    passed : bool or None
        None where there was nothing to test.
    detail : str
        What was tested, or why it failed, or why it was left out.
    """

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, repr=False)
class PolicyCheck(Tabulated):
    """What a check of a policy found.

    Attributes
    ----------
    policy : str
        Its label.
    verdicts : tuple of Finding
    """

    policy: str
    verdicts: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no test failed."""
        return all(verdict.passed is not False for verdict in self.verdicts)

    @property
    def failures(self) -> list[Finding]:
        """The tests that failed."""
        return [verdict for verdict in self.verdicts if verdict.passed is False]

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per test."""
        return [verdict._asdict() for verdict in self.verdicts]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"policy": self.policy, "passed": self.passed, "tests": self.records()}

    def summary(self) -> str:
        """Return an aligned table of what passed and what failed, with the reasons."""
        rows = [(MARKS[passed], name, detail) for name, passed, detail in self.verdicts]
        failed = len(self.failures)
        end = f"{failed} of {len(rows)} tests failed" if failed else "nothing failed"
        return f"{self.policy}\n{left_aligned(rows)}\n{end}"

    def __str__(self) -> str:
        return self.summary()


# ---- Impressions and feedback for a policy under test, the same in every round of every test

OFFERED = 4
"""Arms on offer to a policy that knows arms by their features."""


class Failed(Exception):
    """A test failed; the text says why."""


class LeftOut(Exception):
    """There is nothing to test; the text says why."""


class Given(NamedTuple):
    """One impression, and what each arm would get for it."""

    context: Floats
    relevance: Floats
    examination: Floats
    chances: Floats

    @property
    def arguments(self) -> dict[str, Any]:
        """What a learner is given."""
        named = {"context": self.context, "relevance": self.relevance, "examination": self.examination}
        return {name: array for name, array in named.items() if array.size}


@dataclass(frozen=True)
class Trial:
    """A policy under test.

    Attributes
    ----------
    policy : Policy
    seed : int
    rounds : int
        How many are played before something is looked at.
    draws : int
        How many choices are compared with their propensity.
    error : float
        With what probability a policy fails a test of frequencies though it is right.
    """

    policy: Policy
    seed: int
    rounds: int
    draws: int
    error: float

    @property
    def arms(self) -> int:
        """How many arms are on offer."""
        return self.policy.arm_count if self.slotted else OFFERED

    @property
    def slotted(self) -> bool:
        """Whether arms have slots of their own."""
        return self.policy.arms is not None

    @property
    def tells_all(self) -> bool:
        """Whether arms have slots, and the policy shows one."""
        return self.policy.showing.single and self.policy.feature_dims == (0, 0)

    def given(self, round: int) -> Given:
        """Return the impression of a round."""
        rng = np.random.default_rng([self.seed, round])
        context = rng.random(self.policy.context_dim)
        relevance, examination = (
            rng.standard_normal((self.arms, dim)) if dim else NO_FEATURES for dim in self.policy.feature_dims
        )
        return Given(context, relevance, examination, rng.random(self.arms))

    def impression(self, round: int) -> Impression:
        """Return the impression of a round, as kernels see it."""
        given = self.given(round)
        return Impression(np.arange(self.arms), *given[:3])

    def rewards(self, round: int, slots: Ints) -> Any:
        """Return what comes back for what was shown in a round."""
        means = np.linspace(0.2, 0.8, self.arms)
        hits = (self.given(round).chances < means).astype(float)
        if self.policy.showing.compared:
            left, right = slots.tolist()
            return 0.5 if hits[left] == hits[right] else float(hits[left])
        if self.policy.showing.listed:
            return [float(hits[slot]) if slot >= 0 else 0.0 for slot in slots.tolist()]
        return float(hits[int(slots[0])])

    def learner(self, seed: int = 0) -> Learner:
        """Return a learner that has seen nothing."""
        return Learner(self.policy, np.random.SeedSequence([self.seed, seed]))

    def choose(self, learner: Learner, key: str, round: int) -> Decision:
        """Let a learner choose for the impression of a round."""
        return learner.choose(key, **self.given(round).arguments)

    def play(self, learner: Learner, key: str, rounds: range) -> list[Decision]:
        """Let a learner play rounds of a key; return its decisions."""
        made = []
        for round in rounds:
            decision = self.choose(learner, key, round)
            learner.learn(decision, self.rewards(round, decision.slots))
            made.append(decision)
        return made


def drawing(learner: Learner, *numbers: int) -> None:
    """Let the next draws of a learner follow from numbers alone."""
    bits = np.random.PCG64(np.random.SeedSequence(numbers))
    learner.rng.bit_generator.state = bits.state


def plain_generator(seed: int) -> Generator:
    """Return the generator that :meth:`Trial.learner` draws from."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0])))


def same_states(state: Any, expected: Any, said: str) -> None:
    """Fail if two states are not the same, bit for bit."""
    for (name, mine), (_, its) in zip(leaves(state), leaves(expected), strict=True):
        if mine.tobytes() != its.tobytes():
            raise Failed(f"{name}: {said}")
