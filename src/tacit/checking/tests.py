"""Tests of a policy by simulation, replay and the service; and :func:`check`, which runs all tests.

First the tests that need more than kernels: simulation, replay, the service, speed. Then the order of all
tests, and the function that runs them and collects their results.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from tacit.checking import kernels
from tacit.checking.kernels import Failed, Finding, LeftOut, PolicyCheck, Trial, check_same_states
from tacit.core import checks
from tacit.core import part as ranges
from tacit.core.arrays import copy_state, leaves, rebuild_state, trim_state
from tacit.core.dispatch import shown_in
from tacit.core.parallel import progress
from tacit.core.seeds import stream
from tacit.environments.base import Environment
from tacit.environments.base import registry as environments
from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learning.learner import Learner
from tacit.policies.base import Policy, check_folds
from tacit.policies.stationary.chance import UniformRandom
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, Run, run_stream
from tacit.simulation.clicks_only import read_click_timing
from tacit.simulation.runs import begin_run

# ---- Simulation, replay and the decision service must reach exactly the state of a learner

SPEED_ROUNDS = 50_000
CLICK_WINDOW, CLICK_RUNS, LEAST_SHARE = 50, 30, 0.97
MICROSECONDS = 1_000_000


# Simulation -----------------------------------------------------------------------------------


def check_simulation(trial: Trial) -> str:
    """Test that a simulation and a learner reach the same state by the same impressions and feedback.

    Returns a line for the report. Raises ``Failed`` if the states differ, ``LeftOut`` if no environment fits
    the policy.
    """
    policy, seed, horizon = trial.policy, trial.seed, trial.rounds
    environment = _find_environment(trial)
    run = Run(policy, environment, horizon, seed, number=0, checkpoints=np.array([horizon]))
    run.advance(horizon)
    users = run_stream(seed, run=0, which=ENVIRONMENT_STREAM)
    world: Any = environment.world(users, horizon)
    draws = np.random.SeedSequence(seed, spawn_key=(0, POLICY_STREAM))
    learner = Learner(policy, draws, propensities=False)
    names, params = learner.arms, environment.params
    for round in range(horizon):
        lane = type(environment).arrive(params, world, round, users)
        impression = world.impression
        arrays = dict(zip(("context", "relevance", "examination"), impression[1:], strict=True))
        offer = [names[slot] for slot in impression.arms.tolist()] if names else None
        features = {name: array.copy() for name, array in arrays.items() if _reads_field(policy, name)}
        decision = learner.choose(str(lane), arms=offer, **features)
        feedback = np.zeros(policy.feedback_width)
        environment.react(params, world, lane, shown_in(policy.params, decision.slots), feedback)
        learner.learn(decision, feedback.tolist() if len(feedback) > 1 else float(feedback[0]))
    lanes = [int(key) for key in learner.keys]
    arrays_and_rows = zip(leaves(run.state), learner.lanes.rows, strict=True)
    # In the order of the learner's lanes; an array with 0 rows per lane is shared by all keys.
    lane_arrays = (
        _select_rows(array, lanes, count) if count else array for (_, array), count in arrays_and_rows
    )
    mine = rebuild_state(run.state, lane_arrays)
    check_same_states(mine, learner.lanes.view_all(), "a simulation and a learner differ in it")
    return f"{horizon} rounds of {type(environment).__name__}: the learner's state, bit for bit"


def _select_rows(array: Any, lanes: list[int], count: int) -> Any:
    """Return the rows of some lanes of an array, ``count`` rows per lane, in the order of ``lanes``."""
    return np.concatenate([array[lane * count : (lane + 1) * count] for lane in lanes])


def _reads_field(policy: Policy, name: str) -> bool:
    """True if the policy reads ``name``: context, relevance or examination."""
    dims = (policy.context_dim, *policy.feature_dims)
    return dims[("context", "relevance", "examination").index(name)] > 0


def _find_environment(trial: Trial) -> Environment:
    """Return an example of an environment that fits the policy; raise ``LeftOut`` if there is none."""
    policy = trial.policy
    dims = {*policy.feature_dims, policy.context_dim} - {0} or {1}
    # The simplest environment first.
    for kind in sorted(environments.values(), key=lambda kind: kind.__name__ != "BernoulliArms"):
        if not kind.__module__.startswith("tacit.") or kind.takes != policy.shows:
            continue
        for dim in dims:
            world = kind.example(trial.arms, dim)
            if world is not None and _is_fitting(trial, world):
                return world  # type: ignore[no-any-return]
    raise LeftOut("no environment gives what it reads")


def _is_fitting(trial: Trial, world: Environment) -> bool:
    """True if the environment has the features, action width and contexts of the policy under test."""
    policy = trial.policy
    features = policy.feature_dims in ((0, 0), world.feature_dims)
    wide = policy.action_width == world.action_width
    context = policy.context_dim in (0, world.context_dim)
    return features and wide and context and trial.has_fixed_arms == (world.feature_dims == (0, 0))


# Clicks only ----------------------------------------------------------------------------------


def check_clicks_only(trial: Trial) -> str:
    """Test that delayed clicks as the only feedback earn nearly as much as immediate feedback, in 30 paired
    runs.

    Returns a line for the report. Raises ``Failed`` if too many runs earn less than 97 %. If half of all
    possible runs earn more, each run is below with a probability of at most ½, so a binomial tail bounds the
    probability of an error.
    """
    policy, horizon = trial.policy, 10 * trial.rounds
    environment, points = _find_environment(trial), np.array([horizon])
    clicks = read_click_timing("clicks only", CLICK_WINDOW, delay=None, environment=environment)
    shares = []
    for number in range(CLICK_RUNS):
        gains = []
        for mode in (clicks, None):
            run = begin_run(policy, environment, horizon, trial.seed, number, points, mode)
            run.advance(horizon)
            regret, reward = run.curve.total
            # Duels have no reward.
            gains.append(horizon - regret if policy.showing.compared else reward)
        shares.append(gains[0] / gains[1] if gains[1] > 0.0 else 1.0)
    worse, middle = sum(share < LEAST_SHARE for share in shares), float(np.median(shares))
    text = (
        f"{CLICK_RUNS} runs of {horizon} rounds, windows of {CLICK_WINDOW}: {middle:.3f} of what zeros earn"
    )
    if _compute_binomial_tail(worse) <= trial.error:
        raise Failed(
            f"{text}; below {LEAST_SHARE} in {worse}: it takes late silence for a change, or what is open"
        )
    return text


def _compute_binomial_tail(count: int) -> float:
    """Return the probability of at least ``count`` heads in 30 tosses of a fair coin."""
    return float(sum(comb(CLICK_RUNS, k) for k in range(count, CLICK_RUNS + 1)) / 2**CLICK_RUNS)


# Replay ---------------------------------------------------------------------------------------


def check_replay(trial: Trial) -> str:
    """Test that a replay of a uniform log reaches the state of a learner that learns the matching rows.

    Returns a line for the report. Raises ``Failed`` if the states differ, ``LeftOut`` unless the policy shows
    one of fixed arms.
    """
    import pyarrow as pa

    from tacit.evaluate.windows import Pass, ReplayConfig, WindowReader

    if not trial.shows_fixed_arm:
        raise LeftOut("logs are replayed for policies that show one of their arms")
    policy, rows = trial.policy, 3 * trial.rounds
    names = [str(arm) for arm in Learner(policy).arms]
    logged = np.random.default_rng(trial.seed).integers(len(names), size=rows)
    keys = [f"key {row % 3}" for row in range(rows)]
    rewards = [trial.compute_reward(row, logged[row : row + 1]) for row in range(rows)]
    contexts = [trial.make_impression(row).context.tolist() for row in range(rows)]
    columns = {
        "timestamp": ["2017-07-04T12:00:00Z"] * rows,
        "decision_id": [str(row) for row in range(rows)],
        "placement": ["check"] * rows,
        "key": keys,
        "arms": [names] * rows,
        "arm": [names[slot] for slot in logged],
        "propensity": [1 / len(names)] * rows,
        "reward": rewards,
    }
    log = pa.table(columns | ({"context": contexts} if policy.context_dim else {}))
    replaying = ReplayConfig(policy=policy, seed=trial.seed, window=rows)
    source, played = WindowReader(replaying), Pass(replaying, number=0)
    for window in source.read(log):
        list(played.replay(window, len(source.lanes)))  # it replays while it is iterated
    learner = Learner(policy, stream("replay", trial.seed, 0))
    for row, key in enumerate(keys):
        decision = learner.choose(key, contexts[row] or None)
        if decision.slot == logged[row]:
            learner.learn(decision, rewards[row])
    mine = trim_state(played.state, policy.init(len(learner.keys)))
    check_same_states(mine, learner.lanes.view_all(), "a replay and a learner differ in it")
    return f"{rows} logged rows, {played.match_count} matched: the learner's state, bit for bit"


# The service ----------------------------------------------------------------------------------


def check_service(trial: Trial) -> str:
    """Test that the service's engine, a replay of its log, and a learner reach the same state.

    Returns a line for the report. Raises ``Failed`` if the states differ, ``LeftOut`` if the service is not
    installed or refuses the policy. Uses a temporary database.
    """
    if trial.policy.showing.compared:
        raise LeftOut("placements of duels interleave rankings; the engine is not asked")
    try:
        from tacit.service.config.schema import Config, PlacementConfig
        from tacit.service.log.sqlite import SqliteStore
    except ImportError:
        raise LeftOut("the service is not installed: pip install 'tacit-learn[service]'") from None
    from tacit.service.maintenance.doctor import verify

    try:
        check_folds(trial.policy)
    except InvalidValue as why:
        raise LeftOut(f"the service refuses it: {why.allowed}") from None
    single = "arms" if trial.policy.feature_dims == (0, 0) else "features"
    kind = "slates" if trial.policy.showing.listed else single
    try:
        config = Config({"check": PlacementConfig(trial.policy, trial.seed, kind=kind)})
    except ConfigError as why:
        raise LeftOut(f"no placement is for it: {why}") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "check.db"
        served, learner = asyncio.run(_play_service(trial, config, SqliteStore(path)))
        check_same_states(served, learner.lanes.view_all(), "the service and a learner differ in it")
        with closing(SqliteStore(path)) as store:
            wrong = verify(config, store)
    if wrong:
        raise Failed(f"its log does not fold to what it learned: {wrong[0]}")
    return f"{trial.rounds} decisions of an engine: the learner's state, and the fold of its log"


async def _play_service(trial: Trial, config: Any, store: Any) -> tuple[Any, Learner]:
    """Play the trial's rounds in an engine and in a learner; return a copy of the engine's state, and the
    learner.

    Raises ``Failed`` if they show different arms. The engine is started and stopped.
    """
    from tacit.service.engine.engine import Engine
    from tacit.service.log.ids import Draws
    from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
    from tacit.service.log.rows import CLICKS

    now = [MICROSECONDS]
    engine = Engine(config, store, lambda: now[0])
    learner, draws = Learner(trial.policy, seed=0), Draws(trial.seed)
    lists, waiting = trial.policy.showing.listed, None
    await engine.start()
    placement = engine.placements["check"]
    try:
        for round in range(trial.rounds + 1):
            # After an hour the window of the last list is closed, and its feedback is learned.
            now[0] += 3600 * MICROSECONDS
            arguments = {name: x.tolist() for name, x in trial.make_impression(round).arguments.items()}
            request = DecisionRequest(f"key {round % 3}", id=str(round), **arguments)
            (row,) = await engine.decide_many("check", [placement.reader.read(request)])
            if waiting is not None:
                learner.learn(*waiting)
            draws.begin(learner.rng, str(round))  # the service draws by the decision's id
            decision = trial.choose(learner, f"key {round % 3}", round)
            if not lists and decision.arm != row.arm:
                raise Failed(f"round {round}: the service shows {row.arm}, a learner {decision.arm}")
            if round == trial.rounds:
                break
            reward = trial.compute_reward(round, decision.slots)
            if lists:
                waiting = decision, reward
                clicks = Clicked([place for place, hit in enumerate(reward) if hit])
                await engine.record_many("check", [FeedbackRequest(str(round), CLICKS, clicks=clicks)])
            else:
                await engine.feedback("check", str(round), reward)
                learner.learn(decision, reward)
        return copy_state(placement.learner.lanes.view_all()), learner
    finally:
        await engine.stop()


# Speed ----------------------------------------------------------------------------------------


def measure_speed(trial: Trial) -> str:
    """Return a text with measured times: of a simulated round, also of uniform choice, and of single
    calls.
    """
    learner, rounds = trial.make_learner(), 200
    trial.play(learner, "a", range(10))
    impressions = [trial.make_impression(round) for round in range(rounds)]
    # One reward serves all calls, as it hardly affects their time.
    rewards = [trial.compute_reward(0, decision.slots) for decision in trial.play(learner, "a", range(1))]
    start = time.perf_counter()
    for impression in impressions:
        learner.learn(learner.choose("a", **impression.arguments), rewards[0])
    call_seconds = (time.perf_counter() - start) / rounds
    text = f"{1e6 * call_seconds:.1f} µs to choose and learn from Python"
    try:
        environment = _find_environment(trial)
    except LeftOut:
        return text
    seconds = _measure_round(trial.policy, environment)
    if trial.shows_fixed_arm:
        uniform_seconds = _measure_round(UniformRandom(trial.arms), environment)
        return f"{1e6 * seconds:.3f} µs a simulated round (uniform: {1e6 * uniform_seconds:.3f}); {text}"
    return f"{1e6 * seconds:.3f} µs a simulated round; {text}"


def _measure_round(policy: Policy, environment: Environment) -> float:
    """Return the seconds per simulated round, measured for about a fifth of a second."""
    run = Run(policy, environment, SPEED_ROUNDS, seed=1, number=0, checkpoints=np.array([SPEED_ROUNDS]))
    run.advance(10)  # not measured: it compiles
    start, played = time.perf_counter(), 0
    while played < SPEED_ROUNDS - 10 and time.perf_counter() - start < 0.2:
        played += run.advance(max(10, played))  # as many rounds again
    return (time.perf_counter() - start) / played


Test = Callable[[Trial], str]

REQUIRED_TESTS: dict[str, Test] = {"in Python": kernels.check_python, "compiles": kernels.check_compilation}
"""Tests that must pass before compiled code may run, as it does not check bounds."""

TESTS: dict[str, Test] = {
    "compiled": kernels.check_compiled,
    "offers": kernels.check_subsets,
    "new arms": kernels.check_new_arms,
    "seed": kernels.check_seed,
    "propensity": kernels.check_propensities,
    "ties": kernels.check_ties,
    "lanes": kernels.check_lanes,
    "unlearn": kernels.check_unlearning,
    "snapshot": kernels.check_snapshot,
    "simulation": check_simulation,
    "clicks only": check_clicks_only,
    "replay": check_replay,
    "service": check_service,
    "speed": measure_speed,
}


def check(
    policy: Policy,
    *,
    only: Sequence[str] | None = None,
    seed: int = 1,
    rounds: int = 200,
    draws: int = 20_000,
    error: float = 1e-6,
) -> PolicyCheck:
    """Run the tests of the package's own policies on a policy, and return their results.

    Its kernels run in plain Python, which detects indices out of bounds, and compiled. The arms shown must be
    on offer, drawn only from ``rng``, with frequencies equal to their propensities; keys must learn
    independently; a snapshot, a simulation, a replay and the service's engine must reach the state of a
    learner, bit for bit; and with delayed clicks only, rewards must be nearly as high as with immediate
    feedback. Impressions and rewards are random. A failed test is reported, not raised; progress is shown.

    Parameters
    ----------
    policy : Policy
    only : sequence of str, optional
        The names of the tests; by default all. ``in Python`` and ``compiles`` always run first.
    seed : int, default 1
        Seed of impressions, rewards and all draws.
    rounds : int, default 200
        Number of rounds played before a comparison.
    draws : int, default 20,000
        Number of choices whose frequencies are compared with propensities. A difference of d in a
        probability p is detected if d² > 40·p(1 − p)/draws, approximately.
    error : float, default 1e-6
        Largest probability that a correct policy fails a test of frequencies (Chernoff's bound), or
        the test of clicks only (signs of 30 runs).

    Returns
    -------
    PolicyCheck
        ``passed``, ``failures``, ``summary()``.

    Raises
    ------
    InvalidValue
        If the argument is not a policy, or a number is out of its range.

    Examples
    --------
    >>> import tacit
    >>> found = tacit.check(tacit.UCB1(arms=3), only=["lanes"])
    >>> found.passed, [verdict.name for verdict in found.verdicts]
    (True, ['in Python', 'compiles', 'lanes'])
    """
    if not isinstance(policy, Policy):
        raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
    trial = Trial(
        policy,
        checks.integer("seed", seed, 0),
        checks.integer("rounds", rounds, 20),
        checks.integer("draws", draws, 100),
        checks.number("error", error, 0.0, 1.0, open_low=True),
    )
    for name in checks.names("only", () if only is None else only):
        ranges.one_word(*REQUIRED_TESTS, *TESTS)("only", name)
    tests = {name: test for name, test in TESTS.items() if only is None or name in only}
    verdicts: list[Finding] = []
    with progress(len(REQUIRED_TESTS) + len(tests), f"checking {policy.label}") as advance:
        for name, test in (REQUIRED_TESTS | tests).items():
            sound = all(v.passed is not False for v in verdicts if v.name in REQUIRED_TESTS)
            left_out = Finding(name, None, "not tried, as it failed before")
            verdicts.append(_run_test(name, test, trial) if sound else left_out)
            advance(1)
    return PolicyCheck(policy.label, tuple(verdicts))


def _run_test(name: str, test: Test, trial: Trial) -> Finding:
    """Run a test, without showing its warnings, and return its result.

    Any exception means that the policy failed, except ``LeftOut``: then the test does not apply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Finding(name, True, test(trial))
        except LeftOut as why:
            return Finding(name, None, str(why))
        except (Failed, TacitError) as why:
            return Finding(name, False, str(why))
        except Exception as why:
            return Finding(name, False, f"{_find_user_line(why)}{type(why).__name__}: {why}")


def _find_user_line(error: Exception) -> str:
    """Return "file:line: " of the last line in an error's traceback that is outside of this package; "" if
    none is.
    """
    ours = str(Path(__file__).parents[1])
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}: " if theirs else ""
