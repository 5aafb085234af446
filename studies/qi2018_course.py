"""Figure 4 of Qi et al. (2018): replay of a course-video log, here a synthetic one.

The log of the paper is not public in any place known to us. This generator follows what section
6.3 and appendix G say of it: 21 videos, 5.5 questions a video on average, six positions, so some
33 arms; device, hour of the day and position for examination, the question's content for
relevance; a hundred thousand sessions of uniformly chosen arms.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from studies import study
from studies.qi2018 import StartedHLinUCB
from tacit import policies
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import choose, learn
from tacit.core.run_mode import compile_loop
from tacit.errors import InvalidValue
from tacit.plots import assign_line_styles
from tacit.policies.base import Outcome
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream, standard_error

VIDEOS, POSITIONS, DEVICES, HOURS = 21, 6, 3, 8
RELEVANCE, EXAMINATION = 72, POSITIONS + DEVICES + HOURS + 1
SESSIONS = 100_000


class CourseLog(NamedTuple):
    """A log of uniformly chosen arms with their features.

    Attributes
    ----------
    video : array of int64, shape (sessions,)
    shown : array of int64, shape (sessions,)
        Slot of the arm: 6·question + position.
    reward : array of float64, shape (sessions,)
    starts : array of int64, shape (sessions + 1,)
        Where each session's arms on offer begin in the arrays below.
    arms : array of int64, shape (offered in all,)
        Slots of the arms on offer.
    relevance_row, examination_row : array of int64, shape (offered in all,)
        Rows of the tables of features.
    relevance, examination : array of float64, shape (rows, d)
    """

    video: Ints
    shown: Ints
    reward: Floats
    starts: Ints
    arms: Ints
    relevance_row: Ints
    examination_row: Ints
    relevance: Floats
    examination: Floats


def course_log(rng: Generator, sessions: int = SESSIONS) -> CourseLog:
    """Return a synthetic log; clicks follow the examination model.

    Questions have a direction in a space of 72 content features, and each video its own taste; the
    last examination feature is a constant. Early and late positions, phones and the night are
    seen less. About one session in twelve has a click.

    Parameters
    ----------
    rng : Generator
    sessions : int, default 100 000

    Examples
    --------
    >>> log = course_log(np.random.default_rng(1), 1000)
    >>> log.relevance.shape[1], log.examination.shape[1], len(set(log.video.tolist()))
    (72, 18, 21)
    """
    questions = rng.integers(3, 9, VIDEOS)
    first = np.concatenate([[0], np.cumsum(questions)])
    relevance = rng.standard_normal((first[-1], RELEVANCE))
    relevance /= np.linalg.norm(relevance, axis=1, keepdims=True)
    taste = 2.0 * rng.standard_normal((VIDEOS, RELEVANCE))
    examination, seen = _examination(rng)
    popularity = 1.0 / np.arange(1, VIDEOS + 1)
    video = rng.choice(VIDEOS, sessions, p=popularity / popularity.sum())
    device = rng.choice(DEVICES, sessions, p=(0.5, 0.2, 0.3))
    hour = rng.choice(HOURS, sessions, p=np.array([1, 1, 2, 4, 4, 5, 6, 3]) / 26)
    counts = POSITIONS * questions[video]
    starts = np.concatenate([[0], np.cumsum(counts)])
    arms = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    place = (device * HOURS + hour) * POSITIONS
    relevance_row = np.repeat(first[video], counts) + arms // POSITIONS
    examination_row = np.repeat(place, counts) + arms % POSITIONS
    shown = (rng.random(sessions) * counts).astype(np.int64)
    row, seen_row = relevance_row[starts[:-1] + shown], examination_row[starts[:-1] + shown]
    wanted = -1.0 + np.einsum("nd,nd->n", relevance[row], taste[video])
    chance = 1.0 / ((1.0 + np.exp(-wanted)) * (1.0 + np.exp(-seen[seen_row])))
    reward = (rng.random(sessions) < chance).astype(np.float64)
    return CourseLog(
        video, shown, reward, starts, arms, relevance_row, examination_row, relevance, examination
    )


def _examination(rng: Generator) -> tuple[Floats, Floats]:
    """Return the features of every device, hour and position, and their logits of being seen."""
    device, hour, position = (axis.ravel() for axis in np.indices((DEVICES, HOURS, POSITIONS)))
    table = np.zeros((len(device), EXAMINATION))
    rows = np.arange(len(device))
    table[rows, position] = 1.0
    table[rows, POSITIONS + device] = 1.0
    table[rows, POSITIONS + DEVICES + hour] = 1.0
    table[:, -1] = 1.0
    by_position = np.array([-1.5, 0.5, 1.0, 0.5, -0.5, -1.5])
    by_device, by_hour = np.array([0.5, 0.0, -1.0]), np.array([-2, -1, 0, 0.5, 0.5, 0, 0, -0.5])
    logits = -0.5 + by_position[position] + by_device[device] + by_hour[hour]
    return table, logits + 0.1 * rng.standard_normal(len(logits))


def read_course_log(path: Path) -> CourseLog:
    """Read a log that ``course_convert.py`` has converted from the published pickle.

    Parameters
    ----------
    path : path
        An ``.npz`` file.

    Raises
    ------
    InvalidValue
        If it is something else, a pickle above all, or its arrays do not fit.
    """
    remedy = (
        "convert the pickle first: run python -I course_convert.py LOG.pkl LOG.npz (in "
        "studies) on a file that you trust; tacit itself never unpickles"
    )
    names = "video", "shown", "reward", "offered", "arms", "relevance", "examination"
    try:
        with np.load(path, allow_pickle=False) as file:
            video, shown, reward, offered, arms, relevance, examination = (file[n] for n in names)
        starts = np.concatenate([[0], np.cumsum(offered)])
        rewards = reward.astype(np.float64)
        fits = (
            len(video) == len(shown) == len(reward) == len(offered)
            and starts[-1] == len(arms) == len(relevance) == len(examination)
            and (offered > 0).all()
            and (arms >= 1).all()
            and ((rewards >= 0.0) & (rewards <= 1.0)).all()
            and np.isfinite(relevance).all()
            and np.isfinite(examination).all()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise InvalidValue("path", str(path), remedy)
    rows = np.arange(len(arms))
    return CourseLog(
        np.unique(video, return_inverse=True)[1].astype(np.int64),
        shown.astype(np.int64) - 1,
        rewards,
        starts.astype(np.int64),
        arms.astype(np.int64) - 1,
        rows,
        rows,
        np.ascontiguousarray(relevance, np.float64),
        np.ascontiguousarray(examination, np.float64),
    )


class ReplayRoom(NamedTuple):
    """Where one session's offer is laid out, and what the replay counts: matches and clicks."""

    arms: Ints
    context: Floats
    relevance: Floats
    examination: Floats
    counts: Floats


