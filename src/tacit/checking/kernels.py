"""Tests of a policy's kernels: arms on offer, randomness, propensities, independence of lanes, snapshots."""

# 1. ``PolicyCheck``: the result of a check; ``Trial``: impressions and feedback by the number of a round,
#    the same in every test.
# 2. In plain Python, which detects indices out of bounds as compiled code does not; then compiled, with the
#    same result.
# 3. Randomness: all draws come from the generator; propensities equal frequencies; ties are broken at random.
# 4. Lanes learn independently; unlearning and snapshots restore the state.

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints, copy_state, lane_rows, leaves
from tacit.core.dispatch import decide, find_kernel, learned_propensity, observe, propensity, shown_in
from tacit.core.run_mode import compile_loop, compiles_loops
from tacit.core.text import Tabulated, align_left
from tacit.errors import InvalidValue
from tacit.learning.batch import Batch, get_impression
from tacit.learning.decisions import Decision
from tacit.learning.learner import Learner
from tacit.policies.base import NO_FEATURES, Impression, Policy, decide_arm, is_correctable, make_outcome

# ---- The result of a check

PASSED_TEXT = {True: "ok", False: "FAILED", None: "–"}


class Finding(NamedTuple):
    """The result of one test of a policy.

    Attributes
    ----------
    name : str
    passed : bool or None
        None if the test does not apply.
    detail : str
        The subject of the test, or the reason why it failed or was left out.
    """

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, repr=False)
class PolicyCheck(Tabulated):
    """The result of a check of a policy.

    Attributes
    ----------
    policy : str
        The policy's label.
    verdicts : tuple of Finding
    """

    policy: str
    verdicts: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """True if no test failed; tests that do not apply do not count."""
        return all(verdict.passed is not False for verdict in self.verdicts)

    @property
    def failures(self) -> list[Finding]:
        """The tests that failed."""
        return [verdict for verdict in self.verdicts if verdict.passed is False]

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per test: ``name``, ``passed`` and ``detail``."""
        return [verdict._asdict() for verdict in self.verdicts]

    def as_dict(self) -> dict[str, Any]:
        """Return the policy's label, whether all passed, and the tests, as plain data for JSON."""
        return {"policy": self.policy, "passed": self.passed, "tests": self.records()}

    def summary(self) -> str:
        """Return the policy's label, an aligned table of the tests with results and details, and the number
        of failures.
        """
        rows = [(PASSED_TEXT[passed], name, detail) for name, passed, detail in self.verdicts]
        failed = len(self.failures)
        end = f"{failed} of {len(rows)} tests failed" if failed else "nothing failed"
        return f"{self.policy}\n{align_left(rows)}\n{end}"


# ---- Impressions and feedback for a policy under test; each round is the same in every test

OFFERED_ARMS = 4
"""Number of arms on offer to a policy that identifies arms by their features."""


class Failed(Exception):
    """A test failed; the text says why."""


class LeftOut(Exception):
    """A test does not apply; the text says why."""


class TrialImpression(NamedTuple):
    """One impression, and a uniform number for each arm that determines its click."""

    context: Floats
    relevance: Floats
    examination: Floats
    chances: Floats

    @property
    def arguments(self) -> dict[str, Any]:
        """A dict of the arguments of ``Learner.choose`` for this impression, without empty ones."""
        named = {"context": self.context, "relevance": self.relevance, "examination": self.examination}
        return {name: array for name, array in named.items() if array.size}


