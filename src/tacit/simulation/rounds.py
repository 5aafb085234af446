"""One simulated run of a policy in an environment: compiled loops with immediate or delayed feedback."""

# 1. ``play``: rounds with immediate feedback; ``play_delayed``: with pending feedback in ``InFlight``.
# 2. ``Run``: one run, advanced step by step. Each run has its own random streams, so results do not depend on
#    the distribution of runs over threads.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import (
    arrive,
    decide,
    epoch,
    kernel,
    learn,
    learned_propensity,
    observe,
    react,
    regret,
    shown_in,
)
from tacit.core.run_mode import compile_loop
from tacit.core.seeds import borrow_generator, write_back_generator
from tacit.environments.base import Environment
from tacit.policies.base import Impression, Policy, make_outcome


class Curve(NamedTuple):
    """The record of a run: totals so far, and copies of them at checkpoints.

    Attributes
    ----------
    total : array of float64, shape (2,)
        Regret and reward so far.
    rounds : array of int64, shape (checkpoints,)
    values : array of float64, shape (checkpoints, 2)
    position : array of int64, shape (1,)
        The next checkpoint.
    """

    total: Floats
    rounds: Ints
    values: Floats
    position: Ints


UNIT = np.array([0.0, 1.0])
"""The lowest reward and the width of the range of rewards in [0, 1]."""


class RoundBuffers(NamedTuple):
    """Buffers for the action and the feedback of a round.

    Attributes
    ----------
    action : array of int64, shape (action_width,)
    feedback : array of float64, shape (feedback_width,)
    unit : array of float64, shape (2,)
        The lowest reward and the width of the policy's range, by which feedback is scaled to be learned.
    """

    action: Ints
    feedback: Floats
    unit: Floats = UNIT


class InFlight(NamedTuple):
    """Decisions with pending feedback: a row per round and, per due round, a linked list of rows.

    Feedback takes fewer than ``len(lanes)`` rounds, so rounds modulo that length index both rows
    and due rounds without collision.

    Attributes
    ----------
    lanes, epochs : array of int64, shape (span,)
    actions : array of int64, shape (span, action_width)
    feedback : array of float64, shape (span, feedback_width)
    propensities : array of float64, shape (span,)
    offered : array of int64, shape (span, arms)
    counts : array of int64, shape (span,)
        Number of arms on offer.
    contexts : array of float64, shape (span, context_dim)
    relevance, examination : array of float64, shape (span, arms, d)
    first, last, next : array of int64, shape (span,)
        The linked lists; −1 marks an end.
    unit : array of float64, shape (2,)
        As in :class:`RoundBuffers`.
    """

    lanes: Ints
    epochs: Ints
    actions: Ints
    feedback: Floats
    propensities: Floats
    offered: Ints
    counts: Ints
    contexts: Floats
    relevance: Floats
    examination: Floats
    first: Ints
    last: Ints
    next: Ints
    unit: Floats

    @classmethod
    def empty(cls, span: int, round_buffers: RoundBuffers, impression: Impression) -> InFlight:
        """Return a store without decisions, for feedback that takes fewer than ``span`` rounds.

        Its arrays have the shapes of the buffers and of the impression.
        """

        def like(array: Any) -> Any:
            """Return zeros for ``span`` arrays of the shape and type of ``array``."""
            return np.zeros((span, *array.shape), array.dtype)

        lanes, epochs, counts, first, last, following = np.full((6, span), -1, np.int64)
        offered, *features = map(like, impression)
        buffers = like(round_buffers.action), like(round_buffers.feedback), np.zeros(span)
        lists = first, last, following, round_buffers.unit
        return cls(lanes, epochs, *buffers, offered, counts, *features, *lists)  # type: ignore[call-arg]


@kernel
def scale_feedback(feedback: Floats, unit: Floats) -> None:
    """Scale feedback, in place, from the policy's reward range to [0, 1]; ``unit`` is its lowest reward and
    its width.
    """
    if unit[0] != 0.0 or unit[1] != 1.0:
        for i in range(len(feedback)):
            feedback[i] = (feedback[i] - unit[0]) / unit[1]


