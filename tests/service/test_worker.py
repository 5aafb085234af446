"""The thread that does what blocks."""

import asyncio
import threading

import pytest
from harness import PATIENCE
from placement_access import Worker


async def test_calls_are_done_in_order_in_one_thread_and_all_before_it_stops():
    done = []

    def note(number):
        done.append((number, threading.current_thread().name))
        return number

    worker = Worker("worker")
    calls = [worker.do(note, number) for number in range(100)]
    worker.stop()
    assert len(done) == 100
    assert await asyncio.gather(*calls) == list(range(100))
    assert done == [(number, "worker") for number in range(100)]


async def test_what_a_call_raises_reaches_its_caller_and_no_other():
    def fail():
        raise KeyError("gone")

    worker = Worker("worker")
    failed, fine = worker.do(fail), worker.do(int, "7")
    with pytest.raises(KeyError, match="gone"):
        await failed
    assert await fine == 7
    worker.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        worker.do(int)


async def test_a_caller_that_gave_up_harms_nobody():
    begun, go_on = threading.Event(), threading.Event()

    def wait():
        begun.set()
        go_on.wait(PATIENCE)

    worker = Worker("worker")
    call = worker.do(wait)
    await asyncio.to_thread(begun.wait, PATIENCE)
    call.cancel()
    go_on.set()
    assert await worker.do(int, "7") == 7
    worker.stop()
