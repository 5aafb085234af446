"""Large answers: made once, sent as fast as they are read, a few at once."""

import asyncio
import contextlib
import json
from types import SimpleNamespace

import pytest
from harness import PATIENCE, reached
from placement_access import copy_learner
from placement_access import reports as lending

from tacit.errors import UnknownName
from tacit.learning.learner import Learner
from tacit.learning.snapshot import iter_pieces
from tacit.policies import UCB1
from tacit.service.http.messages import AT_ONCE, LARGE, PIECE
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Impression
from tests.service.test_usual import Side, Transport

KEYS = 20_000
HIGH, LOW = 65_536, 16_384
"""Bytes that wait for a client, above which a connection halts and below which it goes on."""
LEARNER = "/v1/placements/home/learner"


class Reader(Transport):
    """A client that takes no more than the test lets it take."""

    def __init__(self, side, path, method=b"GET", body=b""):
        super().__init__()
        self.waiting, self.paused, self.ending, self.most = bytearray(), False, False, 0
        self.connection = side.connection(side.settings, side.state, {})
        self.connection.connection_made(self)
        self.ask(path, method, body)

    def ask(self, path, method=b"GET", body=b""):
        told = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        head = b"%s %s HTTP/1.1\r\nHost: localhost\r\n" % (method, path.encode())
        self.connection.data_received(head + (told if body else b"") + b"\r\n" + body)

    def write(self, data):
        if self.closed:
            return
        self.waiting += data
        self.most = max(self.most, len(self.waiting))
        if len(self.waiting) > HIGH and not self.paused:
            self.paused = True
            self.connection.pause_writing()

    def take(self, count):
        self.written += self.waiting[:count]
        del self.waiting[:count]
        if self.paused and len(self.waiting) <= LOW:
            self.paused = False
            self.connection.resume_writing()

    def close(self):
        """Close the connection when the client has taken what waits, as transports do."""
        self.ending = True

    def is_closing(self):
        return self.ending or self.closed

    def abort(self):
        if not self.closed:
            self.closed = True
            self.connection.connection_lost(None)

    def get_write_buffer_size(self):
        return len(self.waiting)

    @property
    def status(self):
        """The status that was sent, once one was."""
        return int((self.written + self.waiting)[9:12] or 0)

    async def all(self):
        """Take everything; return status, headers and content."""
        self.take(PIECE)
        await reached(lambda: b"\r\n\r\n" in self.written + self.waiting)
        self.take(PIECE)
        head, _, _ = self.written.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        size = len(head) + 4 + int(headers["content-length"])
        while len(self.written) < size:
            await reached(lambda: self.waiting or self.closed)
            assert not self.closed
            self.take(PIECE)
        return int(lines[0].split()[1]), headers, self.written[len(head) + 4 :]

    def elapsed(self, seconds):
        """Let time pass for the connection, in sweeps of a second."""
        for _ in range(seconds):
            self.connection.shared.clock += 1.0
            if not self.closed:
                self.connection.check()


def asked(key):
    return Impression(key, None, None)


@contextlib.asynccontextmanager
async def serving(tmp_path, **values):
    """Yield a service that has learned of many keys, and leave it at peace in the end."""
    side = Side(tmp_path / "s.db", short=True, **values)
    await side.start()
    try:
        await side.engine.decide_many("home", [asked(f"key {i}") for i in range(KEYS)])
        async with asyncio.timeout(PATIENCE):
            yield side
    finally:
        for connection in list(side.state.connections):
            connection.transport.abort()
        await reached(lambda: not side.state.tasks)
        await side.engine.stop()


@pytest.fixture
def made(monkeypatch):
    """Count how often the bytes of a learner are made."""
    files = []

    def counted(snapshot):
        files.append(snapshot)
        return views(snapshot)

    views = lending.iter_views
    monkeypatch.setattr(lending, "iter_views", counted)
    return files


def file_of(side):
    return b"".join(iter_pieces(copy_learner(side.engine.placements["home"])))


async def test_readers_who_do_not_read_share_one_file(tmp_path, made):
    async with serving(tmp_path) as side:
        readers = [Reader(side, LEARNER) for _ in range(10)]
        await reached(lambda: all(reader.status for reader in readers))
        statuses = [reader.status for reader in readers]
        assert (statuses.count(200), statuses.count(429)) == (AT_ONCE, 10 - AT_ONCE)
        # Whoever does not read keeps two pieces, not the whole.
        assert max(reader.most for reader in readers) < 3 * PIECE
        refused = readers[statuses.index(429)]
        _, headers, problem = await refused.all()
        assert int(headers["retry-after"]) > 0
        assert json.loads(problem)["type"] == "urn:tacit:problem:too-many-requests"
        expected = file_of(side)
        assert len(expected) > LARGE
        for reader in readers:
            if reader.status == 200:
                assert (await reader.all())[2] == expected
        assert len(made) == 1
        # There is room again, and nothing was learned since.
        refused.written = b""
        refused.ask(LEARNER)
        assert (await refused.all())[2] == expected
        assert len(made) == 1