@kernel
def record_round(curve: Curve, round: int, regret: float, feedback: Floats) -> None:
    """Add a round's regret and feedback to the totals of ``curve``, and copy the totals at a checkpoint."""
    curve.total[0] += regret
    for i in range(len(feedback)):
        curve.total[1] += feedback[i]
    position = curve.position[0]
    if position < len(curve.rounds) and curve.rounds[position] == round + 1:
        curve.values[position, 0] = curve.total[0]
        curve.values[position, 1] = curve.total[1]
        curve.position[0] += 1


def play(
    params: Any,
    state: Any,
    env: Any,
    world: Any,
    start: int,
    stop: int,
    rng: Generator,
    env_rng: Generator,
    curve: Curve,
    buffers: RoundBuffers,
) -> None:
    """Play rounds ``start`` to ``stop`` − 1; each is learned before the next begins.

    Updates ``state``, ``world`` and the curve, and draws from both generators.
    """
    impression = world.impression
    action, feedback = buffers.action, buffers.feedback
    policy_rng, users = borrow_generator(rng), borrow_generator(env_rng)
    for round in range(start, stop):
        lane = arrive(env, world, round, users)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, policy_rng, action)
        shown_arms = shown_in(params, action)
        propensity = learned_propensity(params, state, lane, impression, shown_arms)
        react(env, world, lane, shown_arms, feedback)
        record_round(curve, round, regret(env, world, lane, shown_arms), feedback)
        scale_feedback(feedback, buffers.unit)
        learn(params, state, lane, make_outcome(params, impression, action, feedback, propensity))
    write_back_generator(policy_rng, rng)
    write_back_generator(users, env_rng)


@kernel
def learn_row(params: Any, state: Any, flight: InFlight, row: int, feedback: Floats) -> None:
    """Learn feedback on the stored decision ``row`` into ``state``, unless its lane has restarted since."""
    lane = flight.lanes[row]
    if flight.epochs[row] != epoch(params, state, lane):
        return
    count = flight.counts[row]
    impression = Impression(
        flight.offered[row, :count],
        flight.contexts[row],
        flight.relevance[row, :count],
        flight.examination[row, :count],
    )
    action, propensity = flight.actions[row], flight.propensities[row]
    learn(params, state, lane, make_outcome(params, impression, action, feedback, propensity))


@kernel
def deliver(params: Any, state: Any, flight: InFlight, due: int) -> None:
    """Learn the feedback that arrives in the round of list ``due``, in the order of decisions, and clear the
    list.

    Decisions whose lane has restarted since are not learned.
    """
    row = flight.first[due]
    while row >= 0:
        learn_row(params, state, flight, row, flight.feedback[row])
        row = flight.next[row]
    flight.first[due] = -1


@kernel
def store_impression(flight: InFlight, row: int, impression: Impression) -> None:
    """Copy an impression to row ``row`` of ``flight``, as ``world`` reuses its arrays in the next round."""
    for a in range(len(impression.arms)):
        flight.offered[row, a] = impression.arms[a]
    for d in range(len(impression.context)):
        flight.contexts[row, d] = impression.context[d]
    for a in range(len(impression.relevance)):
        for d in range(impression.relevance.shape[1]):
            flight.relevance[row, a, d] = impression.relevance[a, d]
    for a in range(len(impression.examination)):
        for d in range(impression.examination.shape[1]):
            flight.examination[row, a, d] = impression.examination[a, d]


@kernel
def schedule_row(flight: InFlight, row: int, due: int) -> None:
    """Append row ``row`` of ``flight`` to the list of round ``due``, in which its feedback arrives."""
    flight.next[row] = -1
    if flight.first[due] < 0:
        flight.first[due] = row
    else:
        flight.next[flight.last[due]] = row
    flight.last[due] = row


