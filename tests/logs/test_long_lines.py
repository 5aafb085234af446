"""Files with one long line take no more memory than a line may have, compressed or not."""

import gzip
import json
import tracemalloc

import pytest
from harness import served, with_home

from tacit.core.text import escape_controls
from tacit.feed import sources
from tacit.logs import formats
from tests.cli.test_cli import tacit

LONGEST, LONG = 2**16, 2**25


@pytest.fixture(autouse=True)
def short_lines(monkeypatch):
    """Let a line be long earlier, so that a test takes no time."""
    for module in (sources, formats):
        monkeypatch.setattr(module, "LONGEST_LINE", LONGEST)


def peak(action):
    """Return what an action returns, and how many bytes it took at most."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [b"1", b"1,"])
def test_a_row_of_csv_that_is_too_long_is_rejected_and_not_kept(tmp_path, part):
    path = tmp_path / "e.csv.gz"
    rows = b"decision,clicked\nx,0\ny," + part * (LONG // len(part)) + b'\nz,1\n"w\nw",1\nlast,1\n'
    path.write_bytes(gzip.compress(rows, 1))
    del rows
    found, most = peak(lambda: list(sources.read_events(str(path))))
    assert [one.reason for one in found] == ["", "bad-row", "", "", ""]
    assert found[1].detail == "a row of more than 65,536 characters; mend the row"
    assert [one.line for one in found] == [2, 3, 4, 5, 7]
    assert found[-1].event == {"decision": "last", "clicked": "1"}
    assert most < LONG / 4


def test_many_lines_that_are_one_row_are_too_long_together(tmp_path):
    path = tmp_path / "e.csv"
    path.write_bytes(b"a,b\n" + b'"x\n",' * LONGEST + b"y\n")
    found = list(sources.read_events(str(path)))
    assert found[0].detail == "a row of more than 65,536 characters; mend the row"


@pytest.mark.parametrize("begin", [b'{"decision": "', b"{}"])
def test_a_line_of_json_that_is_too_long_is_no_row_of_a_click_log(tmp_path, begin):
    path = tmp_path / "e.jsonl.gz"
    near = b'{"b": "' + b"x" * (LONGEST - 100) + b'"}\n'
    lines = b'{"a": 1}\n' + begin + b" " * LONG + b'"}\n{"a": 2}\n' + near * 400 + b'{"a": 3}'
    path.write_bytes(gzip.compress(lines, 1))
    del lines
    form = formats.FORMATS["json"]
    names, most = peak(lambda: form.names(path))
    assert names[0] == "a"
    assert most < LONG / 4
    # As many lines at once as there is room for.
    read, most = peak(lambda: [(len(raw.rows), len(raw.malformed)) for raw in form.read(path, ["a"], 1000)])
    assert sum(rows for rows, _ in read) == 403
    assert sum(bad for _, bad in read) == 1
    assert most < LONG / 4


def test_what_a_terminal_obeys_is_escaped_and_stays_json():
    text = 'é "\x7f \x9b31m \u202e \u2066'
    line = escape_controls(json.dumps({"key": text}, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line) == {"key": text}
    assert escape_controls("a\tb\nc") == "a\tb\nc"


async def test_a_key_with_controls_is_followed_without_them(tmp_path):
    path, key = tmp_path / "s.db", "\x9b31m \u202e\x7f"
    async with served(path, with_home(path, arms=2)) as engine:
        await engine.decide("home", key)
    came = tacit("log", "follow", "--store", path, "--once")
    lines = came.stdout.splitlines()
    assert all(map(str.isprintable, lines)), came.stdout
    assert key in [json.loads(line).get("key") for line in lines]