def replay_sessions(
    params: Any, state: Any, log: CourseLog, order: Ints, identified: int, room: ReplayRoom, rng: Generator
) -> None:
    """Replay sessions in an order; a session counts, and teaches, where the choice matches."""
    for n in order:
        start, stop = log.starts[n], log.starts[n + 1]
        offered, match = stop - start, -1
        for i in range(offered):
            slot = log.arms[start + i]
            arm = slot if identified else i
            if slot == log.shown[n]:
                match = arm
            room.arms[i] = arm
            for j in range(room.relevance.shape[1]):
                room.relevance[i, j] = log.relevance[log.relevance_row[start + i], j]
            for j in range(room.examination.shape[1]):
                room.examination[i, j] = log.examination[log.examination_row[start + i], j]
        impression = policies.Impression(
            room.arms[:offered], room.context, room.relevance[:offered], room.examination[:offered]
        )
        lane = log.video[n]
        arm = choose(params, state, lane, impression, rng)
        if arm == match:
            learn(params, state, lane, Outcome(impression, arm, log.reward[n], 1.0))
            room.counts[0] += 1.0
            room.counts[1] += log.reward[n]


def replayed(policy: policies.Policy, log: CourseLog, run: int, seed: int) -> tuple[float, float]:
    """Return matches and click rate of one replay in a random order (Li et al. 2011)."""
    rng = run_stream(seed, run, POLICY_STREAM)
    order = run_stream(seed, run, ENVIRONMENT_STREAM).permutation(len(log.video))
    most = int(np.diff(log.starts).max())
    room = ReplayRoom(
        np.zeros(most, np.int64),
        np.zeros(0),
        np.zeros((most, log.relevance.shape[1])),
        np.zeros((most, log.examination.shape[1])),
        np.zeros(2),
    )
    state = policy.init(int(log.video.max()) + 1)
    identified = int(policy.arms is not None)
    driver = compile_loop(replay_sessions, policy.params)
    driver(policy.params, state, log, order, identified, room, rng)
    matches, clicks = room.counts
    return float(matches), float(clicks / max(matches, 1.0))


