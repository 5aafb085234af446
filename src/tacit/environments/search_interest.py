"""An environment of one query whose intent follows real search interest, day by day."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import expected
from tacit.core.part import Fraction, set_field
from tacit.environments.base import Environment
from tacit.errors import InvalidValue
from tacit.policies.base import Impression


@dataclass(frozen=True)
class SearchInterest(Environment):
    """A query with one candidate result per topic, clicked by the day's share of interest in the topic.

    Between two days of the table the interest in each topic is interpolated linearly. Traffic is
    proportional to the total interest: a run of any horizon covers the whole period, and a day
    with twice the interest gets twice the impressions. A candidate is clicked with probability
    floor + (ceiling − floor)·(its share of the interest at that time).

    Parameters
    ----------
    path : str or path
        A CSV file: the first column a date (ISO 8601), one column of interest per topic, one
        row per day in order.
    floor, ceiling : float, default 0.02 and 0.5
        Click probabilities of a candidate with no share and with all of the interest.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the file has an invalid row.

    References
    ----------
    Syed, Slivkins, Mishra (2009), section 9, proposes this setting.

    Examples
    --------
    >>> import tempfile, pathlib, tacit
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "interest.csv"
    >>> _ = path.write_text("date,holiday,film\\n1996-07-02,80,0\\n1996-07-05,10,90\\n")
    >>> environment = tacit.environments.SearchInterest(path)
    >>> environment.topics
    ('holiday', 'film')
    """

    class World(NamedTuple):
        impression: Impression
        interest: Floats  # (days, topics)
        total: Floats  # (days,)
        ends: Floats  # (days − 1,) round by which the interval after a day has passed
        day: Ints  # (1,) the present interval
        part: Floats  # (1,) how far into it, in [0, 1]
        uniform: Floats

    path: str | Path
    floor: Fraction = 0.02
    ceiling: float = 0.5

    def __post_init__(self) -> None:
        """Validate the parameters and read the file; raise InvalidValue if one is invalid."""
        super().__post_init__()
        set_field(self, "path", str(self.path))
        set_field(self, "ceiling", checks.number("ceiling", self.ceiling, self.floor, 1.0))
        _ = self._table

    @cached_property
    def _table(self) -> tuple[tuple[str, ...], tuple[date, ...], Floats]:
        """Topics, dates and interest, read from the file once."""
        return read_interest(Path(self.path))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, which are the arms."""
        return self._table[0]

    @property
    def dates(self) -> tuple[date, ...]:
        """The days of the table."""
        return self._table[1]

    @property
    def interest(self) -> Floats:
        """The interest, shape (days, topics)."""
        return self._table[2]

    @property
    def arm_count(self) -> int:
        """Number of arms: the number of topics."""
        return len(self.topics)

    def world(self, rng: Generator, horizon: int) -> World:
        """Return the arrays of one run; the days' rounds are proportional to their total interest."""
        total = self.interest.sum(axis=1)
        passed = np.cumsum(0.5 * (total[1:] + total[:-1]))
        return self.World(
            impression=Impression(np.arange(self.arm_count), np.zeros(0)),
            interest=np.ascontiguousarray(self.interest),
            total=total,
            ends=horizon * passed / passed[-1],
            day=np.zeros(1, np.int64),
            part=np.zeros(1),
            uniform=np.zeros(1),
        )

    @staticmethod
    def arrive(params: SearchInterest, world: World, round: int, rng: Generator) -> int:
        """Move to the day of the round, and draw the uniform number that decides the click; return lane 0.

        The day and how far it has passed are written to ``world``.
        """
        day, last = world.day[0], len(world.ends) - 1
        while day < last and round + 0.5 >= world.ends[day]:
            day += 1
        world.day[0] = day
        start = world.ends[day - 1] if day > 0 else 0.0
        length = world.ends[day] - start
        world.part[0] = min((round + 0.5 - start) / length, 1.0) if length > 0.0 else 0.0
        world.uniform[0] = rng.random()
        return 0

    @staticmethod
    def expected(params: SearchInterest, world: World, lane: int, arm: int) -> float:
        """Return the click probability of an arm, from its share of the present interest."""
        day, part = world.day[0], world.part[0]
        today, tomorrow = world.interest[day, arm], world.interest[day + 1, arm]
        total = (1.0 - part) * world.total[day] + part * world.total[day + 1]
        share = ((1.0 - part) * today + part * tomorrow) / total
        return float(params.floor + (params.ceiling - params.floor) * share)

    @staticmethod
    def optimum(params: SearchInterest, world: World, lane: int) -> float:
        """Return the highest click probability of any arm at present."""
        best = 0.0
        for arm in range(world.interest.shape[1]):
            best = max(best, expected(params, world, lane, arm))
        return best


def read_interest(path: Path) -> tuple[tuple[str, ...], tuple[date, ...], Floats]:
    """Read a CSV table of dates and topics; return topics, dates and interest, shape (days, topics).

    Raises
    ------
    InvalidValue
        If the file is invalid; the error names the file, the row and the column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue("path", str(path), f"it cannot be read: {error}") from error
    if len(rows) < 3 or len(rows[0]) < 2:
        raise InvalidValue("path", str(path), "give a header, two days or more and a topic or more")
    topics = tuple(rows[0][1:])
    dates, values = [], []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise InvalidValue(f"{path}, row {number}", row, f"give {len(rows[0])} columns")
        try:
            dates.append(date.fromisoformat(row[0]))
        except ValueError:
            raise InvalidValue(f"{path}, row {number}, date", row[0], "give YYYY-MM-DD") from None
        values.append([_parse_interest(path, number, *cell) for cell in zip(topics, row[1:], strict=True)])
        if sum(values[-1]) <= 0.0:
            raise InvalidValue(f"{path}, row {number}", row, "give some interest on every day")
    if len(set(topics)) < len(topics) or sorted(set(dates)) != dates:
        raise InvalidValue("path", str(path), "give distinct topics, and days in increasing order")
    return topics, tuple(dates), np.array(values)


def _parse_interest(path: Path, number: int, topic: str, text: str) -> float:
    """Return the interest in a cell; raise InvalidValue unless it is a finite number of at least 0.

    The error names the file, the row ``number`` and the topic.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < np.inf:
        raise InvalidValue(f"{path}, row {number}, {topic}", text, "give a number of at least 0")
    return value
