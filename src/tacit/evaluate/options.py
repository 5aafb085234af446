"""Options of evaluation on a log, with their types and ranges.

Public functions list their options as parameters. Code that passes options on types them as
:class:`OffPolicyOptions` or :class:`ReplayOptions`; ``OffPolicyEvaluation`` and ``ReplayConfig`` validate
and hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, Unpack

from tacit.core import checks
from tacit.core.part import Checked, float_range, int_range, optional
from tacit.evaluate.intervals import check_confidence
from tacit.evaluate.targets import Target
from tacit.logs.reader import LogReader
from tacit.logs.sources import ReadOptions, open_log

Confidence = Annotated[float, check_confidence]
MissingReward = Annotated[float | None, optional(float_range(0.0, 1.0))]
Seed = Annotated[int, int_range(0)]
AtLeastOne = Annotated[int, int_range(1)]
WeightBound = Annotated[float | None, optional(checks.positive)]


class OffPolicyOptions(TypedDict, total=False):
    """Options of :func:`tacit.off_policy`."""

    cluster: str | None
    confidence: float
    weight_bound: float | None
    logging: Target | None
    missing_reward: float | None
    seed: int
    propensities: Any
    by: str | None


class ReplayOptions(TypedDict, total=False):
    """Options of :func:`tacit.replay`."""

    passes: int
    seed: int
    window: int
    tolerance: float
    assume_uniform: bool
    missing_reward: float | None
    by: str | None


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Options shared by all evaluations of a log; each is as for :func:`tacit.off_policy`."""

    missing_reward: MissingReward = 0.0
    seed: Seed = 0
    by: str | None = None

    @property
    def schema(self) -> Any:
        """The schema by which contexts are built of the log's columns; None to use the log's contexts."""
        return None

    def open_log(self, log: Any, **reading: Unpack[ReadOptions]) -> Any:
        """Return a reader of the log with the contexts and the segments that the evaluation reads.

        A log that is not open is opened by :func:`tacit.read_log` with the options ``reading``.
        """
        reader = open_log(log, **reading)
        if self.schema and isinstance(reader, LogReader):
            reader = reader.with_context(self.schema)
        return reader if self.by is None else reader.with_segment(self.by)
