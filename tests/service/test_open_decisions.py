"""Open decisions: blocks that are joined, deadlines as columns, and how many there may be."""

import re

import httpx
import pytest
from click.testing import CliRunner
from drawn import examples
from harness import SECOND, Clock, run_in_thread, served, with_home
from hypothesis import given
from hypothesis import strategies as st
from placement_access import MAX_JOINED_ROWS, SMALL_BLOCK, OpenWindows

import tacit
from tacit.cli import cli
from tacit.service.config.schema import Config, PlacementConfig, Rule, ServerConfig
from tacit.service.errors import Overloaded
from tacit.service.log.rows import DecisionRow

SIZES = st.lists(
    st.sampled_from([1, 1, 1, 2, 7, SMALL_BLOCK - 1, SMALL_BLOCK, MAX_JOINED_ROWS, MAX_JOINED_ROWS + 1]),
    max_size=12,
)


def rows_from(seq, count, time):
    return [DecisionRow(i, f"id {i}", 1, 1, time, f"key {i}", None, i % 3, 0.5, 0, None)
            for i in range(seq, seq + count)]  # fmt: skip


@given(SIZES, st.integers(1, 5), st.integers(0, 2))
@examples(40)
def test_each_is_found_whatever_blocks_it_came_in_until_its_window_closes(sizes, window, gap):
    windows = OpenWindows(Rule(window=window))
    made, seq = [], 1
    for time, size in enumerate(sizes):
        assert len(windows.advance(time)) == sum(row.time + window == time for row in made)
        rows = rows_from(seq, size, time)
        seq += size + gap
        windows.open(*rows)
        made += rows
        held = [row for row in made if row.time + window > time]
        assert len(windows) == len(held)
        assert [windows.find(row.id) for row in held] == held
        assert [windows.find_row(row.seq) for row in held] == held
        assert all(windows.find(row.id) is None for row in made if row not in held)
    assert [row for row, *_ in windows.export_open()] == [
        row for row in made if row.time + window > len(sizes) - 1
    ]


def test_a_field_of_all_is_changed_and_more_come_after_it():
    windows = OpenWindows(Rule(window=100))
    windows.open(*rows_from(1, 3, 0))
    windows.apply_to_field("arm", lambda arm: arm + 10)
    windows.open(*rows_from(4, 2, 0))
    assert [windows.find_row(seq).arm for seq in range(1, 6)] == [11, 12, 10, 1, 2]


def test_more_than_may_be_open_are_refused_until_windows_close(tmp_path):
    with run_in_thread(with_home(tmp_path / "s.db", values={"server.open_decisions": 3}, arms=2)) as url:

        def asked(path, **body):
            answer = httpx.post(f"{url}/v1/placements/home/{path}", json=body)
            return answer.status_code, answer.headers.get("retry-after"), answer.json()

        first = asked("decide", key="film", decision_id="first")
        for _ in range(2):
            assert asked("decide", key="film")[0] == 200
        refused = asked("decide", key="film")
        assert refused[:2] == (503, "5")
        assert refused[2]["type"] == "urn:tacit:problem:overloaded"
        assert refused[2]["detail"] == (
            "service: 3 decisions are open, and server.open_decisions allows 3; "
            "try again when windows have closed"
        )
        assert asked("decide/batch", decisions=[{"key": "film"}])[:2] == (503, "5")
        # What is there already is answered, and learned.
        assert asked("decide", key="film", decision_id="first") == first
        assert asked("feedback", decision_id="first", reward=1)[0] == 200
        metrics = httpx.get(f"{url}/metrics").text
        assert 'tacit_open_windows{placement="home"} 3.0' in metrics
        assert re.search(r'tacit_open_windows_bytes\{placement="home"\} [1-9]\.?\d*', metrics)
        found = CliRunner().invoke(cli, ["doctor", "--url", url])
        assert re.search("placement home: decisions whose windows are open take [0-9,]+ bytes", found.output)


async def test_there_is_room_again_when_windows_close_and_placements_go(tmp_path):
    clock, rule = Clock(), Rule(window=30 * SECOND)
    home, side = (PlacementConfig(tacit.UCB1(2), seed, rule=rule) for seed in (1, 2))
    server = ServerConfig(open_decisions=2)
    async with served(
        tmp_path / "s.db", Config({"home": home, "side": side}, server=server), clock=clock
    ) as engine:
        await engine.decide("home", "a")
        await engine.decide("side", "a")
        for name in ("home", "side"):
            with pytest.raises(Overloaded, match="2 decisions are open"):
                await engine.decide(name, "b")
        clock.now += 31 * SECOND
        await engine.decide("home", "b")
        await engine.decide("side", "b")
        await engine.reload(Config({"home": home}, server=server))
        await engine.decide("home", "c")
        with pytest.raises(Overloaded):
            await engine.decide("home", "d")
        await engine.reload(Config({"home": home}, server=ServerConfig(open_decisions=3)))
        await engine.decide("home", "d")


def test_what_a_decision_takes_is_said_nearly():
    windows = OpenWindows(Rule(window=100))
    before = windows.bytes
    windows.open(*rows_from(1, 1000, 0))
    assert 400 < (windows.bytes - before) / 1000 < 800
