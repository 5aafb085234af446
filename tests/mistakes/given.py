# ruff: noqa: F401
"""The names that transcripts of Python use: tacit's, logs, learners, and parts that are made wrongly."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import types
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
import polars
import pyarrow.parquet

import tacit
from tacit.client import AsyncClient, Client, Decided, Feedback, Impression
from tacit.environments import environment_from_spec, simulate_log
from tacit.evaluate import (
    IPS,
    SNIPS,
    DirectMethod,
    IndependentIPS,
    Table,
    Uniform,
    arms_of,
    examine,
    off_policy,
)
from tacit.evaluate.duels import preferences, read_duels
from tacit.evaluate.interleaved import hits_of, read_interleaved
from tacit.evaluate.targets import fixed_target
from tacit.interleaving import CreditRule, TeamDraft, credit_clicks
from tacit.logs import click_log, read_ubi
from tacit.policies.spec import policy_from_spec
from tacit.service.log.sqlite import SqliteStore
from tacit.uplift import HoldoutSums, decisions_needed, duels_needed, holdout_lift

ARMS = ["film", "song", "game"]
PAIR = ["film", "holiday"]
KEYS = ["a", "b"]
ROWS = 6
FILM = Table({"film": 1.0})
RNG = np.random.default_rng(1)
SHOWN = TeamDraft(length=3).interleave([["a", "b", "c"], ["b", "a", "c"]], np.random.default_rng(1))
MANY = {"arms": [ARMS] * 200, "arm": ["film", "song"] * 100, "reward": [0, 1, 1, 0] * 50}
LOG = pandas.DataFrame({"age": [31, 40], "reward": [0, 1], "arm": ["film", "song"]})
BANNERS = pandas.DataFrame(
    {"banner": ["film", "song"] * 20, "reward": [0, 1, 1, 0] * 10, "propensity": [0.5] * 40, "uid": range(40)}
)
TIMED = pandas.concat([BANNERS] * 3, ignore_index=True)
TIMED["at"] = pandas.date_range("2026-01-01", periods=120, freq="min")
SHUFFLED = (
    pandas.concat([TIMED] * 10, ignore_index=True)
    .assign(at=pandas.date_range("2026-01-01", periods=1200, freq="min"), uid=range(1200))
    .sample(frac=1, random_state=1)
)
NAMED = {"arm": "banner", "timestamp": "at"}


def log_of(**columns):
    """Return a sound log of uniform choices, but for some columns; None leaves one out."""
    sound = {
        "decision_id": [str(row) for row in range(ROWS)],
        "key": ["tomato"] * ROWS,
        "arms": [PAIR] * ROWS,
        "arm": PAIR * (ROWS // 2),
        "propensity": [0.5] * ROWS,
        "reward": [0.0, 1.0, 0.0] * (ROWS // 3),
        "device": ["desk", "phone"] * (ROWS // 2),
    }
    return {name: values for name, values in (sound | columns).items() if values is not None}


SOUND = log_of()


def learner(**options):
    """Return a learner of the default policy."""
    return tacit.Learner(tacit.auto(**options), seed=1)


def ucb1(arms=PAIR):
    """Return a learner of UCB1."""
    return tacit.Learner(tacit.UCB1(arms), seed=1)


def learned(policy, reward):
    """Return a learner that has learned one reward, for the key ``tomato``."""
    one = tacit.Learner(policy, seed=1)
    one.learn(one.choose("tomato"), reward)
    return one


def with_items(ids=("p", "q"), **options):
    """Return a learner with two items."""
    one = learner(relevance_dim=2)
    one.items.put(list(ids), [[1, 0], [0, 1]], **options)
    return one


def with_segments():
    """Return a learner with an item of a segment and one of none."""
    return with_items(segments=["sport", None])


def interleaved(rankings, clicks=()):
    """Return the credit for clicks on two rankings that are shown as one list."""
    method = TeamDraft()
    return method.credit(method.interleave(rankings, np.random.default_rng(1)), clicks)


def lift_of(click, share=0.5):
    """Return the lift of 4,000 decisions, where every other one of each group earned a click's value."""
    sums = HoldoutSums.empty()
    sums.add([0, 1] * 2000, [0, 0, click, click] * 1000)
    return holdout_lift(sums, share)


def weighed(log=BANNERS, **options):
    """Return the value of showing the film always, estimated from a log of banners."""
    options = {"columns": {"arm": "banner"}, "arms": ["film", "song"]} | options
    return off_policy(FILM, log, **options)


def logged(rewards, **options):
    """Return the click log of one decision."""
    one = learner(arms=ARMS)
    return click_log(one.policy, [one.choose("a")], rewards, **options)


