"""The clients' calls for decisions, reports of results, and client-side decisions."""

# 1. Decisions, one and many, for arms, lists and duels.
# 2. Reports: standings, verdict, lift.
# 3. Client-side decisions: replicas of the learner, and decisions to be logged.

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal

from msgspec import Raw

from tacit.client.call import Call, call, make_batch_call, make_verb_call
from tacit.errors import AssumptionWarning
from tacit.wire import verbs
from tacit.wire.control import LearnerOf, LentParts, Nothing
from tacit.wire.decisions import Arm, Context, Decided, Impression, LocalDecision, TakenOver
from tacit.wire.lift import LiftOf
from tacit.wire.lift import LiftReport as Earned
from tacit.wire.lists import Dueled, Listed, Search, Standings, StandingsOf, Verdict, VerdictOf


class DecisionCalls:
    """Calls that both clients have as methods: decisions and reports."""

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
        """Choose an arm to show for one impression; the service logs the decision.

        Parameters
        ----------
        placement : str
            Name of the placement: 1 to 128 letters, digits, dots, _ and -.
        key : str
            Key of the decision, such as a query; at most 512 bytes in UTF-8.
        arms : sequence of int or str, optional
            The arms on offer, by name or by number from 0; all if left out.
        context : mapping, or sequence of float, optional
            Properties of the user by name, ``{"device": "ios", "age": 31}``, as the placement is
            configured; or numbers, for policies that read numbers.
        decision_id : str, optional
            Id of the decision, of 1 to 256 characters: the same request with the same id gets
            the same answer. By default a new UUID of version 7.
        deferred : bool, default False
            If True, the decision counts only once it is activated.
        relevance, examination : sequence of sequence of float, optional
            A row of finite features for each arm on offer, for policies that read features of arms.
        session : str, optional
            Id of the session, of 1 to 256 characters, for placements with the signal
            ``reformulation``, or with a holdout of sessions.
        user : str, optional
            Id of the user, of 1 to 256 characters, for placements with a holdout of users.
        segment : str, optional
            Segment of the placement's catalogue: without ``arms``, all its items are on offer.
        unknown : str, optional
            ``"skip"`` arms that are not in the catalogue; by default such a request is refused.

        Returns
        -------
        Decided

        Raises
        ------
        InvalidValue
            If an argument is not allowed; then nothing is sent.
        ServiceError
            If the service refuses the request: :class:`InvalidRequest`, :class:`NotFound`,
            :class:`Conflict`, :class:`Denied`; :class:`Unavailable` after the last try.
        """
        impression = Impression(
            key, arms, context, decision_id, deferred, relevance, examination, session, user, segment, unknown
        )
        return make_verb_call(verbs.DECIDE, placement, impression)

    @call
    def decide_many(self, placement: str, impressions: Iterable[Impression]) -> Call[list[Decided]]:
        """Choose arms for 1 to 1000 impressions; all are decided in one commit, or none.

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
            If an argument is not valid; if the service refuses the request or does not answer;
            the field names the place: ``decisions[1].arms``.
        """
        return make_batch_call(verbs.DECIDE_MANY, placement, Impression, impressions)

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
        """Choose the arms to show as a list, best first; the service logs the decision.

        Parameters
        ----------
        placement, key, arms, context, decision_id, deferred
            Name of the placement, key of the decision, arms on offer, properties of the user, id of the
            decision, and whether it counts only once it is activated, as for :meth:`decide`.
        relevance, examination, session, user, segment, unknown : optional
            Features of each arm, ids of the session and the user, and what of a catalogue is on offer, as for
            :meth:`decide`.

        Returns
        -------
        Listed

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        impression = Impression(
            key, arms, context, decision_id, deferred, relevance, examination, session, user, segment, unknown
        )
        return make_verb_call(verbs.SLATE, placement, impression)

    @call
    def slate_many(self, placement: str, impressions: Iterable[Impression]) -> Call[list[Listed]]:
        """Choose lists of arms for 1 to 1000 impressions; all are decided in one commit, or none.

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
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_batch_call(verbs.SLATE_MANY, placement, Impression, impressions)

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
        """Choose two rankers for a duel and interleave their lists; the service logs the decision.

        Parameters
        ----------
        placement : str
        rankings : mapping from str to sequence of int or str, optional
            From every ranker's name to its items, best first; without it the answer is only a
            pair, whose outcome is the reward of :meth:`feedback`.
        key : str, default "all"
            Key with a best ranker of its own, such as a market; at most 512 bytes in UTF-8.
        context, decision_id, deferred : optional
            Numbers that the policy reads, id of the decision, and whether it counts only once it is
            activated, as for :meth:`decide`.
        session, user : str, optional
            Ids of the session and the user, for the verdict, and for a holdout; only a hash is stored.
        segments : mapping from str to str, optional
            Properties of the search, by the names of the placement's ``segments``.

        Returns
        -------
        Dueled

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        search = Search(rankings, key, context, decision_id, deferred, session, user, segments)
        return make_verb_call(verbs.DUEL, placement, search)

    @call
    def duel_many(self, placement: str, searches: Iterable[Search]) -> Call[list[Dueled]]:
        """Choose pairs of rankers for 1 to 1000 searches; all are decided in one commit, or none.

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
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_batch_call(verbs.DUEL_MANY, placement, Search, searches)

    @call
    def standings(
        self, placement: str, key: str | None = None, *, confidence: float = 0.95
    ) -> Call[Standings]:
        """Return the standings of rankers in the duels of one key.

        Parameters
        ----------
        placement : str
        key : str, optional
            By default the key with the most duels.
        confidence : float, default 0.95
            Confidence of the intervals and of conclusions that are called safe; in (0, 1).

        Returns
        -------
        Standings

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.STANDINGS, placement, StandingsOf(confidence, key))

    @call
    def verdict(
        self, placement: str, *, confidence: float = 0.95, false_share: float = 0.05
    ) -> Call[Verdict]:
        """Return which ranker users prefer, by the weights of their actions, overall and by segment.

        The service reads its log for at most some two seconds, and answers with the part read by
        then: ``whole`` tells whether that is all.

        Parameters
        ----------
        placement : str
        confidence : float, default 0.95
            0.9, 0.95 or 0.99: probability that no verdict, at any time, is wrong.
        false_share : float, default 0.05
            False discovery rate among the segments that are reported to differ.

        Returns
        -------
        Verdict

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer;
            :class:`InvalidRequest` if the service has shards.
        """
        return make_verb_call(verbs.VERDICT, placement, VerdictOf(confidence, false_share))

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
        """Return the lift of learning over a control, with confidence intervals.

        Warns if ``shown`` is above 1, as it is probably a ratio or a percentage.

        Parameters
        ----------
        placement : str
        confidence : float, default 0.95
            Confidence of the intervals, valid at all times: 0.9, 0.95 or 0.99.
        control : str, optional
            Control to compare with by logged propensities, in place of the holdout: ``uniform``,
            or ``arm NAME``.
        begin, end : str, datetime or date, optional
            Only decisions in this range of time, in ISO 8601, such as ``2026-05-03``; or the numbers
            of the first and the last period.
        shown : float, optional
            The lift to plan for; by default 0.1, for 10 % more.
        share, rate, daily : float, optional
            The control's share, the mean reward and the decisions a day to plan with; by default
            the configured or observed ones. Before there is traffic, give the last two.

        Returns
        -------
        Earned

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        if isinstance(shown, int | float) and shown > 1:
            suggestion = (
                f"{shown - 1:.3g} if it is a ratio" if shown < 2 else f"{shown / 100:g} if {shown:g} % are"
            )
            warning = f"shown: {shown:g} is {100 * shown:g} % more; give {suggestion} meant"
            warnings.warn(warning, AssumptionWarning, stacklevel=4)
        times: tuple[Any, Any] = begin, end
        query = LiftOf(confidence, control, *times, shown, share, rate, daily)
        return make_verb_call(verbs.LIFT, placement, query)

    @call
    def list_replicas(self, placement: str) -> Call[LentParts]:
        """Return the last log row in the learner for replicas, for each shard or the single server.

        Parameters
        ----------
        placement : str

        Returns
        -------
        LentParts

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.REPLICAS, placement, Nothing())

    @call
    def learner(self, placement: str, shard: int | None = None) -> Call[bytes]:
        """Return the learner of a placement of arms as a file.

        :meth:`tacit.Learner.load` reads it. The key needs the scope ``read``.

        Parameters
        ----------
        placement : str
        shard : int, optional
            Number of the shard from 0, if the service has shards, which learn separately.

        Returns
        -------
        bytes

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer;
            :class:`InvalidRequest` if only the service can decide for the
            placement, since it has signals, a holdout or another mode.
        """
        return make_verb_call(verbs.LEARNER, placement, LearnerOf(shard))

    @call
    def log_decisions(
        self, placement: str, decisions: Iterable[LocalDecision | Raw]
    ) -> Call[list[TakenOver]]:
        """Log 1 to 1000 client-side decisions, each of which is logged or refused.

        Parameters
        ----------
        placement : str
        decisions : iterable of LocalDecision
            Or of encoded ones.

        Returns
        -------
        list of TakenOver
            In the order of the decisions.

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_batch_call(verbs.LOCAL, placement, LocalDecision, decisions)
