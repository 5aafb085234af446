"""``tacit items``: the catalogue of a placement of a running service, filled and looked at."""

from collections.abc import Iterator
from typing import Any

import click

from tacit.cli.options import Existing, Json, usage
from tacit.cli.parameters import command
from tacit.cli.placement import ServiceOptions, show_answer
from tacit.core.spread import progress

BYTES = 800_000
"""Of a request, below the service's usual batch_limit."""
DIGITS = 9
"""Bytes of a number in it, at most, with what separates it."""
MOST = 1000


@click.group()
def items() -> None:
    """Fill the catalogue of a placement of a running service, and look at it."""


@command(group=items)
def load(name: str, file: Existing, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Put the items of FILE into the catalogue of the placement NAME.

    FILE has the columns id and vector, a list of numbers, perhaps segment: Parquet, or JSON lines. Items that
    are there get these vectors; none is taken out. Stopped half-way, load it again.
    """
    with usage():
        batches = list(_batches(file))
    now: Any = None
    with service.client() as client, progress(len(batches), "putting items") as advance:
        for ids, vectors, segments in batches:
            now = client.put_items(name, ids, vectors, segments)
            advance(1)
    show_answer(now, said(now), as_json)


def _batches(file: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the items of a file, as many at once as a request holds."""
    from tacit.logs.items import item_batches

    for batch in item_batches(file):
        size = max(1, min(MOST, BYTES // (DIGITS * batch.vectors.shape[1] + 600)))
        ids, segments = batch.ids.to_pylist(), batch.segments.to_pylist()
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            yield ids[part], batch.vectors[part], segments[part]


@command(group=items)
def remove(name: str, ids: tuple[str, ...], service: ServiceOptions, *, as_json: Json = False) -> None:
    """Take items, by their IDS, out of the catalogue of the placement NAME: all of them, or none."""
    with service.client() as client:
        now = client.remove_items(name, ids)
    show_answer(now, said(now), as_json)


@command(group=items)
def count(name: str, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Say how many items the catalogue of the placement NAME has."""
    with service.client() as client:
        now = client.items(name)
    show_answer(now, said(now), as_json)


def said(now: Any) -> str:
    """Return what a catalogue has, as text."""
    segments = [f"  {segment}: {size:,}" for segment, size in sorted(now.segments.items())]
    return "\n".join([f"{now.count:,} items, version {now.version:,}", *segments[:20]])