def compared(log: CourseLog) -> dict[str, policies.Policy]:
    """Return the policies of figure 4, by what they are called there."""
    dims, slots = (log.relevance.shape[1], log.examination.shape[1]), int(log.arms.max()) + 1
    slots += -slots % POSITIONS
    return {
        "Similarity (uniform)": policies.UniformRandom(slots),
        "Logistic, no intercept (the paper's)": policies.LogisticTS(*dims, intercept=False),
        "Logistic, intercept": policies.LogisticTS(*dims),
        "hLinUCB": StartedHLinUCB(slots, *dims),
        "PBMUCB, effects estimated": policies.baselines.PlacedPBMUCB(slots, positions=POSITIONS),
        "E-C Bandit": policies.ECBandit(*dims),
        "LaplaceEC": policies.LaplaceEC(*dims),
    }


def cell_of(name: str, runs: Floats, base: float) -> study.Cell:
    """Return a policy's replays as a cell; ``base`` is the click rate of uniform choice."""
    return {
        "policy": name,
        "relative_ctr_mean": float(runs[:, 1].mean() / base),
        "relative_ctr_std": study.std(runs[:, 1]) / base,
        "matches_mean": float(runs[:, 0].mean()),
        "runs": len(runs),
    }


def figure_4(setup: study.Setup) -> study.Reproduction:
    """Replay the log with every policy; click rates relative to uniform choice."""
    if setup.data is None:
        log = course_log(run_stream(setup.seed, 0, ENVIRONMENT_STREAM))
        source = "**a synthetic log: these are not the paper's data**"
        caution = "The clicks of the synthetic log follow that model by construction. "
    else:
        log, source, caution = read_course_log(setup.data), f"the log {setup.data.name}", ""
    # What uniform choice gets in a replay on average: sessions with fewer arms match more often.
    base = float(np.average(log.reward, weights=1.0 / np.diff(log.starts)))
    cells: list[study.Cell] = []
    for name, policy in compared(log).items():
        runs = [replayed(policy, log, run, setup.seed) for run in range(setup.runs)]
        cells.append(cell_of(name, np.array(runs), base))
    columns: dict[str, study.Tell] = {
        "policy": "{policy}",
        "click rate / Similarity's ± s.e.": study.text_with_error("relative_ctr", digits=3),
        "s.d. over runs": "{relative_ctr_std:.3f}",
        "sessions that count": "{matches_mean:,.0f}",
    }
    ordered = sorted(cells, key=lambda cell: -float(cell["relative_ctr_mean"]))
    ranking = " > ".join(f"{c['policy']} ({c['relative_ctr_mean']:.2f})" for c in ordered)
    text = study.report(
        "qi2018_figure4",
        setup,
        source=source,
        caution=caution,
        sessions=len(log.video),
        videos=int(log.video.max()) + 1,
        offered=np.diff(log.starts).mean(),
        dims=(log.relevance.shape[1], log.examination.shape[1]),
        rate=log.reward.mean(),
        table=study.table(cells, columns),
        ranking=ranking,
    )
    title = "synthetic log" if setup.data is None else "given log"
    draw = partial(draw_cells, cells, title)
    return study.Reproduction(cells, text, draw, setup.settings(synthetic=setup.data is None))