@dataclass(frozen=True)
class Trial:
    """A policy under test, with the impressions and rewards of its rounds.

    Attributes
    ----------
    policy : Policy
    seed : int
    rounds : int
        Number of rounds played before a comparison.
    draws : int
        Number of choices whose frequencies are compared with propensities.
    error : float
        Probability that a correct policy fails a test of frequencies.
    """

    policy: Policy
    seed: int
    rounds: int
    draws: int
    error: float

    @property
    def arms(self) -> int:
        """Number of arms on offer; 4 if the policy identifies arms by their features."""
        return self.policy.arm_count if self.has_fixed_arms else OFFERED_ARMS

    @property
    def has_fixed_arms(self) -> bool:
        """True if the policy has fixed arms, instead of identifying arms by their features."""
        return self.policy.arms is not None

    @property
    def shows_fixed_arm(self) -> bool:
        """True if the policy shows one arm, reads no features of arms, and so knows arms by name."""
        return self.policy.showing.single and self.policy.feature_dims == (0, 0)

    def make_impression(self, round: int) -> TrialImpression:
        """Return the impression of a round: random, but determined by the trial's seed and ``round``."""
        rng = np.random.default_rng([self.seed, round])
        context = rng.random(self.policy.context_dim)
        relevance, examination = (
            rng.standard_normal((self.arms, dim)) if dim else NO_FEATURES for dim in self.policy.feature_dims
        )
        return TrialImpression(context, relevance, examination, rng.random(self.arms))

    def make_kernel_impression(self, round: int) -> Impression:
        """Return the impression of a round in the form that kernels take."""
        return Impression(np.arange(self.arms), *self.make_impression(round)[:3])

    def compute_reward(self, round: int, slots: Ints) -> Any:
        """Return the reward of showing the arm indices ``slots`` in a round; for lists, a reward for each
        position.

        It is determined by the trial's seed, the round and the arms. Of a duel it is 0, 0.5 or 1.
        """
        means = np.linspace(0.2, 0.8, self.arms)
        hits = (self.make_impression(round).chances < means).astype(float)
        if self.policy.showing.compared:
            left_index, right_index = slots.tolist()
            return 0.5 if hits[left_index] == hits[right_index] else float(hits[left_index])
        if self.policy.showing.listed:
            return [float(hits[slot]) if slot >= 0 else 0.0 for slot in slots.tolist()]
        return float(hits[int(slots[0])])

    def make_learner(self, seed: int = 0) -> Learner:
        """Return a new learner of the policy with a seed derived from the trial's and ``seed``."""
        return Learner(self.policy, np.random.SeedSequence([self.seed, seed]))

    def choose(self, learner: Learner, key: str, round: int) -> Decision:
        """Choose with a learner for the impression of a round; return the decision, which is not learned."""
        return learner.choose(key, **self.make_impression(round).arguments)

    def play(self, learner: Learner, key: str, rounds: range) -> list[Decision]:
        """Choose and learn in rounds of a key, with the trial's impressions and rewards; return the
        decisions.
        """
        decisions = []
        for round in rounds:
            decision = self.choose(learner, key, round)
            learner.learn(decision, self.compute_reward(round, decision.slots))
            decisions.append(decision)
        return decisions


def seed_learner(learner: Learner, *numbers: int) -> None:
    """Reset the state of a learner's random generator to the one seeded by ``numbers``."""
    learner.rng.bit_generator.state = np.random.PCG64(np.random.SeedSequence(numbers)).state


