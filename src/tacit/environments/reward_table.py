"""An environment that plays a table: each row has the reward that each arm would have had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.part import Flag, set_field
from tacit.core.reward_range import UNIT_RANGE, read_range
from tacit.environments.base import Environment
from tacit.errors import InvalidValue
from tacit.policies.base import Impression

ARMS_HINT = "if other columns than arms' rewards are in it, name those of the arms: arms=[...] (--arms a,b)"


@dataclass(frozen=True)
class RewardTable(Environment):
    """One key; in each round the rewards of all arms are a row of a table, of which the policy sees one.

    Regret is the reward of the arm whose column has the largest sum, minus the reward of the arm shown: over
    all rows the policy's reward and its regret sum to that column. A horizon beyond the last row begins
    again with the first one.

    Parameters
    ----------
    table : path, or table in memory
        As :func:`tacit.read_log` takes it: Parquet, CSV, JSON lines, or a data frame; a column an arm.
    arms : sequence of str, optional
        The columns of the arms; by default all columns.
    shuffled : bool, default False
        Whether each run has the rows in an order of its own; else they are played in their order.
    reward_range : (float, float), (float, None) or None, default (0, 1)
        The lowest and the highest reward; None where there is none.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If there is no row or no such column, or a cell is no number in the range.

    Examples
    --------
    >>> import tacit
    >>> table = {"film": [0, 1, 0, 1], "song": [1, 0, 0, 0]}
    >>> environment = tacit.environments.RewardTable(table)
    >>> environment.sums
    {'film': 2.0, 'song': 1.0}
    >>> result = tacit.simulate(tacit.auto(arms=2), environment, horizon=4, seed=1)
    >>> (result.reward + result.regret)[0, :, -1].tolist()
    [2.0]
    """

    class World(NamedTuple):
        impression: Impression
        rewards: Floats  # (rows, arms)
        order: Ints  # (rows,)
        row: Ints  # (1,) the present row
        best: int

    table: Any
    arms: Any = None
    shuffled: Flag = False
    reward_range: Annotated[Any, read_range] = UNIT_RANGE

    def __post_init__(self) -> None:
        """Validate the parameters and read the table; raise InvalidValue if one is invalid."""
        super().__post_init__()
        if isinstance(self.table, Path):
            set_field(self, "table", str(self.table))
        if self.arms is not None:
            set_field(self, "arms", tuple(map(str, checks.as_list(self.arms))))
        _ = self._content

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example: a table in which each arm is clicked in every second row, or more seldom."""
        return cls({f"arm {arm}": [float(row % (arm + 2) == 0) for row in range(60)] for arm in range(arms)})

    @cached_property
    def _content(self) -> tuple[tuple[str, ...], Floats]:
        """Names of the arms and their rewards, shape (rows, arms), read from the table once."""
        names, rewards = read_rewards(self.table, self.arms)
        outside = np.argwhere(~self.reward_range.contains(rewards))
        if len(outside):
            row, arm = outside[0].tolist()
            value = float(rewards[row, arm])
            remedy = f"{self.reward_range.remedy(value)}; {ARMS_HINT}"
            raise InvalidValue(f"table, row {row + 1}, {names[arm]}", value, remedy)
        return names, rewards

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms, which are names of columns."""
        return self._content[0]

    @property
    def rewards(self) -> Floats:
        """The rewards, shape (rows, arms)."""
        return self._content[1]

    @property
    def sums(self) -> dict[str, float]:
        """Sum of each arm's rewards over all rows, by name."""
        return dict(zip(self.names, self.rewards.sum(axis=0).tolist(), strict=True))

    @property
    def arm_count(self) -> int:
        """Number of arms, which are columns of the table."""
        return len(self.names)

    @property
    def setting(self) -> dict[str, Any]:
        """A dict of the arguments of :func:`tacit.auto`, without ``arms``: the range, if it is not [0, 1]."""
        has_other_range = self.reward_range != UNIT_RANGE
        return super().setting | ({"reward_range": self.reward_range} if has_other_range else {})

    def world(self, rng: Generator, horizon: int) -> World:
        """Return the arrays of one run: the rewards, and the order in which rows are played."""
        rows = len(self.rewards)
        return self.World(
            impression=Impression(np.arange(self.arm_count), np.zeros(0)),
            rewards=self.rewards,
            order=rng.permutation(rows) if self.shuffled else np.arange(rows),
            row=np.zeros(1, np.int64),
            best=int(np.argmax(self.rewards.sum(axis=0))),
        )

    @staticmethod
    def arrive(params: Any, world: World, round: int, rng: Generator) -> int:
        """Move to the next row, after the last one to the first again; return lane 0."""
        world.row[0] = world.order[round % len(world.order)]
        return 0

    @staticmethod
    def respond(params: Any, world: World, lane: int, arm: int) -> float:
        """Return the reward of an arm in this row."""
        return float(world.rewards[world.row[0], arm])

    @staticmethod
    def expected(params: Any, world: World, lane: int, arm: int) -> float:
        """Return the reward of an arm in this row, which is certain."""
        return float(world.rewards[world.row[0], arm])

    @staticmethod
    def optimum(params: Any, world: World, lane: int) -> float:
        """Return the reward, in this row, of the arm with the largest sum."""
        return float(world.rewards[world.row[0], world.best])


def read_rewards(table: Any, arms: Sequence[str] | None) -> tuple[tuple[str, ...], Floats]:
    """Return the names of the arms' columns in a table, and their numbers, shape (rows, arms).

    Raises
    ------
    InvalidValue
        If the table has no row, lacks a column, or has a cell without a number.
    LogError
        If it cannot be read.
    """
    import pyarrow as pa

    from tacit.logs.reader import Frame, no_column_error, open_file
    from tacit.logs.rows import convert_values, nulls_for_missing

    file = open_file(Path(table) if isinstance(table, str | Path) else Frame(table))
    names = tuple(file.names if arms is None else arms)
    if lacking := [name for name in names if name not in file.names]:
        raise InvalidValue("arms", lacking[0], no_column_error("table", lacking[0], file.names))
    blocks = []
    for raw in file.read(names, 65_536):
        columns = [
            convert_values(nulls_for_missing(raw.columns[name], pa.float64()), pa.float64()) for name in names
        ]
        for name, column in zip(names, columns, strict=True):
            if column.null_count:
                row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                cell, field = read_cell(raw.columns[name], row), f"table, row {raw.rows[row]}, {name}"
                raise InvalidValue(field, cell, f"give each arm a reward in each row; {ARMS_HINT}")
        blocks.append(np.column_stack([column.to_numpy() for column in columns]))
    if not blocks or not names:
        raise InvalidValue("table", table, "give one with a column for each arm, and a row for each round")
    return names, np.ascontiguousarray(np.concatenate(blocks), np.float64)


def read_cell(column: Any, row: int) -> Any:
    """Return a cell of an Arrow array or list as a Python object, with bytes as text."""
    value = column[row]
    value = value.as_py() if hasattr(value, "as_py") else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value
