"""The process beside the service that sends its log to a topic, watched over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.service.config.schema import ExportConfig, StoreConfig

PROGRAM = "tacit.service.maintenance.outgoing"
PAUSE_SECONDS = 5.0
"""After which it is started anew, if it ended."""
LAST_WORDS = 1000

logger = logging.getLogger(__name__)


def check_export(export: ExportConfig, *, shards: bool) -> None:
    """Check that a log can be sent where a configuration says.

    Raises
    ------
    ConfigError
        If that is no address, or the log is dealt out to shards.
    MissingExtra
        If the client of Kafka is not installed.
    """
    from tacit.events.topics import address_of

    if shards:
        raise ConfigError("export.kafka: the log is dealt out to shards, which are not sent; leave it out")
    try:
        address_of(export.kafka)
    except InvalidValue as error:
        raise ConfigError(f"export.kafka: {error}") from error


async def sent_on(store: StoreConfig, export: ExportConfig) -> None:
    """Let a process of its own send the log of a store to a topic, until it is cancelled."""
    task = msgspec.json.encode({"store": store, "export": export}) + b"\n"
    while True:
        # It ends with its input, and so even if this process is killed.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            said = await asyncio.to_thread(_last_words, process, task)
        finally:
            process.kill()
        logger.warning("export: it ended and is started anew in %g s: %s", PAUSE_SECONDS, said)
        await asyncio.sleep(PAUSE_SECONDS)


def _last_words(process: subprocess.Popen[bytes], task: bytes) -> str:
    """Give a process its task, and return what it said in the end."""
    assert process.stdin is not None
    assert process.stderr is not None
    with process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(task)
            process.stdin.flush()
        return process.stderr.read().decode(errors="replace").strip()[-LAST_WORDS:]