def draw_cells(cells: list[study.Cell], title: str, path: Path) -> None:
    """Draw the click rates as bars."""
    names = [cell["policy"] for cell in cells]
    lines = [name.replace(", ", ",\n").replace(" (", "\n(") for name in names]
    colours = [look["color"] for look in assign_line_styles(names).values()]
    means = [cell["relative_ctr_mean"] for cell in cells]
    errors = [2 * cell["relative_ctr_std"] / math.sqrt(cell["runs"]) for cell in cells]
    with study.drawing(path) as ax:
        ax.bar(range(len(names)), means, yerr=errors, capsize=3, color=colours)
        ax.set_xticks(range(len(names)), lines, size=7)
        ax.axhline(1.0, color="black", lw=0.8)
        study.inscribe(ax, title, ylabel="click rate over Similarity's (bars ±2 s.e.)")


# Figure 3 ------------------------------------------------------------------------------------

PICKED = 3
"""Questions and positions of figure 3, which make nine arms."""


def figure_3(setup: study.Setup) -> study.Reproduction:
    """Nine arms of the most watched video, projected at random, with their click rates."""
    rng = run_stream(setup.seed, 0, ENVIRONMENT_STREAM)
    log = course_log(rng, SESSIONS * setup.runs)
    shown, reward = log.shown[log.video == 0], log.reward[log.video == 0]
    arms = np.add.outer(POSITIONS * np.arange(PICKED), np.arange(PICKED)).ravel()
    rows = log.relevance_row[log.starts[:-1][log.video == 0][0] + arms]
    features = np.hstack([log.relevance[rows], np.eye(POSITIONS)[arms % POSITIONS]])
    places = features @ rng.standard_normal((features.shape[1], 2)) / math.sqrt(2.0)
    rates = np.array([reward[shown == arm].mean() for arm in arms])
    errors = np.array([standard_error(reward[shown == arm]) for arm in arms])
    apart = [np.linalg.norm(x[:, None] - x, axis=2)[np.triu_indices(9, 1)] for x in (features, places)]
    columns = zip("abcdefghi", arms // POSITIONS, arms % POSITIONS, rates, errors, strict=True)
    names = "arm", "question", "position", "click rate", "error"
    cells = [
        dict(zip(names, (a, int(q), int(p), float(r), float(e)), strict=True)) for a, q, p, r, e in columns
    ]

    def draw(path: Path) -> None:
        with study.drawing(path, 6.5, 5.0) as ax:
            ax.plot(*places.T, "o", ms=5)
            for cell, place in zip(cells, places, strict=True):
                text = f"{cell['arm']} ({cell['click rate']:.3f})"
                ax.annotate(text, place, (5, 4), textcoords="offset points", size=9)
            study.inscribe(ax, "Nine arms of a synthetic log: click rates", xlabel="", ylabel="")

    told = {name: f"{{{name}}}" for name in names[:3]} | {name: f"{{{name}:.3f}}" for name in names[3:]}
    text = study.report(
        "qi2018_figure3",
        setup,
        table=study.table(cells, told),
        dips=_dips(places, rates, errors),
        ratio=np.quantile(apart[1] / apart[0], [0.0, 1.0]),
    )
    return study.Reproduction(cells, text, draw, setup.settings(synthetic=True))


def _dips(places: Floats, rates: Floats, errors: Floats) -> int:
    """Count arms that lie between two others in the plane and are clicked less than both by two errors.

    Between means: over the middle of the way, no farther from it than a quarter of its length.

    Examples
    --------
    >>> _dips(np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.0]]), np.array([0.3, 0.1, 0.3]), np.full(3, 0.02))
    1
    """
    count = 0
    for i, j, k in itertools.permutations(range(len(places)), 3):
        way, off = places[k] - places[i], places[j] - places[i]
        along = off @ way / (way @ way)
        near = 0.0 < along < 1.0 and np.linalg.norm(off - along * way) < 0.25 * np.linalg.norm(way)
        lower = min(rates[i] - rates[j], rates[k] - rates[j]) > 2.0 * errors[j]
        count += int(i < k and near and lower)
    return count


FIGURE_3 = study.Item(
    "Qi et al. (2018), figure 3: nine arms, projected, with their click rates (synthetic)", 1, figure_3
)
FIGURE_4 = study.Item("Qi et al. (2018), figure 4: replay of a course-video log (synthetic)", 10, figure_4)