def make_plain_generator(seed: int) -> Generator:
    """Return a random generator in the state of a new learner of :meth:`Trial.make_learner`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0])))


def check_same_states(state: Any, expected: Any, message: str) -> None:
    """Raise ``Failed`` if an array of two states differs in any bit; the error has the array's name and
    ``message``.
    """
    for (name, array), (_, expected_array) in zip(leaves(state), leaves(expected), strict=True):
        if array.tobytes() != expected_array.tobytes():
            raise Failed(f"{name}: {message}")


PLAIN_ROUNDS = 60
TOLERANCES = {"rtol": 1e-6, "atol": 1e-8}


# In plain Python ------------------------------------------------------------------------------


def check_python(trial: Trial) -> str:
    """Test that kernels run in plain Python, where an index out of bounds raises; return a line for the
    report.

    Raises ``Failed`` or, after a division by zero, ``LeftOut``.
    """
    _play_plain(trial)
    return f"{PLAIN_ROUNDS} rounds in plain Python: every slot was on offer, no index out of bounds"


def _play_plain(trial: Trial) -> tuple[list[list[int]], Any]:
    """Play 60 rounds in plain Python; return the arm indices shown in each round, and the final state.

    Raises ``Failed``, with the policy's line, if a kernel raises; ``LeftOut`` after a division by zero.
    """
    policy, params = trial.policy, trial.policy.params
    lane_rows(policy.init)  # raises unless each lane has as many rows
    state, rng, actions = policy.init(1), make_plain_generator(trial.seed), []
    action = np.zeros(policy.action_width, np.int64)
    for round in range(PLAIN_ROUNDS):
        impression = trial.make_kernel_impression(round)
        with np.errstate(all="ignore"):
            try:
                observe(params, state, 0, impression)
                slots = _decide_plain(trial, state, impression, rng, action)
                chance = learned_propensity(params, state, 0, impression, shown_in(params, action))
                feedback = np.atleast_1d(np.asarray(trial.compute_reward(round, slots), float))
                policy.learn(params, state, 0, make_outcome(params, impression, slots, feedback, chance))
            except (IndexError, TypeError, AttributeError, NameError, ValueError) as error:
                hint = "; make it a @staticmethod, without self" * ("positional argument" in str(error))
                last = traceback.extract_tb(error.__traceback__)[-1]
                raise Failed(f"{last.filename}:{last.lineno}: {last.name}: {error}{hint}") from error
            except ZeroDivisionError as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                problem = f"{last.filename}:{last.lineno} divides by zero, which gives inf when compiled"
                raise LeftOut(problem) from error
        actions.append(slots.tolist())
    return actions, state


def _decide_plain(trial: Trial, state: Any, impression: Impression, rng: Generator, action: Ints) -> Ints:
    """Decide in plain Python and return a copy of the action; raise ``Failed`` if it is not on offer."""
    policy, params = trial.policy, trial.policy.params
    # The common kernel would write what ``choose`` returns into an array, which hides its type.
    if policy.showing.single and find_kernel(policy, decide) is decide_arm:
        slot = policy.choose(params, state, 0, impression, rng)
        if isinstance(slot, bool) or not isinstance(slot, int | np.integer):
            raise Failed(f"choose returns {slot!r}; return the slot of an arm, an int")
        action[0] = slot
    else:
        decide(params, state, 0, impression, rng, action)
    allowed = set(impression.arms.tolist()) | ({-1} if policy.showing.listed else set())
    invalid = [slot for slot in action.tolist() if slot not in allowed]
    if invalid:
        raise Failed(f"it shows the slot {invalid[0]}; on offer are {impression.arms.tolist()}")
    indices = [slot for slot in action.tolist() if slot >= 0]
    if policy.showing.listed and len(set(indices)) < len(indices):
        raise Failed(f"it shows an arm twice in a list: {indices}")
    return action.copy()


def check_compilation(trial: Trial) -> str:
    """Test that the loops for choosing and learning compile; return a line for the report.

    Raises ``LeftOut`` if compilation is switched off.
    """
    if not compiles_loops():
        raise LeftOut("TACIT_COMPILE=0: nothing is compiled")
    trial.make_learner().compile()
    return "choose and learn"


def check_compiled(trial: Trial) -> str:
    """Test that compiled kernels make the same choices and state as plain Python; return a line for the
    report.

    Raises ``Failed`` otherwise.
    """
    actions, state = _play_plain(trial)
    learner = trial.make_learner()
    for round, expected in enumerate(actions):
        decision = trial.choose(learner, "a", round)
        if decision.slots.tolist() != expected:
            raise Failed(f"round {round}: compiled it shows {decision.slots.tolist()}, in Python {expected}")
        learner.learn(decision, trial.compute_reward(round, decision.slots))
    for (name, plain), (_, array) in zip(leaves(state), leaves(learner.lanes.view_all()), strict=True):
        if not np.allclose(plain, array, equal_nan=True, **TOLERANCES):
            raise Failed(f"{name}: after {PLAIN_ROUNDS} rounds it differs from plain Python's")
    return f"{PLAIN_ROUNDS} rounds: the same choices, the same state to rounding"


def check_subsets(trial: Trial) -> str:
    """Test that the policy shows only arms on offer when some are not on offer; return a line for the report.

    Raises ``Failed`` otherwise, ``LeftOut`` if the policy reads features or has fewer than three arms.
    """
    policy = trial.policy
    if policy.feature_dims != (0, 0) or trial.arms < 3:
        raise LeftOut("arms are known by features" if not trial.has_fixed_arms else "too few arms")
    learner = trial.make_learner()
    names = learner.arms
    rng = np.random.default_rng(trial.seed)
    for round in range(trial.rounds):
        offer = [names[slot] for slot in rng.permutation(trial.arms)[: 2 + round % 2]]
        decision = learner.choose("a", arms=offer, **trial.make_impression(round).arguments)
        if not set(decision.shown) <= set(offer):
            raise Failed(f"it shows {list(decision.shown)}, of which not all are in {offer}")
        learner.learn(decision, trial.compute_reward(round, decision.slots))
    return "some of the arms on offer: nothing else is shown"


def check_new_arms(trial: Trial) -> str:
    """Test that an arm can be added to a learner in use, and that no array shrinks; return a line for the
    report.

    Raises ``Failed`` otherwise, ``LeftOut`` if the policy reads features or takes no more arms.
    """
    if trial.policy.feature_dims != (0, 0):
        raise LeftOut("arms are known by features")
    learner = trial.make_learner()
    trial.play(learner, "a", range(10))
    arrays_before = [array.copy() for _, array in leaves(learner.lanes.view_all())]
    try:
        learner.add_arms(1 if isinstance(trial.policy.arms, int) else ["one more"])
    except InvalidValue as why:
        raise LeftOut(f"it takes no other number of arms: {why}") from None
    for (name, grown), old_array in zip(leaves(learner.lanes.view_all()), arrays_before, strict=True):
        if grown.ndim != old_array.ndim or any(
            new < old for new, old in zip(grown.shape, old_array.shape, strict=True)
        ):
            raise Failed(f"{name}: {old_array.shape} becomes {grown.shape} with one more arm")
    learner.choose("a", **trial.make_impression(10).arguments)
    return "an arm comes while it learns"


# Randomness -----------------------------------------------------------------------------------


def check_seed(trial: Trial) -> str:
    """Test that two runs with the same seed make the same decisions and states; return a line for the report.

    Raises ``Failed`` otherwise.
    """
    learner, again = trial.make_learner(), trial.make_learner()
    first = trial.play(learner, "a", range(trial.rounds))
    second = trial.play(again, "a", range(trial.rounds))
    for round, (mine, its) in enumerate(zip(first, second, strict=True)):
        if mine.slots.tolist() != its.slots.tolist():
            raise Failed(
                f"round {round}: the same seed shows {list(mine.shown)} and {list(its.shown)}; "
                "take all chance from rng"
            )
    check_same_states(learner.lanes.view_all(), again.lanes.view_all(), "differs with the same seed")
    return "the same seed, the same decisions and states"


def draw_actions(
    params: Any, state: Any, batch: Batch, rng: Generator, actions: Ints, queries: Ints, chances: Floats
) -> None:
    """Fill ``actions`` with independent decisions on a batch's first impression; the policy learns nothing.

    ``chances`` gets the propensity of each action in ``queries``.
    """
    lane, impression = batch.lanes[0], get_impression(batch, 0)
    for i in range(len(actions)):
        decide(params, state, lane, impression, rng, actions[i])
    for i in range(len(queries)):
        chances[i] = propensity(params, state, lane, impression, shown_in(params, queries[i]))


def _iter_states(trial: Trial) -> Iterator[tuple[Learner, Batch, str]]:
    """Yield a learner after 0, 10 and all rounds, each time with an impression as a batch of one, and a text
    for errors.
    """
    learner, played = trial.make_learner(), 0
    for rounds in (0, 10, trial.rounds):
        trial.play(learner, "a", range(played, rounds))
        played = rounds
        # Not an impression of a round that is played.
        arguments = trial.make_impression(10_000 + rounds).arguments
        columns: dict[str, Any] = {_name_in_batch(name): [array] for name, array in arguments.items()}
        batch = learner.choose_many(["a"], **columns).batch
        yield learner, batch, f"after {rounds} rounds"


def _sample_actions(
    trial: Trial, learner: Learner, batch: Batch, stream: int = 1
) -> tuple[Ints, Ints, Floats]:
    """Draw many decisions on one impression; return the distinct actions, their counts and propensities.

    For a policy that shows one arm, all arms are returned. Raises ``Failed`` if deciding changes the state.
    ``stream`` selects the random numbers.
    """
    params, state = trial.policy.params, learner.state
    loop, rng = compile_loop(draw_actions, params), np.random.default_rng([trial.seed, stream])
    actions = np.zeros((trial.draws, trial.policy.action_width), np.int64)
    before = copy_state(state)
    # First draws without queries, then queries without draws.
    loop(params, state, batch, rng, actions, actions[:0], np.empty(0))
    if not trial.policy.remembers:
        check_same_states(state, before, "choose writes it; only learn and observe may")
    actions_shown, counts = np.unique(actions, axis=0, return_counts=True)
    if trial.policy.showing.single:
        actions_shown = np.arange(trial.arms)[:, None]
        counts = np.bincount(actions[:, 0], minlength=trial.arms)
    chances = np.empty(len(actions_shown))
    loop(params, state, batch, rng, actions[:0], actions_shown, chances)
    return actions_shown, counts, chances


def check_propensities(trial: Trial) -> str:
    """Test that propensities equal the frequencies of actions, in three states; return a line for the report.

    Raises ``Failed`` otherwise, ``LeftOut`` if propensities are unknown.
    """
    compared = worst = 0.0
    for learner, batch, when in _iter_states(trial):
        actions, counts, chances = _sample_actions(trial, learner, batch)
        if np.isnan(chances).any():
            raise LeftOut("propensities are not known: decisions carry none")
        if ((chances < 0) | (chances > 1 + 1e-9)).any():
            raise Failed(f"{when}: {float(chances.max()):g} is no probability")
        if trial.shows_fixed_arm and abs(chances.sum() - 1) > 1e-6:
            raise Failed(f"{when}: the propensities of all arms add up to {chances.sum():.6g}")
        # Chernoff's bound, for deviations to both sides of each action in the three states together.
        limit = log(2 * 3 * len(actions) / trial.error)
        for action, count, chance in zip(actions.tolist(), counts.tolist(), chances, strict=True):
            share = count / trial.draws
            if trial.draws * _compute_divergence(share, min(1.0, float(chance))) > limit:
                action = action[0] if len(action) == 1 else action
                raise Failed(
                    f"{when}: {action} was shown in {share:.4f} of {trial.draws:,} draws; its "
                    f"propensity says {chance:.4f}"
                )
            worst = max(worst, abs(share - float(chance)))
        compared += len(actions)
    return (
        f"{compared:.0f} compared over {trial.draws:,} draws, at most {worst:.4f} apart; "
        f"errs with probability {trial.error:g} at most"
    )


def _compute_divergence(share: float, chance: float) -> float:
    """Return the divergence KL(share‖chance) of two Bernoulli distributions; inf if ``chance`` rules out
    ``share``.

    If ``share`` is the frequency in N draws, P(N·KL(share‖chance) > x) ≤ 2·exp(−x) (Chernoff's bound, both
    sides).
    """
    parts = ((share, chance), (1 - share, 1 - chance))
    if any(p > 0 and q <= 0 for p, q in parts):
        return inf
    return sum(p * log(p / q) for p, q in parts if p > 0)


def check_ties(trial: Trial) -> str:
    """Test that new keys are shown each arm equally often; return a line for the report.

    Raises ``Failed`` otherwise, ``LeftOut`` for policies with features, with lists, or that begin in turn.
    """
    if trial.policy.feature_dims != (0, 0) or trial.policy.showing.listed:
        raise LeftOut("only where a policy shows arms that have slots, not in lists")
    if trial.policy.begins_in_turn:
        raise LeftOut("it shows arms in their order at first, as it says")
    learner, batch, _ = next(_iter_states(trial))  # after 0 rounds
    counts = np.zeros(trial.arms, np.int64)
    actions, repeats, _ = _sample_actions(trial, learner, batch, stream=2)
    np.add.at(counts, actions[:, 0], repeats)
    limit = log(2 * trial.arms / trial.error)
    for slot, count in enumerate(counts.tolist()):
        if trial.draws * _compute_divergence(count / trial.draws, 1 / trial.arms) > limit:
            raise Failed(
                f"a key that knows nothing is shown arm {slot} first in {count / trial.draws:.4f} "
                f"of {trial.draws:,} draws, not in {1 / trial.arms:.4f}; break ties at random, as "
                "tacit.policies.IndexPolicy does"
            )
    return f"keys that know nothing begin with each arm alike; errs with probability {trial.error:g}"


# Lanes ----------------------------------------------------------------------------------------


def check_lanes(trial: Trial) -> str:
    """Test that a key's decisions and state do not depend on other keys; return a line for the report.

    Raises ``Failed`` otherwise. If keys share arrays, only the rows of the key's own lane are tested.
    """
    alone, among = trial.make_learner(), trial.make_learner()
    rows = lane_rows(trial.policy.init)
    # Both learners have the same lanes from the start, but only one learns for the other keys.
    for learner in (alone, among):
        learner.choose_many(["b", "a", "c"], **_repeat_impression(trial))
    for round in range(trial.rounds):
        for number, key in enumerate("bc"):
            seed_learner(among, trial.seed, round, number)
            decision = trial.choose(among, key, round + 1)
            _learn_checked(trial, among, decision, key, round + 1, rows)
        decisions = []
        for learner in (alone, among):
            seed_learner(learner, trial.seed, round, 9)  # not a number of another key
            decision = trial.choose(learner, "a", round)
            _learn_checked(trial, learner, decision, "a", round, rows)
            decisions.append(decision)
        # An array with 0 rows per lane is shared by all keys.
        if 0 not in rows and decisions[0].slots.tolist() != decisions[1].slots.tolist():
            raise Failed(f"round {round}: what a key is shown depends on what others learned")
    if 0 in rows:
        return "a lane's rows are its own; some arrays all keys share, as their axis of 1 says"
    mine = alone.lanes.view(alone.lane("a"))
    check_same_states(mine, among.lanes.view(among.lane("a")), "depends on other keys")
    return "a key among others decides and learns as alone"


def _repeat_impression(trial: Trial) -> dict[str, Any]:
    """Return the first impression three times, as arguments of ``choose_many``."""
    arguments = trial.make_impression(0).arguments
    return {_name_in_batch(name): np.array([array] * 3) for name, array in arguments.items()}


def _name_in_batch(name: str) -> str:
    """Return the name that an argument of ``choose`` has in ``choose_many``: "contexts" for "context", else
    the same.
    """
    return "contexts" if name == "context" else name


def _learn_checked(
    trial: Trial, learner: Learner, decision: Any, key: str, round: int, rows: list[int]
) -> None:
    """Learn the reward of a decision on ``key``; raise ``Failed`` if rows of another lane change."""
    lane = learner.lane(key)
    before = [array.copy() for _, array in leaves(learner.state)]
    learner.learn(decision, trial.compute_reward(round, decision.slots))
    for (name, new_array), old_array, row_count in zip(leaves(learner.state), before, rows, strict=True):
        if not row_count:  # shared by all keys
            continue
        # With the rows of its own lane as they were, nothing may differ.
        new_array = new_array.copy()
        new_array[lane * row_count : (lane + 1) * row_count] = old_array[
            lane * row_count : (lane + 1) * row_count
        ]
        if new_array.tobytes() != old_array.tobytes():
            raise Failed(f"{name}: learning for one key changes the row of another")


# Unlearning and snapshots ---------------------------------------------------------------------


def check_unlearning(trial: Trial) -> str:
    """Test that correcting wrong rewards gives the state of learning the right ones; return a line for the
    report.

    Raises ``Failed`` otherwise, ``LeftOut`` if the policy cannot unlearn.
    """
    if not is_correctable(trial.policy):
        raise LeftOut("it has no unlearn")
    decisions = trial.play(trial.make_learner(), "a", range(trial.rounds))
    corrected, direct = trial.make_learner(), trial.make_learner()
    rewards = [float(trial.compute_reward(round, d.slots)) for round, d in enumerate(decisions)]
    for fresh_learner in (corrected, direct):
        fresh_learner.observe_decisions(decisions)
    corrected.learn_many(decisions, [1 - reward for reward in rewards])
    corrected.correct_many(decisions, [1 - reward for reward in rewards], rewards)
    direct.learn_many(decisions, rewards)
    for (name, mine), (_, its) in zip(
        leaves(corrected.lanes.view_all()), leaves(direct.lanes.view_all()), strict=True
    ):
        if not np.allclose(mine, its, equal_nan=True, **TOLERANCES):
            raise Failed(f"{name}: unlearn does not take out what learn has put in")
    return "unlearn takes out what learn has put in"


def check_snapshot(trial: Trial) -> str:
    """Test that a loaded learner continues exactly as the saved one; return a line for the report.

    Raises ``Failed`` otherwise. Uses a temporary file.
    """
    learner = trial.make_learner()
    trial.play(learner, "a", range(trial.rounds))
    trial.play(learner, "b", range(5))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.tacit"
        learner.save(path)
        loaded = Learner.load(path)
    check_same_states(learner.lanes.view_all(), loaded.lanes.view_all(), "is not what was saved")
    following = range(trial.rounds, 2 * trial.rounds)
    first, second = (trial.play(player, "a", following) for player in (learner, loaded))
    if [d.shown for d in first] != [d.shown for d in second]:
        raise Failed("from the snapshot it decides otherwise than without a stop")
    check_same_states(learner.lanes.view_all(), loaded.lanes.view_all(), "goes another way")
    return f"saved, loaded, {trial.rounds} rounds on: bit for bit as without a stop"
