"""Decisions made next to the caller, with what was learned here: taken over as they were made."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.service.log.blocks import Block
from tacit.service.log.impressions import DecisionRequest, Impression, Made
from tacit.service.log.rows import APPRENTICE, FROZEN, ONLINE, SHADOW, DecisionRow
from tacit.service.placements.deciding import Deciding
from tacit.service.placements.recalling import Recalling

ARMS = "arms"


class Elsewhere(Deciding, Recalling):
    """Lends what it has learned, and takes over what was decided with it.

    What is taken over is taken in as the fold takes it in from the log: nothing is drawn.
    """

    def check_takes_over(self) -> None:
        """Check that decisions can be made elsewhere, be it not now.

        Raises
        ------
        InvalidValue
            If each of them needs something that only the service has.
        """
        why = None
        if self.config.kind != ARMS:
            why = f"placements of kind {self.config.kind!r} decide here"
        elif self.signals is not None:
            why = "its signals are computed here"
        elif self.coin is not None:
            why = "the coin of its holdout is tossed here"
        self._refuse(why)

    def check_lends(self, time: int) -> None:
        """Check that decisions may be made elsewhere at a time, with what was learned here.

        Raises
        ------
        InvalidValue
            As :meth:`check_takes_over`; or if the policy does not decide by itself then.
        """
        self.check_takes_over()
        if self.mode in (APPRENTICE, SHADOW):
            self._refuse(f"in mode {self.mode!r} each decision is compared here")
        if self.pin_at(time) is not None:
            self._refuse("it shows what is pinned")

    def _refuse(self, why: str | None) -> None:
        if why is not None:
            raise InvalidValue("placement", self.name, f"ask the service for decisions: {why}")

    def checked_made(self, request: DecisionRequest, made: Made) -> Impression:
        """Return an impression that was decided elsewhere.

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`checked`; or if the arm was not on offer, or the propensity is none, or none
            that the policy can have given, if this weighs by it.
        """
        told = self.checked(request)
        if made.arm not in self._slots:
            raise InvalidValue("arm", made.arm, f"the placement has {', '.join(map(str, self.arms))}")
        if told.arms is not None and made.arm not in told.arms:
            raise InvalidValue("arm", made.arm, f"on offer were {list(told.arms)}")
        if made.propensity is not None:
            checks.number("propensity", made.propensity, 0.0, 1.0, open_low=True)
        self.learner._batch.check_propensities([made.propensity], [len(self._offer_of(told))])
        return told._replace(given=made)

    def asked_before(self, told: Impression, row: DecisionRow) -> bool:
        """Whether a decision answers this very impression, or is the one that was made for it."""
        made = told.given
        if isinstance(made, Made) and made.arm != row.arm:
            return False
        return super().asked_before(told, row)

    def _in_parts(self, asked: Block[Impression], seq: int, time: int) -> Iterator[Block[DecisionRow]]:
        if Made not in map(type, asked.column("given")):
            yield from super()._in_parts(asked, seq, time)
            return
        for kind, run in groupby(asked, lambda told: type(told.given)):
            part: Block[Impression] = Block.of(Impression, run)
            if kind is Made:
                yield self._taken_over(part, seq, time)
            else:
                yield from super()._in_parts(part, seq, time)
            seq += len(part)

    def _taken_over(self, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Take over decisions that were made elsewhere."""
        known = self.learner.__contains__
        made: list[Any] = [
            told.given._replace(epoch=self.learner.epoch(told.key) if known(told.key) else 0)
            for told in asked
        ]
        rows = self._rows(asked, seq, asked.column("id"), time, made)
        # The policy decided, whatever else happens to decisions here by now.
        mode = FROZEN if self.mode == FROZEN else ONLINE
        rows = rows.with_column("mode", [mode] * len(rows))
        self.recall(rows)
        return rows