async def test_who_reads_nothing_or_next_to_nothing_is_cut_off(tmp_path):
    async with serving(tmp_path) as side:
        silent, trickling = Reader(side, LEARNER), Reader(side, LEARNER)
        await reached(lambda: silent.paused and trickling.paused)
        for _ in range(8):
            trickling.take(1)
            trickling.elapsed(10)
            silent.connection.check()
        assert silent.closed
        assert trickling.closed
        assert side.connection.shared.ended["send_timeout"] == 2
        # And their places are free.
        await reached(lambda: not side.state.tasks)
        readers = [Reader(side, LEARNER) for _ in range(AT_ONCE)]
        await reached(lambda: all(reader.status for reader in readers))
        assert {reader.status for reader in readers} == {200}


async def test_who_reads_slowly_but_steadily_gets_it_all(tmp_path):
    """For much longer than a client may take nothing."""

    async with serving(tmp_path) as side:
        reader = Reader(side, LEARNER)
        expected, limit = file_of(side), side.config.server.send_timeout
        stretches = 0
        while not reader.written.endswith(expected):
            await reached(lambda: reader.paused or reader.waiting.endswith(expected[-99:]))
            reader.elapsed(int(limit) - 5)
            reader.take(2 * PIECE)
            assert not reader.closed
            stretches += 1
        assert stretches > 3


async def test_any_large_answer_takes_one_of_the_places(tmp_path):
    many = json.dumps({"decisions": [{"key": "a"}] * 1000}).encode()
    long = {"arms": [f"{i} {'x' * 300}" for i in range(1000)], "policy": "ucb1"}
    async with serving(tmp_path, placements={"home": {"arms": 2, "policy": "ucb1"}, "shop": long}) as side:
        readers = [Reader(side, "/v1/placements") for _ in range(AT_ONCE)]
        await reached(lambda: all(reader.status for reader in readers))
        assert (await Reader(side, "/v1/placements").all())[0] == 429
        # What is small is answered all the same, and what was done is told.
        assert (await Reader(side, "/v1/placements/home/history").all())[0] == 200
        status, _, content = await Reader(side, "/v1/placements/shop/decide/batch", b"POST", many).all()
        assert (status, len(json.loads(content)["decisions"])) == (200, 1000)
        assert len(content) > LARGE
        status, _, content = await readers[0].all()
        assert (status, len(json.loads(content)["placements"])) == (200, 2)
        nothing = Reader(side, "/v1/placements", b"HEAD")
        await reached(lambda: nothing.status == 200)


async def test_a_file_is_made_anew_when_something_was_learned(tmp_path, made, monkeypatch):
    """A large one is given for a moment longer; a small one never."""

    async with serving(tmp_path) as side:
        engine = side.engine
        first = await engine.export_replica("home")
        assert await engine.export_replica("home") is first
        await engine.decide_many("home", [asked("a")])
        assert await engine.export_replica("home") is first
        engine.replica_files.fresh.clear()
        assert b"".join(await engine.export_replica("home")) == file_of(side) != b"".join(first)
        monkeypatch.setattr(lending, "LARGE", 10 * LARGE)
        await engine.decide_many("home", [asked("b")])
        engine.replica_files.fresh.clear()
        now = await engine.export_replica("home")
        await engine.decide_many("home", [asked("c")])
        assert await engine.export_replica("home") is not now
        assert len(made) == 4


async def test_of_what_is_huge_memory_holds_two_states(tmp_path, made, monkeypatch):
    """However many come, one after the other, while more and more is learned."""
    monkeypatch.setattr(lending, "MOST_BYTES", 0)
    monkeypatch.setattr(lending, "KEPT_SECONDS", 0.0)
    async with serving(tmp_path) as side:
        readers = []
        for place in range(AT_ONCE):
            readers.append(Reader(side, LEARNER))
            await reached(lambda: readers[-1].status and not side.engine.replica_files.fresh)
            await side.engine.decide_many("home", [asked(f"later {place}")])
        assert [reader.status for reader in readers] == [200, 200, 429, 429]
        assert int((await readers[-1].all())[1]["retry-after"]) > 0
        assert len(made) == 2
        # One that was taken makes room.
        await readers[0].all()
        assert (await Reader(side, LEARNER).all())[2] == file_of(side)


async def test_what_fails_fails_for_all_who_asked_and_nobody_after():
    class Lender:
        def __init__(self):
            self.there, self.learner = False, Learner(UCB1(2), seed=0)
            self.policy = SimpleNamespace(draws=Draws(0))
            self.learner.choose("a")

        def placement(self, name):
            return self if self.there or name == "soon" else missing(name)

        async def run_between_groups(self, step):
            if not self.there:
                missing("step")
            await step()

        async def read_frozen(self, read):
            return read(1, 2)

    def missing(name):
        raise UnknownName(f"placement: {name!r}")

    lender = Lender()
    files = lending.ReplicaFiles(lender, lender)
    with pytest.raises(UnknownName):
        await files.get_file("never", 1)
    found = await asyncio.gather(*[files.get_file("soon", 1) for _ in range(3)], return_exceptions=True)
    assert [type(one) for one in found] == [UnknownName] * 3
    lender.there = True
    one, two = await asyncio.gather(files.get_file("soon", 1), files.get_file("soon", 1))
    assert one is two