def play_delayed(
    params: Any,
    state: Any,
    env: Any,
    world: Any,
    start: int,
    stop: int,
    rng: Generator,
    env_rng: Generator,
    curve: Curve,
    flight: InFlight,
    delay_rng: Generator,
    least: int,
    most: int,
    batch: int,
) -> None:
    """Play rounds ``start`` to ``stop`` − 1 with delayed feedback in batches.

    Delays are uniform from ``least`` to ``most`` rounds, and feedback arrives only before multiples of
    ``batch``. Updates ``state``, ``world``, the curve and the stored decisions, and draws from all three
    generators.
    """
    impression = world.impression
    span = len(flight.lanes)
    policy_rng, users, delays = borrow_generator(rng), borrow_generator(env_rng), borrow_generator(delay_rng)
    for round in range(start, stop):
        deliver(params, state, flight, round % span)
        lane = arrive(env, world, round, users)
        observe(params, state, lane, impression)
        row = round % span
        action, feedback = flight.actions[row], flight.feedback[row]
        decide(params, state, lane, impression, policy_rng, action)
        shown_arms = shown_in(params, action)
        flight.lanes[row] = lane
        flight.propensities[row] = learned_propensity(params, state, lane, impression, shown_arms)
        react(env, world, lane, shown_arms, feedback)
        flight.epochs[row] = epoch(params, state, lane)
        flight.counts[row] = len(impression.arms)
        store_impression(flight, row, impression)
        record_round(curve, round, regret(env, world, lane, shown_arms), feedback)
        scale_feedback(feedback, flight.unit)
        delay = least + int(delays.random() * (most - least + 1))
        # The first multiple of ``batch`` after the delay.
        due = (round + delay + batch) // batch * batch
        schedule_row(flight, row, due % span)
    write_back_generator(policy_rng, rng)
    write_back_generator(users, env_rng)
    write_back_generator(delays, delay_rng)


# ---- One run of a policy in an environment


ENVIRONMENT_STREAM, POLICY_STREAM, DELAY_STREAM = range(3)


def make_buffers(policy: Policy) -> RoundBuffers:
    """Return buffers for the action and the feedback of a round of a policy."""
    unit = np.array([policy.reward_range.low or 0.0, policy.reward_range.width])
    return RoundBuffers(np.zeros(policy.action_width, np.int64), np.zeros(policy.feedback_width), unit)


class Run:
    """One run of a policy in an environment, which can be advanced in steps.

    Parameters
    ----------
    policy : Policy
    environment : Environment
    horizon : int
        Rounds of the whole run.
    seed : int
        At least 0.
    number : int
        Number of the run with this seed; in a run every policy sees the same streams.
    checkpoints : array of int64
        Rounds after which regret and reward are recorded, increasing.

    Attributes
    ----------
    state : named tuple
        The policy's state.
    rng : Generator
        The policy's generator.
    curve : Curve
    round : int
        Rounds played.
    """

    def __init__(
        self,
        policy: Policy,
        environment: Environment,
        horizon: int,
        seed: int,
        number: int,
        checkpoints: Ints,
    ) -> None:
        """Create the run's random streams, world and state, and compile its loop; no round is played."""
        self.policy, self.environment, self.horizon = policy, environment, horizon
        env_rng = run_stream(seed, number, ENVIRONMENT_STREAM)
        self.rng = run_stream(seed, number, POLICY_STREAM)
        self.world = environment.world(env_rng, horizon)
        self.state = policy.init(environment.lanes)
        count = len(checkpoints)
        # A copy, since Ray's arrays are read-only, which is another type to compiled code.
        self.curve = Curve(np.zeros(2), np.array(checkpoints), np.zeros((count, 2)), np.zeros(1, np.int64))
        self.round = 0
        self.env_rng = env_rng
        driver, self.extra = self.select_loop(run_stream(seed, number, DELAY_STREAM))
        self.loop = compile_loop(driver, policy.params, environment.params)

    def select_loop(self, delay_rng: Generator) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return the loop that plays the rounds, with immediate or delayed feedback, and its arguments after
        the common ones.
        """
        policy, environment = self.policy, self.environment
        now = make_buffers(policy)
        least, most = environment.delays
        if most == 0 and environment.batch == 1:
            return play, (now,)
        # Feedback takes at most ``most`` + ``batch`` rounds.
        flight = InFlight.empty(most + environment.batch + 1, now, self.world.impression)
        return play_delayed, (flight, delay_rng, least, most, environment.batch)

    def advance(self, rounds: int) -> int:
        """Play up to ``rounds`` more rounds of the horizon; return how many were played, 0 at its end."""
        stop = min(self.round + rounds, self.horizon)
        arguments = self.policy.params, self.state, self.environment.params, self.world
        self.loop(*arguments, self.round, stop, self.rng, self.env_rng, self.curve, *self.extra)
        played, self.round = stop - self.round, stop
        return played


def run_stream(seed: int, run: int, which: int) -> Generator:
    """Return a new random generator for one stream of a run: environment (0), policy (1) or delays (2)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(run, which))))
