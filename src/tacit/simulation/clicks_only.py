"""Simulated runs with delayed clicks: a round without a click is known only when its window closes."""

# 1. ``ClickTiming``: the window and the quantiles of click delays, so that one loop serves all distributions.
# 2. ``play_clicks_only``: rounds with delayed clicks, learned by ``tacit.learning.delayed_feedback``.
# 3. ``ClicksOnlyRun``: a run of such rounds.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import (
    arrive,
    decide,
    epoch,
    kernel,
    learned_propensity,
    observe,
    react,
    regret,
    shown_in,
)
from tacit.core.part import one_word
from tacit.core.seeds import borrow_generator, write_back_generator
from tacit.environments.base import Environment
from tacit.errors import InvalidValue
from tacit.learning.delayed_feedback import (
    RELEASED,
    Delays,
    OpenFeedback,
    Queue,
    compute_learning_age,
    enqueue,
    is_outgrown,
    pass_edges,
    record_feedback,
    refit_delays,
    release,
)
from tacit.policies.action_kind import get_action_kind
from tacit.policies.base import Policy
from tacit.simulation.rounds import (
    Curve,
    InFlight,
    Run,
    learn_row,
    make_buffers,
    record_round,
    scale_feedback,
    schedule_row,
    store_impression,
)

TICKS = 1024
"""Ticks per round; delays are counted in ticks."""
STEPS = 1024
"""Number of intervals between the quantiles of a delay distribution, for interpolation."""

Delay = float | Callable[[Floats], Any] | Sequence[Any]


MAX_WINDOW = 2**24
"""Longest window in rounds, as each round is stored until its window closes."""
FEEDBACK_MODES = "at once", "clicks only"


class ClickTiming(NamedTuple):
    """The feedback window and the distribution of click delays.

    Attributes
    ----------
    window : int
        Rounds after which the absence of a click is known.
    table : array of float64, shape (1 or arms, 1025)
        Quantiles of the delays of clicks, in ticks.
    """

    window: int
    table: Floats


def read_click_timing(
    feedback: str, window: int | None, delay: Delay | None, environment: Environment
) -> ClickTiming | None:
    """Validate the options of ``simulate`` for delayed clicks; return the timing, or None for "at once".

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or does not fit the others.
    """
    one_word(*FEEDBACK_MODES)("feedback", feedback)
    if feedback == FEEDBACK_MODES[0]:
        for name, value in (("window", window), ("delay", delay)):
            if value is not None:
                raise InvalidValue(name, value, "leave it out, or give feedback='clicks only' with it")
        return None
    if window is None:
        raise InvalidValue("window", window, "give after how many rounds no click counts as 0, such as 300")
    window = checks.integer("window", window, 1, MAX_WINDOW)
    if environment.delays != (0, 0) or environment.batch != 1:
        remedy = "leave out its delay and batch: with feedback='clicks only' delays are given by delay"
        raise InvalidValue("environment", environment, remedy)
    has_fixed_arms = get_action_kind(environment.takes).single and environment.feature_dims == (0, 0)
    delays = 0.1 * window if delay is None else delay
    count = environment.arm_count if has_fixed_arms else 1
    return ClickTiming(window, make_delay_table(delays, window, count))


def make_delay_table(delay: Delay, window: int, arms: int) -> Floats:
    """Return 1025 quantiles of the delays of clicks, in ticks of 1/1024 round, for all arms or for each arm.

    Parameters
    ----------
    delay : number, function, or sequence of these
        The mean of exponential delays, in rounds; or a function from shares in (0, 1) to quantiles, in
        rounds; or one of these for each arm.
    window : int
        In rounds; later clicks are lost.
    arms : int

    Returns
    -------
    array of float64, shape (1 or arms, 1025)

    Raises
    ------
    InvalidValue
        If a delay is negative or not a number, or a list has not one for each arm.
    """
    if isinstance(delay, (list, tuple)):
        if len(delay) != arms:
            item = f", or one for each of {arms}" if arms > 1 else ""
            raise InvalidValue("delay", delay, f"give one for all{item}")
        return np.concatenate([make_delay_table(item, window, arms) for item in delay])
    shares = (np.arange(STEPS + 1) + 0.5) / (STEPS + 2)
    if callable(delay):
        rounds = np.asarray(delay(shares), np.float64)
        if rounds.shape != shares.shape or not np.all(rounds >= 0.0):
            raise InvalidValue("delay", delay, "let it return a number of rounds, at least 0, for each share")
    else:
        rounds = -checks.number("delay", delay, 0.0, 1e9) * np.log1p(-shares)
    return np.minimum(rounds, 2.0 * window)[None] * TICKS


