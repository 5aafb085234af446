"""The clients' calls that record feedback, report the progress of feeds, and change the mode or the arms."""

# 1. Feedback, one piece and many; clicks in lists; activations and examinations.
# 2. Progress of feeds.
# 3. The mode and the arms of a placement.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from msgspec import Raw

from tacit.client.call import Call, SiteCall, call, decode, make_batch_call, make_verb_call, select_field
from tacit.wire import verbs
from tacit.wire.control import ArmsNow, ArmsOf, Mode, ModeOf
from tacit.wire.decisions import Arm, Event, Feedback, Recorded
from tacit.wire.lists import Clicks
from tacit.wire.site import FedNow, FedOf, FeedReport, Status


class FeedbackCalls:
    """Calls that both clients have as methods: feedback, feeds, mode and arms."""

    @call
    def feedback(
        self,
        placement: str,
        decision_id: str,
        reward: float | None = None,
        *,
        feedback_id: str | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> Call[Recorded]:
        """Record the reward of a decision, and its metrics.

        Parameters
        ----------
        placement : str
        decision_id : str
        reward : float, optional
            A click (1), none (0), or a reward between; left out if the placement learns from a
            metric.
        feedback_id : str, optional
            Id of this feedback, of 1 to 256 characters: sent again with the same id, it counts
            once. By default a new UUID of version 7.
        metrics : mapping from str to float, optional
            Amounts of metrics besides the reward, by their names in the placement's configuration;
            amounts for one decision are added up.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.FEEDBACK, placement, Feedback(decision_id, reward, feedback_id, metrics))

    @call
    def feedback_many(self, placement: str, feedback: Iterable[Feedback | Raw]) -> Call[list[Recorded]]:
        """Record feedback for 1 to 1000 decisions in one commit.

        Feedback that cannot be recorded does not stop the rest; its outcome is the kind of its
        problem (``unknown-decision``, ``conflict``, ``repeated-feedback``).

        Parameters
        ----------
        placement : str
        feedback : iterable of Feedback
            Or of encoded ones.

        Returns
        -------
        list of Recorded
            In the order of the feedback.

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer;
            the field names the place: ``feedback[1].reward``.
        """
        return make_batch_call(verbs.FEEDBACK_MANY, placement, Feedback, feedback)

    @call
    def clicks(
        self,
        placement: str,
        decision_id: str,
        clicks: Sequence[int] | None = None,
        *,
        items: Sequence[Arm] | None = None,
        feedback_id: str | None = None,
        metrics: Mapping[str, float] | None = None,
        action: str | None = None,
        rewards: Sequence[float] | None = None,
    ) -> Call[Recorded]:
        """Record the clicks, or other actions, in the list that a decision showed.

        Parameters
        ----------
        placement : str
        decision_id : str
        clicks : sequence of int, optional
            The clicked positions, in [0, 100000]; empty for none.
        items : sequence of int or str, optional
            The clicked items, in place of positions.
        feedback_id, metrics : optional
            Id with which the clicks count once, and amounts of metrics by name, as for :meth:`feedback`.
        action : str, optional
            Name of an action other than a click, which has a weight in the ``worth`` of a
            placement of duels.
        rewards : sequence of float, optional
            The reward of each click or item, in [0, 1]; by default 1. Only for lists of one policy.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        request = Clicks(decision_id, clicks, items, feedback_id, metrics, action, rewards)
        return make_verb_call(verbs.CLICKS, placement, request)

    @call
    def clicks_many(self, placement: str, clicks: Iterable[Clicks]) -> Call[list[Recorded]]:
        """Record the clicks in 1 to 1000 lists in one commit.

        Clicks that cannot be recorded do not stop the others; their outcome is the kind of the problem.

        Parameters
        ----------
        placement : str
        clicks : iterable of Clicks

        Returns
        -------
        list of Recorded
            In the order of the clicks.

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_batch_call(verbs.CLICKS_MANY, placement, Clicks, clicks)

    @call
    def activate(self, placement: str, decision_id: str, *, feedback_id: str | None = None) -> Call[Recorded]:
        """Activate a deferred decision, which counts from now on.

        Parameters
        ----------
        placement : str
        decision_id : str
        feedback_id : str, optional
            Id with which this counts once, however often it is sent; by default a new one.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.ACTIVATE, placement, Event(decision_id, feedback_id))

    @call
    def record_examination(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Call[Recorded]:
        """Record that the user examined the arm that a decision showed, whether or not it was clicked.

        Parameters
        ----------
        placement : str
        decision_id : str
        feedback_id : str, optional
            Id with which this counts once, however often it is sent; by default a new one.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.EXAMINED, placement, Event(decision_id, feedback_id))

    @call
    def record_examinations(self, placement: str, events: Iterable[Event]) -> Call[list[Recorded]]:
        """Record examinations of the arms that 1 to 1000 decisions showed, in one commit.

        Parameters
        ----------
        placement : str
        events : iterable of Event

        Returns
        -------
        list of Recorded
            In the order of the events.

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_batch_call(verbs.EXAMINED_MANY, placement, Event, events)

    @call
    def report_feed(self, name: str, report: FeedReport) -> Call[Status]:
        """Report the progress of a feed of events, for the page and the metrics of the service.

        Parameters
        ----------
        name : str
            Of 1 to 256 printable characters.
        report : FeedReport

        Returns
        -------
        Status

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return SiteCall("", f"feeds/{quote(name, safe='')}", report, partial(decode, type=Status), "PUT")

    @call
    def log_feed_offsets(self, placement: str, feed: str, offsets: Mapping[str, int]) -> Call[Status]:
        """Log how far a feed's events are recorded: the offset at which each partition resumes.

        Call this after the feedback of the events before these offsets.

        Parameters
        ----------
        placement : str
            A placement that had feedback from the feed.
        feed : str
            Name of the feed, of 1 to 256 characters.
        offsets : mapping from str to int
            By partition of the feed: the offset of the first event that the service does not have.

        Returns
        -------
        Status

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.FED, placement, FedOf(feed, dict(offsets)))

    @call
    def read_feed_offsets(self, feed: str) -> Call[FedNow]:
        """Return the logged offsets at which a feed of events resumes.

        Parameters
        ----------
        feed : str

        Returns
        -------
        FedNow

        Raises
        ------
        ServiceError
            If the service refuses the request or does not answer.
        """
        return SiteCall("", f"feeds/{quote(feed, safe='')}", None, partial(decode, type=FedNow), "GET")

    @call
    def mode(self, placement: str, mode: Mode) -> Call[str]:
        """Change the mode of a placement and return the new mode.

        The change has no id: a retry also overrides a mode that another client set in the meantime.

        Parameters
        ----------
        placement : str
        mode : str
            ``online``, ``frozen``, ``shadow`` or ``control``.

        Returns
        -------
        str

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return select_field("mode", make_verb_call(verbs.MODE, placement, ModeOf(mode)))

    @call
    def change_arms(
        self,
        placement: str,
        *,
        add: int | Sequence[str] = (),
        retire: Sequence[Arm] = (),
        restore: Sequence[Arm] = (),
    ) -> Call[ArmsNow]:
        """Add, retire and restore arms of a placement, all or none, and return its arms.

        The change has no id: if a retry follows a change that was made, the service answers that
        the new arms are already on offer.

        Parameters
        ----------
        placement : str
        add : sequence of str, or int
            Names of new arms; or their number, if arms are numbered.
        retire : sequence of arms, optional
            Arms that are no longer shown; feedback for their open decisions is still learned.
        restore : sequence of arms, optional
            Retired arms that are shown again, with all that was learned about them.

        Returns
        -------
        ArmsNow

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.ARMS, placement, ArmsOf(add, retire, restore))
