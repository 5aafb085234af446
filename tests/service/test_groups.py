"""The service's groups: repeated decisions, the order of the log, when to snapshot."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

from harness import PATIENCE, START, quiet, reached, served, with_policy
from hypothesis import given
from hypothesis import strategies as st
from placement_access import decide, fold, get_outcomes, patch_internal
from stores import WrappedStore

import tacit
from tacit.errors import UnknownName
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.errors import InConflict, UnknownDecision
from tacit.service.log.ids import create_decision_id, create_decision_ids
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import ChangeRow, FeedbackRow, merge_rows

WINDOW = 30_000_000


class Counting(WrappedStore):
    """A store that counts its snapshots."""

    count = 0

    def save_in_steps(self, *told):
        self.count += 1
        return self._store.snapshots.save_in_steps(*told)


configured = partial(with_policy, tacit.Thompson(3))


async def test_feedback_of_one_batch_may_name_a_decision_again(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        first = (await engine.decide("home", "film")).id
        second = (await engine.decide("home", "holiday")).id
        told = [
            FeedbackRequest(first, reward=1.0, id="a"),
            FeedbackRequest(second, reward=1.0),
            FeedbackRequest(first, reward=1.0, id="a"),
            FeedbackRequest(first, reward=0.5, id="a"),
            FeedbackRequest("nobody", reward=1.0),
            FeedbackRequest(first, reward=1.0, id="b"),
        ]
        outcomes = await engine.record_many("home", told)
        kinds = [one if isinstance(one, str) else type(one) for one in outcomes]
        assert kinds == ["learned", "learned", "duplicate", InConflict, UnknownDecision, "repeated"]
        assert get_outcomes(engine.placement("home")) == {"learned": 2, "repeated": 1}


async def test_a_request_whose_placement_has_gone_leaves_its_group_alone(tmp_path, monkeypatch):
    """The request had been checked when its placement was taken out of the configuration."""

    placement = PlacementConfig(tacit.Thompson(3), 7)
    both, one = Config({"home": placement, "gone": placement}), Config({"home": placement})
    async with served(tmp_path / "s.db", both) as engine:
        begins, goes_on = threading.Event(), threading.Event()

        def slowly(*given):
            begins.set()
            assert goes_on.wait(PATIENCE)
            fold(*given)

        patch_internal(monkeypatch, fold=slowly)
        reloading = asyncio.create_task(engine.reload(one))
        await reached(begins.is_set)
        asked = [asyncio.create_task(engine.decide(name, "film")) for name in ("gone", "home")]
        await asyncio.sleep(0)
        goes_on.set()
        gone, home = await asyncio.gather(*asked, return_exceptions=True)
        await reloading
        assert isinstance(gone, UnknownName)
        assert home.arm in range(3)
        assert engine.writer.failure is None


class Unheard(asyncio.Future):
    """A reply; where it is a decision for a film, its listener fails."""

    def set_result(self, result):
        super().set_result(result)
        if isinstance(result, Sequence) and result[0].key == "film":
            raise RuntimeError("nobody listens")


async def test_an_answer_that_cannot_be_given_leaves_its_group_alone(tmp_path, caplog):
    async with served(tmp_path / "s.db", configured()) as engine:
        loop = asyncio.get_running_loop()
        loop.create_future = lambda: Unheard(loop=loop)
        asked = [asyncio.create_task(engine.decide("home", key)) for key in ("film", "tea")]
        await asyncio.sleep(0)
        del loop.create_future
        for row in await asyncio.gather(*asked):
            assert row.arm in range(3)
        assert engine.writer.failure is None
    assert "nobody listens" in caplog.text


async def test_snapshots_are_spaced_by_what_they_hold(tmp_path):
    """400 keys, ten at a time: each waits for as many events as the one before held."""

    async with served(tmp_path / "s.db", configured(snapshot_every=10), wrap=Counting) as engine:
        home = engine.placement("home")
        for first in range(0, 400, 10):
            await decide(engine, *[DecisionRequest(f"key {first + i}") for i in range(10)])
            await quiet(engine)
            engine.clock.now += WINDOW
        # After 10 events, 30, 70, 150 and 310: ten windows were open each time.
        assert engine.store.count == 5
        assert home.snapshot_after == 310 + 10


@given(st.lists(st.booleans(), max_size=60))
def test_the_log_is_read_in_order(kinds):
    feedback = [FeedbackRow(i, 1, 1, None, 0, "reward", 1.0) for i, k in enumerate(kinds) if k]
    marks = [ChangeRow(i, None, 0, "tick", "") for i, k in enumerate(kinds) if not k]
    merged = merge_rows([iter(feedback), iter(()), iter(marks)])
    assert [row.seq for row in merged] == list(range(len(kinds)))


def test_ids_of_a_group_are_uuids_of_version_7():
    ids = create_decision_ids(START, 1000)
    assert len(set(ids)) == 1000
    for id in (create_decision_id(START), *ids):
        assert id[:18] == "018bcfe5-6800-7000"
        assert len(id) == 36
        assert id[19] in "89ab"