@kernel
def draw_delay(table: Floats, arm: int, uniform: float) -> int:
    """Return an arm's click delay, in ticks of 1/1024 round, at the quantile ``uniform``, a draw in [0, 1).

    ``table`` has the quantiles of each arm, or one row for all arms.
    """
    row = arm if arm < len(table) else 0
    place = uniform * STEPS
    step = int(place)
    return int(table[row, step] + (place - step) * (table[row, step + 1] - table[row, step]))


@kernel
def shift_queue(queue: Queue) -> None:
    """Remove the decisions that every cursor has passed from the queue, in place, to make room."""
    first = queue.cursor[0]
    for cursor in queue.cursor:
        first = min(first, cursor)
    for place in range(first, queue.size[0]):
        queue.start[place - first], queue.entry[place - first] = queue.start[place], queue.entry[place]
    for b in range(len(queue.cursor)):
        queue.cursor[b] -= first
    queue.size[0] -= first


class ClickStatus(NamedTuple):
    """Click delays and status of the stored decisions, by row.

    Attributes
    ----------
    took : array of int64, shape (span,)
        Delay of the decision's click, in ticks.
    status : array of int64, shape (span,)
        ``WAITING``, ``CLICKED``, or ``SILENT`` if it was learned without a click.
    silence : array of float64, shape (feedback_width,)
        The value that is learned without a click: 0, or 0.5 (a tie) for duels.
    counted, single : bool
        Whether the policy counts open decisions, and whether a decision counts for a single arm, which
        that of a duel does not.
    """

    took: Ints
    status: Ints
    silence: Floats
    counted: bool
    single: bool


WAITING, CLICKED, SILENT = range(3)


@kernel
def deliver_clicks(
    params: Any, state: Any, flight: InFlight, open_feedback: OpenFeedback, clicks: ClickStatus, due: int
) -> None:
    """Record the clicks that arrive in the round of list ``due``, and clear the list.

    A click on a decision that was already learned without a click is learned as an additional success.
    """
    row = flight.first[due]
    while row >= 0:
        feedback = flight.feedback[row]
        # The right arm's win in a duel is feedback 0, and counts as a whole click, too.
        record_feedback(params, state, open_feedback, row, clicks.took[row], feedback.max() or 1.0, True)
        if clicks.status[row] == SILENT:
            learn_row(params, state, flight, row, feedback)
        else:
            clicks.status[row] = CLICKED
        row = flight.next[row]
    flight.first[due] = -1


@kernel
def learn_released(
    params: Any, state: Any, flight: InFlight, queue: Queue, clicks: ClickStatus, place: int, end: int
) -> None:
    """Learn the decisions at indices ``place`` to ``end`` − 1 of the queue, in order, into ``state``.

    A decision whose click has not come is learned without one, and its status becomes ``SILENT``.
    """
    for index in range(place, end):
        row = queue.entry[index]
        is_silent = clicks.status[row] == WAITING
        if is_silent:
            clicks.status[row] = SILENT
        learn_row(params, state, flight, row, clicks.silence if is_silent else flight.feedback[row])


@kernel
def is_click(feedback: Floats, silence: Floats) -> bool:
    """True if ``feedback`` differs from ``silence``, the feedback that stands for no click."""
    differences = 0
    for i in range(len(feedback)):
        differences += feedback[i] != silence[i]
    return differences > 0


