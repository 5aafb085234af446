"""The calls that ask for decisions, each once: how it is made, what answers it, what it does."""

# One decision, then many, for arms, lists and duels; then what decisions came to: standings, verdict, lift;
# then what is lent to those who decide next to their caller.

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal

from msgspec import Raw

from tacit.client.call import Call, ask, ask_many, call
from tacit.errors import AssumptionWarning
from tacit.wire import verbs
from tacit.wire.control import LearnerOf, LentParts, Nothing
from tacit.wire.decisions import Arm, Context, Decided, Impression, LocalDecision, TakenOver
from tacit.wire.lift import LiftOf
from tacit.wire.lift import LiftReport as Earned
from tacit.wire.lists import Dueled, Listed, Search, Standings, StandingsOf, Verdict, VerdictOf


class DecisionCalls:
    """What both clients ask for: the public methods here are calls."""

    @call
    def decide(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Context | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
        relevance: Sequence[Sequence[float]] | None = None,
        examination: Sequence[Sequence[float]] | None = None,
        session: str | None = None,
        user: str | None = None,
        segment: str | None = None,
        unknown: Literal["refuse", "skip"] | None = None,
    ) -> Call[Decided]:
        """Return what to show.

        Parameters
        ----------
        placement : str
            Its name: 1 to 128 letters, digits, dots, _ and -.
        key : str
            What the decision is for; at most 512 bytes in UTF-8.
        arms : sequence of int or str, optional
            The arms on offer, by name or by number from 0; all if left out.
        context : mapping, or sequence of float, optional
            Who is asking: what is known by name, ``{"device": "ios", "age": 31}``, as the placement is
            configured; or numbers, for policies that read those.
        decision_id : str, optional
            Names the decision, in 1 to 256 characters: the same question with the same id gets
            the same answer. By default a new UUID of version 7.
        deferred : bool, default False
            True: it counts only once it is activated.
        relevance, examination : sequence of sequence of float, optional
            A row of features for each arm on offer, for policies that know arms by these; finite.
        session : str, optional
            Whose search this is, in 1 to 256 characters, for placements with the signal
            ``reformulation``, or with a holdout of sessions.
        user : str, optional
            Who is asking, in 1 to 256 characters, for placements with a holdout of users.
        segment : str, optional
            Of the placement's catalogue: all its items are on offer, without ``arms``.
        unknown : str, optional
            ``"skip"`` arms that are not in the catalogue; by default they are refused.

        Returns
        -------
        Decided

        Raises
        ------
        InvalidValue
            If an argument is not allowed; nothing is sent then.
        ServiceError
            What the service says no to: :class:`InvalidRequest`, :class:`NotFound`,
            :class:`Conflict`, :class:`Denied`; :class:`Unavailable` after the last try.
        """
        impression = Impression(
            key, arms, context, decision_id, deferred, relevance, examination, session, user, segment, unknown
        )
        return ask(verbs.DECIDE, placement, impression)

    @call
    def decide_many(self, placement: str, impressions: Iterable[Impression]) -> Call[list[Decided]]:
        """Return what to show for 1 to 1000 impressions: all are decided in one commit, or none.

        Parameters
        ----------
        placement : str
        impressions : iterable of Impression

        Returns
        -------
        list of Decided
            In the order of the impressions.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; the field names the place: ``decisions[1].arms``.
        """
        return ask_many(verbs.DECIDE_MANY, placement, Impression, impressions)

    @call
    def slate(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Context | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
        relevance: Sequence[Sequence[float]] | None = None,
        examination: Sequence[Sequence[float]] | None = None,
        session: str | None = None,
        user: str | None = None,
        segment: str | None = None,
        unknown: Literal["refuse", "skip"] | None = None,
    ) -> Call[Listed]:
        """Return which arms to list.

        Parameters
        ----------
        placement, key, arms, context, decision_id, deferred
            As for :meth:`decide`.
        relevance, examination, session, user, segment, unknown : optional
            As for :meth:`decide`.

        Returns
        -------
        Listed

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        impression = Impression(
            key, arms, context, decision_id, deferred, relevance, examination, session, user, segment, unknown
        )
        return ask(verbs.SLATE, placement, impression)

    @call
    def slate_many(self, placement: str, impressions: Iterable[Impression]) -> Call[list[Listed]]:
        """Return which arms to list for 1 to 1000 impressions, decided in one commit, or none.

        Parameters
        ----------
        placement : str
        impressions : iterable of Impression

        Returns
        -------
        list of Listed
            In the order of the impressions.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide_many`.
        """
        return ask_many(verbs.SLATE_MANY, placement, Impression, impressions)

    @call
    def duel(
        self,
        placement: str,
        rankings: Mapping[str, Sequence[Arm]] | None = None,
        *,
        key: str = "all",
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
        session: str | None = None,
        user: str | None = None,
        segments: Mapping[str, str] | None = None,
    ) -> Call[Dueled]:
        """Return which two rankers duel, and one list of both.

        Parameters
        ----------
        placement : str
        rankings : mapping from str to sequence of int or str, optional
            From every ranker's name to its items, best first; without it the answer is a pair
            alone, whose outcome is the reward of :meth:`feedback`.
        key : str, default "all"
            What finds a best ranker of its own, such as a market; at most 512 bytes in UTF-8.
        context, decision_id, deferred : optional
            As for :meth:`decide`.
        session, user : str, optional
            Whose search it is, for the verdict, and for a holdout; only a hash of it is kept.
        segments : mapping from str to str, optional
            What else is known of the search, by the names of the placement's ``segments``.

        Returns
        -------
        Dueled

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        search = Search(rankings, key, context, decision_id, deferred, session, user, segments)
        return ask(verbs.DUEL, placement, search)

    @call
    def duel_many(self, placement: str, searches: Iterable[Search]) -> Call[list[Dueled]]:
        """Return which rankers duel for 1 to 1000 searches: all decided in one commit, or none.

        Parameters
        ----------
        placement : str
        searches : iterable of Search

        Returns
        -------
        list of Dueled
            In the order of the searches.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide_many`.
        """
        return ask_many(verbs.DUEL_MANY, placement, Search, searches)

    @call
    def standings(
        self, placement: str, key: str | None = None, *, confidence: float = 0.95
    ) -> Call[Standings]:
        """Return who wins the duels of a key.

        Parameters
        ----------
        placement : str
        key : str, optional
            By default that with the most duels.
        confidence : float, default 0.95
            Of the intervals and of what is said to be safe; in (0, 1).

        Returns
        -------
        Standings

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.STANDINGS, placement, StandingsOf(confidence, key))

    @call
    def verdict(
        self, placement: str, *, confidence: float = 0.95, false_share: float = 0.05
    ) -> Call[Verdict]:
        """Return which ranker users prefer, by what their actions are worth, and in which segments.

        The service reads it from its log, and answers after some two seconds at the latest with
        what it knows by then: ``whole`` says whether that is all.

        Parameters
        ----------
        placement : str
        confidence : float, default 0.95
            0.9, 0.95 or 0.99: that nothing which the verdict ever says is wrong.
        false_share : float, default 0.05
            Of the segments that are found to differ, so much is wrong at most, on average.

        Returns
        -------
        Verdict

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; :class:`InvalidRequest` where the service has shards.
        """
        return ask(verbs.VERDICT, placement, VerdictOf(confidence, false_share))

    @call
    def lift(
        self,
        placement: str,
        *,
        confidence: float = 0.95,
        control: str | None = None,
        begin: str | date | None = None,
        end: str | date | None = None,
        shown: float | None = None,
        share: float | None = None,
        rate: float | None = None,
        daily: float | None = None,
    ) -> Call[Earned]:
        """Return what learning earned more than a control, and how sure that is.

        Parameters
        ----------
        placement : str
        confidence : float, default 0.95
            Of the intervals, at whatever time they are looked at: 0.9, 0.95 or 0.99.
        control : str, optional
            In place of the holdout, what logged propensities compare with: ``uniform``, or
            ``arm NAME``.
        begin, end : str, datetime or date, optional
            Only decisions of that time, in ISO 8601, such as ``2026-05-03``; or the numbers of the
            first and the last chapter.
        shown : float, optional
            The lift that the planner asks about; by default 0.1, for 10 % more.
        share, rate, daily : float, optional
            The control's share, the mean reward and the decisions a day that it reckons with; by
            default those that are configured or observed. Before there is traffic, give the last
            two.

        Returns
        -------
        Earned

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        if isinstance(shown, int | float) and shown > 1:
            meant = (
                f"{shown - 1:.3g} if it is a ratio" if shown < 2 else f"{shown / 100:g} if {shown:g} % are"
            )
            doubt = f"shown: {shown:g} is {100 * shown:g} % more; give {meant} meant"
            warnings.warn(doubt, AssumptionWarning, stacklevel=4)
        times: tuple[Any, Any] = begin, end
        asked = LiftOf(confidence, control, *times, shown, share, rate, daily)
        return ask(verbs.LIFT, placement, asked)

    @call
    def lent(self, placement: str) -> Call[LentParts]:
        """Return in which parts what a placement has learned is lent: one, or one a shard.

        Parameters
        ----------
        placement : str

        Returns
        -------
        LentParts

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`learner`.
        """
        return ask(verbs.LENT, placement, Nothing())

    @call
    def learner(self, placement: str, shard: int | None = None) -> Call[bytes]:
        """Return what a placement of arms has learned, as a file.

        :meth:`tacit.Learner.load` reads it. Needs a key that may read.

        Parameters
        ----------
        placement : str
        shard : int, optional
            From 0; of a service in shards, each of which has learned a part.

        Returns
        -------
        bytes

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; :class:`InvalidRequest` where each decision needs something that only
            the service has: signals, a holdout, another mode.
        """
        return ask(verbs.LEARNER, placement, LearnerOf(shard))

    @call
    def take_over(self, placement: str, decisions: Iterable[LocalDecision | Raw]) -> Call[list[TakenOver]]:
        """Say what was decided next to the caller, 1 to 1000 decisions; each is logged, or refused.

        Parameters
        ----------
        placement : str
        decisions : iterable of LocalDecision
            Or of what one is encoded as.

        Returns
        -------
        list of TakenOver
            In their order.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask_many(verbs.LOCAL, placement, LocalDecision, decisions)
