"""What a check of a policy found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.core.text import Tabulated, left_aligned

MARKS = {True: "ok", False: "FAILED", None: "–"}


class Verdict(NamedTuple):
    """What one test found.

    Attributes
    ----------
    name : str
    passed : bool or None
        None where there was nothing to test.
    detail : str
        What was tested, or why it failed, or why it was left out.
    """

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class PolicyCheck(Tabulated):
    """What a check of a policy found.

    Attributes
    ----------
    policy : str
        Its label.
    verdicts : tuple of Verdict
    """

    policy: str
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether no test failed."""
        return all(verdict.passed is not False for verdict in self.verdicts)

    @property
    def failures(self) -> list[Verdict]:
        """The tests that failed."""
        return [verdict for verdict in self.verdicts if verdict.passed is False]

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per test."""
        return [verdict._asdict() for verdict in self.verdicts]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"policy": self.policy, "passed": self.passed, "tests": self.records()}

    def summary(self) -> str:
        """Return an aligned table of what passed and what failed, with the reasons."""
        rows = [(MARKS[passed], name, detail) for name, passed, detail in self.verdicts]
        failed = len(self.failures)
        end = f"{failed} of {len(rows)} tests failed" if failed else "nothing failed"
        return f"{self.policy}\n{left_aligned(rows)}\n{end}"

    def __str__(self) -> str:
        return self.summary()