def play_clicks_only(
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
    table: Floats,
    delays: Delays,
    queue: Queue,
    open_feedback: OpenFeedback,
    clicks: ClickStatus,
) -> None:
    """Play rounds ``start`` to ``stop`` − 1 with delayed clicks as the only feedback.

    Updates ``state``, ``world``, the curve, the queue and the stored feedback, and draws from all three
    generators.
    """
    impression, span = world.impression, len(flight.lanes)
    window = delays.edges[len(delays.edges) - 1]
    policy_rng, users, chances = borrow_generator(rng), borrow_generator(env_rng), borrow_generator(delay_rng)
    for round in range(start, stop):
        now, row = round * TICKS, round % span
        # Feedback that arrives before this round: clicks, then silences of decisions that are old enough.
        deliver_clicks(params, state, flight, open_feedback, clicks, row)
        pass_edges(params, state, delays, queue, open_feedback, now)
        if is_outgrown(delays):
            refit_delays(delays)
        place = queue.cursor[RELEASED]
        end = release(params, state, delays, queue, open_feedback, now, compute_learning_age(delays, now))
        learn_released(params, state, flight, queue, clicks, place, end)
        if queue.size[0] == len(queue.start):
            shift_queue(queue)
        # The round itself.
        lane = arrive(env, world, round, users)
        observe(params, state, lane, impression)
        action, feedback = flight.actions[row], flight.feedback[row]
        decide(params, state, lane, impression, policy_rng, action)
        shown_arms = shown_in(params, action)
        flight.lanes[row], flight.epochs[row] = lane, epoch(params, state, lane)
        flight.propensities[row] = learned_propensity(params, state, lane, impression, shown_arms)
        react(env, world, lane, shown_arms, feedback)
        flight.counts[row] = len(impression.arms)
        store_impression(flight, row, impression)
        record_round(curve, round, regret(env, world, lane, shown_arms), feedback)
        scale_feedback(feedback, flight.unit)
        if clicks.counted:
            open_feedback.lane[row], open_feedback.arm[row] = lane, action[0] if clicks.single else -1
        clicks.status[row] = WAITING
        enqueue(params, state, delays, queue, open_feedback, row, now)
        # A click arrives after its delay, at least one round later, unless it is later than the window.
        clicks.took[row] = draw_delay(table, action[0], chances.random())
        if clicks.took[row] < window and is_click(feedback, clicks.silence):
            schedule_row(flight, row, (round + max((clicks.took[row] + TICKS - 1) // TICKS, 1)) % span)
    write_back_generator(policy_rng, rng)
    write_back_generator(users, env_rng)
    write_back_generator(chances, delay_rng)


class ClicksOnlyRun(Run):
    """One run of a policy that receives only clicks, with delays.

    Parameters
    ----------
    policy, environment, horizon, seed, number, checkpoints
        As for ``Run``.
    clicks : ClickTiming
        Window and delays of clicks.
    """

    def __init__(
        self,
        policy: Policy,
        environment: Environment,
        horizon: int,
        seed: int,
        number: int,
        checkpoints: Ints,
        clicks: ClickTiming,
    ) -> None:
        """Create the run before its first round, and compile its loop."""
        self.clicks = clicks
        super().__init__(policy, environment, horizon, seed, number, checkpoints)

    def select_loop(self, delay_rng: Generator) -> tuple[Callable[..., None], tuple[Any, ...]]:
        """Return ``play_clicks_only``, and the arguments that it takes after the common ones: buffers and
        queues.
        """
        policy, (window, table) = self.policy, self.clicks
        # A round's row is used again only once its window has ended.
        span, has_fixed_arms = window + 2, policy.arms is not None
        single, duel = policy.showing.single and has_fixed_arms, policy.showing.compared and has_fixed_arms
        now = make_buffers(policy)
        silent = 0.5 if policy.showing.compared else policy.reward_range.to_unit(0.0)
        silence = np.full(policy.feedback_width, silent)
        took, status = np.zeros((2, span), np.int64)
        classes = policy.arm_count if single else 1
        return play_clicks_only, (
            InFlight.empty(span, now, self.world.impression),
            delay_rng,
            # A copy, since Ray's arrays are read-only, which is another type to compiled code.
            np.array(table),
            Delays.create(window * TICKS, classes),
            Queue.empty(2 * span),
            OpenFeedback.empty(span),
            ClickStatus(took, status, silence, single or duel, single),
        )
