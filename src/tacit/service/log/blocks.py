"""Blocks: many rows of one kind as columns, where one Python object per row would be too slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeVar, overload

Row = TypeVar("Row", bound=tuple[Any, ...])


@cache
def _field_indices(kind: Any) -> dict[str, int]:
    """Return the index of each field of a named tuple class, by name."""
    return {field: place for place, field in enumerate(kind._fields)}


class Block(Sequence[Row], Generic[Row]):
    """A sequence of named tuples that is stored as columns.

    Parameters
    ----------
    kind : type
        The class of the named tuples.
    columns : sequence of list
        A list for each field, all of the same length.

    Examples
    --------
    >>> from tacit.service.log.store import End
    >>> block = Block(End, [[1, 2, 3], [100, 100, 200]])
    >>> block[1], block.column("time")
    (End(seq=2, time=100), [100, 100, 200])
    >>> list(Block.from_rows(End, [End(4, 300)]))
    [End(seq=4, time=300)]
    """

    __slots__ = ("columns", "kind")

    def __init__(self, kind: Callable[..., Row], columns: Sequence[list[Any]]) -> None:
        self.kind: Any = kind
        self.columns = columns

    @classmethod
    def from_rows(cls, kind: Any, rows: Iterable[Row]) -> Block[Row]:
        """Return rows as a block of columns; a block is returned unchanged."""
        if type(rows) is Block:
            return rows
        return cls(kind, list(map(list, zip(*rows, strict=True))) or [[] for _ in kind._fields])

    @classmethod
    def concatenate(cls, kind: Any, parts: Sequence[Sequence[Row]]) -> Block[Row]:
        """Return a block of the rows of all parts, in order."""
        if any(type(part) is not Block for part in parts):
            return cls.from_rows(kind, chain.from_iterable(parts))
        if len(parts) == 1:
            return parts[0]  # type: ignore[return-value]
        columns = zip(*(part.columns for part in parts), strict=True)  # type: ignore[attr-defined]
        return cls(
            kind, [list(chain.from_iterable(lists)) for lists in columns] or [[] for _ in kind._fields]
        )

    def column(self, field: str) -> list[Any]:
        """Return the values of a field, one for each row."""
        return self.columns[_field_indices(self.kind)[field]]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Row]:
        # map and zip run in C; a Python loop would dominate the time of a row.
        return map(self.kind._make, zip(*self.columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Block[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Block[Row]:
        if isinstance(index, slice):
            return Block(self.kind, [column[index] for column in self.columns])
        row: Row = self.kind._make(map(itemgetter(index), self.columns))
        return row

    def with_column(self, field: str, values: list[Any]) -> Block[Row]:
        """Return a new block in which ``values`` replace a field; the other columns are shared."""
        columns = list(self.columns)
        columns[_field_indices(self.kind)[field]] = values
        return Block(self.kind, columns)

    def take(self, places: Sequence[int]) -> Block[Row]:
        """Return a new block of the rows at some indices, in the order of the indices."""
        if len(places) < 2:
            return Block(self.kind, [[column[i] for i in places] for column in self.columns])
        # The getter runs in C. Fields without values often share a column.
        pick, distinct = itemgetter(*places), {id(column): column for column in self.columns}
        taken = {number: list(pick(column)) for number, column in distinct.items()}
        return Block(self.kind, [taken[id(column)] for column in self.columns])


def split_distinct(rows: Block[Row], field: str) -> Iterator[Block[Row]]:
    """Yield the block in consecutive parts, in each of which the values of a field are distinct.

    A new part begins at each row that repeats a value of its part.

    Examples
    --------
    >>> from tacit.service.log.store import End
    >>> block = Block(End, [[1, 1, 2], [100, 100, 200]])
    >>> [part.column("seq") for part in split_distinct(block, "seq")]
    [[1], [1, 2]]
    """
    values = rows.column(field)
    if len(set(values)) == len(values):
        yield rows
        return
    start = 0
    distinct_values: set[Any] = set()
    for i, value in enumerate(values):
        if value in distinct_values:
            yield rows[start:i]
            start, distinct_values = i, set()
        distinct_values.add(value)
    yield rows[start:]


def column_values(rows: Sequence[Any], field: str) -> list[Any]:
    """Return a list of one field's values, one for each row of a block or another sequence."""
    # isinstance() with an abstract class would take most of the time.
    return rows.column(field) if type(rows) is Block else [getattr(row, field) for row in rows]
