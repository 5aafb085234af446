"""All calls, each once: its name, how it is made, what answers it, and its documentation.

A call is a method of :class:`Calls` that returns a :class:`~tacit.client.call.Call`; both clients
have it, as a method that returns the answer and as one to be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload
from urllib.parse import urlencode

import msgspec

from tacit.client.bodies import body
from tacit.client.call import Call, Route, call_to, decode
from tacit.client.messages import (
    Arm,
    Clicks,
    Decided,
    Dueled,
    Earned,
    Event,
    Feedback,
    Impression,
    LiftOf,
    Listed,
    Mode,
    ModeOf,
    Recorded,
    Search,
    Standings,
    StandingsOf,
)

if TYPE_CHECKING:
    from tacit.client.clients import AsyncClient, Client

P = ParamSpec("P")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

DECIDE = Route("decide", Impression, Decided)
SLATE = Route("slate", Impression, Listed)
DUEL = Route("duel", Search, Dueled)
FEEDBACK = Route("feedback", Feedback, Recorded)
CLICKS = Route("clicks", Clicks, Recorded)
ACTIVATE = Route("activate", Event, Recorded)
EXAMINED = Route("examined", Event, Recorded)


class Method(Protocol[P, A_co]):
    """The type of a call as a method of either client, with the call's own parameters."""

    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, A_co]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type[AsyncClient]
    ) -> Callable[P, Coroutine[Any, Any, A_co]]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Client]
    ) -> Callable[Concatenate[Client, P], A_co]: ...
    @overload
    def __get__(
        self, client: None, owner: type[AsyncClient]
    ) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, A_co]]: ...


def call(make: Callable[Concatenate[Any, P], Call[A]]) -> Method[P, A]:
    """Return the function as it is; to a type checker it is what the clients make of it."""
    return cast("Method[P, A]", make)


class Calls:
    """What both clients offer: the public methods here are the calls."""

    @call
    def decide(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
        relevance: Sequence[Sequence[float]] | None = None,
        examination: Sequence[Sequence[float]] | None = None,
        session: str | None = None,
        user: str | None = None,
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
        context : sequence of float, optional
            Signals about the key, for policies that use them; finite.
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
            key, arms, context, decision_id, deferred, relevance, examination, session, user
        )
        return DECIDE.one(placement, impression)

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
        return DECIDE.many(placement, impressions)

    @call
    def slate(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Call[Listed]:
        """Return which arms to list.

        Parameters
        ----------
        placement, key, arms, context, decision_id, deferred
            As for :meth:`decide`.

        Returns
        -------
        Listed

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return SLATE.one(placement, Impression(key, arms, context, decision_id, deferred))

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
        return SLATE.many(placement, impressions)

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

        Returns
        -------
        Dueled

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return DUEL.one(placement, Search(rankings, key, context, decision_id, deferred))

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
        return DUEL.many(placement, searches)

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
        asked = urlencode(body(StandingsOf(confidence, key)))
        return call_to(placement, f"duels?{asked}", None, msgspec.json.Decoder(Standings).decode)

    @call
    def lift(
        self,
        placement: str,
        *,
        confidence: float = 0.95,
        control: str | None = None,
        begin: str | None = None,
        end: str | None = None,
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
        begin, end : str, optional
            Only decisions of that time, in ISO 8601, such as ``2026-05-03``.

        Returns
        -------
        Earned

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        asked = body(LiftOf(confidence, control, begin, end))
        # What is said so there is no name in Python.
        named = {{"begin": "from", "end": "to"}.get(name, name): x for name, x in asked.items()}
        return call_to(
            placement, f"lift?{urlencode(named)}", None, msgspec.json.Decoder(Earned).decode
        )

    @call
    def feedback(
        self,
        placement: str,
        decision_id: str,
        reward: float,
        *,
        feedback_id: str | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> Call[Recorded]:
        """Record what came back for a decision.

        Parameters
        ----------
        placement : str
        decision_id : str
        reward : float
            A click (1), none (0), or a reward between.
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
        return FEEDBACK.one(placement, Feedback(decision_id, reward, feedback_id, metrics))

    @call
    def feedback_many(self, placement: str, feedback: Iterable[Feedback]) -> Call[list[Recorded]]:
        """Record what came back for 1 to 1000 decisions, in one commit.

        What cannot be recorded refuses nothing else: its outcome is the kind of its problem
        (``unknown-decision``, ``conflict``, ``repeated-feedback``).

        Parameters
        ----------
        placement : str
        feedback : iterable of Feedback

        Returns
        -------
        list of Recorded
            In the order of the feedback.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; the field names the place: ``feedback[1].reward``.
        """
        return FEEDBACK.many(placement, feedback)

    @call
    def clicks(
        self,
        placement: str,
        decision_id: str,
        clicks: Sequence[int] | None = None,
        *,
        items: Sequence[Arm] | None = None,
        feedback_id: str | None = None,
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
        return CLICKS.one(placement, Clicks(decision_id, clicks, items, feedback_id))

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
        return CLICKS.many(placement, clicks)

    @call
    def activate(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Call[Recorded]:
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
        return ACTIVATE.one(placement, Event(decision_id, feedback_id))

    @call
    def examined(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Call[Recorded]:
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
        return EXAMINED.one(placement, Event(decision_id, feedback_id))

    @call
    def mode(self, placement: str, mode: Mode) -> Call[str]:
        """Switch the mode of a placement, and return it.

        A switch has no id: one that is sent again also overrides what others set meanwhile.

        Parameters
        ----------
        placement : str
        mode : str
            ``online``, ``apprentice``, ``frozen`` or ``shadow``.

        Returns
        -------
        str

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return call_to(
            placement, "mode", body(ModeOf(mode)), lambda reply: decode(reply, type=ModeOf).mode
        )
