"""The calls that record what came back, and change a mode or the arms, each once."""

# Feedback, one piece and many; clicks in lists; decisions that were examined or activated; how far feeds
# are; last, the mode and the arms of a placement.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

import msgspec
from msgspec import Raw

from tacit.client.call import Call, SiteCall, ask, ask_many, call, decode, part
from tacit.wire import verbs
from tacit.wire.control import ArmsNow, ArmsOf, Mode, ModeOf
from tacit.wire.decisions import Arm, Event, Feedback, Recorded
from tacit.wire.lists import Clicks
from tacit.wire.site import FedNow, FedOf, FeedReport, Status


class FeedbackCalls:
    """What both clients record: the public methods here are calls."""

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
        """Record what came back for a decision.

        Parameters
        ----------
        placement : str
        decision_id : str
        reward : float, optional
            A click (1), none (0), or a reward between; left out where the placement learns from a
            metric.
        feedback_id : str, optional
            Names this feedback, in 1 to 256 characters: sent again with the same id, it counts
            once. By default a new UUID of version 7.
        metrics : mapping from str to float, optional
            What is watched beside the reward, by the names of the placement's configuration;
            amounts for one decision are added up.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.FEEDBACK, placement, Feedback(decision_id, reward, feedback_id, metrics))

    @call
    def feedback_many(self, placement: str, feedback: Iterable[Feedback | Raw]) -> Call[list[Recorded]]:
        """Record what came back for 1 to 1000 decisions, in one commit.

        What cannot be recorded refuses nothing else: its outcome is the kind of its problem
        (``unknown-decision``, ``conflict``, ``repeated-feedback``).

        Parameters
        ----------
        placement : str
        feedback : iterable of Feedback
            Or of what one is encoded as.

        Returns
        -------
        list of Recorded
            In the order of the feedback.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; the field names the place: ``feedback[1].reward``.
        """
        return ask_many(verbs.FEEDBACK_MANY, placement, Feedback, feedback)

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
    ) -> Call[Recorded]:
        """Record what was clicked in a list.

        Parameters
        ----------
        placement : str
        decision_id : str
        clicks : sequence of int, optional
            The clicked positions, in [0, 100000]; empty for none.
        items : sequence of int or str, optional
            The clicked items, in place of positions.
        feedback_id, metrics : optional
            As for :meth:`feedback`.
        action : str, optional
            What was done there, where it is no click: an action to which a placement of duels
            gives a worth.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        request = Clicks(decision_id, clicks, items, feedback_id, metrics, action)
        return ask(verbs.CLICKS, placement, request)

    @call
    def clicks_many(self, placement: str, clicks: Iterable[Clicks]) -> Call[list[Recorded]]:
        """Record what was clicked in 1 to 1000 lists, in one commit; as :meth:`feedback_many`.

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
            As :meth:`feedback_many`.
        """
        return ask_many(verbs.CLICKS_MANY, placement, Clicks, clicks)

    @call
    def activate(self, placement: str, decision_id: str, *, feedback_id: str | None = None) -> Call[Recorded]:
        """Record that a deferred decision counts from now on.

        Parameters
        ----------
        placement : str
        decision_id : str
        feedback_id : str, optional
            As for :meth:`feedback`.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.ACTIVATE, placement, Event(decision_id, feedback_id))

    @call
    def examined(self, placement: str, decision_id: str, *, feedback_id: str | None = None) -> Call[Recorded]:
        """Record that what was shown was looked at.

        Parameters
        ----------
        placement : str
        decision_id : str
        feedback_id : str, optional
            As for :meth:`feedback`.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.EXAMINED, placement, Event(decision_id, feedback_id))

    @call
    def examined_many(self, placement: str, events: Iterable[Event]) -> Call[list[Recorded]]:
        """Record of 1 to 1000 decisions that what was shown was looked at, in one commit.

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
            As :meth:`feedback_many`.
        """
        return ask_many(verbs.EXAMINED_MANY, placement, Event, events)

    @call
    def report_feed(self, name: str, report: FeedReport) -> Call[Status]:
        """Say how far a feed of events is, for the page and the metrics of the service.

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
            As :meth:`decide`.
        """
        action = f"feeds/{quote(name, safe='')}"
        return SiteCall("", action, msgspec.json.encode(report), partial(decode, type=Status), "PUT")

    @call
    def fed(self, placement: str, feed: str, offsets: Mapping[str, int]) -> Call[Status]:
        """Log how far a feed of events has come, behind the feedback of the events before.

        Parameters
        ----------
        placement : str
            One that had feedback of it.
        feed : str
            Of 1 to 256 characters.
        offsets : mapping from str to int
            By part of the feed, such as a topic's partition: of the first event that is not with the service.

        Returns
        -------
        Status

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.FED, placement, FedOf(feed, dict(offsets)))

    @call
    def fed_now(self, feed: str) -> Call[FedNow]:
        """Return where a feed of events goes on, as the log says it.

        Parameters
        ----------
        feed : str

        Returns
        -------
        FedNow

        Raises
        ------
        ServiceError
            As :meth:`decide`.
        """
        return SiteCall("", f"feeds/{quote(feed, safe='')}", None, partial(decode, type=FedNow), "GET")

    @call
    def mode(self, placement: str, mode: Mode) -> Call[str]:
        """Switch the mode of a placement, and return it.

        A switch has no id: one that is sent again also overrides what others set meanwhile.

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
            As :meth:`decide`.
        """
        return part("mode", ask(verbs.MODE, placement, ModeOf(mode)))

    @call
    def change_arms(
        self,
        placement: str,
        *,
        add: int | Sequence[str] = (),
        retire: Sequence[Arm] = (),
        restore: Sequence[Arm] = (),
    ) -> Call[ArmsNow]:
        """Let arms of a placement come, go and come back, all or none; return those it has.

        A change has no id: where one that was made is sent again, the service says that what
        is to come is on offer already.

        Parameters
        ----------
        placement : str
        add : sequence of str, or int
            New arms by their names; or how many, where arms are numbered.
        retire : sequence of arms, optional
            They are shown no more; what comes back for open decisions is learned still.
        restore : sequence of arms, optional
            Retired ones, which are shown again with all that was learned of them.

        Returns
        -------
        ArmsNow

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.ARMS, placement, ArmsOf(add, retire, restore))