@dataclass
class Regression:
    def predict(self, rows):
        return np.zeros(len(rows))


@dataclass
class Classifier(Regression):
    classes_ = ("film", "song")

    def predict_proba(self, rows):
        return np.full((len(rows), 2), 0.5)


@dataclass(frozen=True)
class Replaces(tacit.Policy):
    class State(NamedTuple):
        plays: np.ndarray

    c: float = 1.0

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        return 0

    @staticmethod
    def learn(params, state, lane, outcome):
        return state._replace(plays=state.plays + 1.0)


class Undecorated(tacit.UniformRandom):
    tries: int = 10


@dataclass(frozen=True)
class Unannotated(tacit.UniformRandom):
    tries = 10


@dataclass(frozen=True)
class Unfinished(tacit.Policy):
    c: float = 1.0


# Logs -------------------------------------------------------------------------------------------


SHARES = {"film": 0.5, "song": 0.3, "game": 0.2}
DRAWN = pandas.DataFrame({"arm": np.random.default_rng(1).choice([*SHARES], 4000, p=[*SHARES.values()])})
DRAWN = DRAWN.assign(propensity=DRAWN["arm"].map(SHARES), reward=np.arange(4000) % 5 == 0)
HOURS = pandas.date_range("2026-01-01", periods=2000, freq="h", tz="UTC")
AGES = [18 + row * 7 % 60 for row in range(1000)]
SEARCHES = pandas.DataFrame(
    {
        "search": [f"s{row // 2}" for row in range(400)],
        "team": ["new", "old"] * 200,
        "position": [0, 1] * 200,
        "click": [1, 0, 0, 1, 0, 0, 0, 0] * 50,
    }
)


def write(name, *lines):
    """Write lines into a file; return its path."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def searches(rows=slice(None), form="csv", by=(), **columns):
    """Read searches of two results each, of which some columns are replaced, from a file."""
    table, path = SEARCHES.assign(**columns)[rows], Path(f"searches.{form}")
    table.to_csv(path, index=False) if form == "csv" else table.to_json(path, orient="records", lines=True)
    return read_interleaved(path, by=list(by))


def ranked(lists, rankings):
    """Write searches whose lists are drawn from two rankings, and that tell of other ones."""
    rng, row = np.random.default_rng(1), {"left": "old", "right": "new", "rankings": rankings, "clicks": [1]}
    shown = [TeamDraft(length=4).interleave(lists, rng).as_dict() for _ in range(200)]
    rows = (row | {"search": str(i), "interleaved": each} for i, each in enumerate(shown))
    return write("ranked.jsonl", *map(json.dumps, rows))


def listed(first=0, click=None):
    """Return a log of 200 lists of three."""
    return {
        "decision_id": [f"d{row // 3}" for row in range(600)],
        "arms": [["film", "song", "game"]] * 600,
        "arm": ["film", "song", "game"] * 200,
        "position": [first, first + 1, first + 2] * 200,
        "reward": click or [1, 0, 0, 0, 0, 0] * 100,
    }


def single(**columns):
    """Return a log of 2,000 decisions, an hour apart."""
    return {
        "timestamp": HOURS,
        "arms": [["film", "song"]] * 2000,
        "arm": ["film", "song"] * 1000,
        "reward": [0.0, 1.0, 1.0, 0.0] * 500,
    } | columns


def read_in_batches(columns):
    """Read a log from memory, CSV and Parquet, in batches; return what its report says, the same of each."""
    tacit.write_log(tacit.read_log(columns), "rows.csv")
    tacit.write_log(tacit.read_log(columns), "rows.parquet")
    readers = [tacit.read_log(log, batch_rows=170) for log in (columns, "rows.csv", "rows.parquet")]
    for reader in readers:
        list(reader)
    first, *others = ("\n".join(reader.report.warning_lines()) for reader in readers)
    assert [re.sub(r"rows\.(csv|parquet)", "log", each) for each in others] == [first, first]
    return first


# Many decisions ---------------------------------------------------------------------------------

IDS = np.random.default_rng(1).permutation(10_000)[:1000]


def ages(code):
    """Return ages, one in twenty of which is a code in place of a number."""
    return [code if row % 20 == 0 else age for row, age in enumerate(AGES)]


def choose_for(holds, values):
    """Choose once for each value of a context's only field."""
    one = learner(arms=ARMS, context={"field": holds})
    for value in values:
        one.choose(context={"field": value})


def choose_often(one):
    """Choose more often than decisions may go without a reward."""
    for _ in range(10_001):
        one.choose("home")
