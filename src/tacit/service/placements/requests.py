"""Requests for decisions, checked before anything is changed, and their impressions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import filterfalse
from typing import Any

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm
from tacit.learning.learner import Learner
from tacit.policies.context import Encoder
from tacit.service.config.holdout import DECISION, SESSION
from tacit.service.deciders.assignment import format_unit_warning
from tacit.service.deciders.control_group import ControlGroup
from tacit.service.deciders.items import has_catalogue
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.deciders.signals import PlacementSignals
from tacit.service.deciders.sticky import STICKY_WARNING
from tacit.service.log.blocks import Block
from tacit.service.log.requests import ClientDecision, DecisionRequest, Impression, check_id
from tacit.service.log.rows import DecisionRow
from tacit.service.log.search_records import SearchFields, hash_unit
from tacit.service.placements.shows import Shows


class RequestReader:
    """Checks the requests of a placement and makes impressions of them; kinds override it.

    Parameters
    ----------
    name : str
        Name of the placement.
    shows : Shows
    policy : PolicyDecider
    control : ControlGroup
    signals : PlacementSignals or None

    Attributes
    ----------
    encoder : Encoder or None
        Encodes contexts of named fields.
    key_limit : int or None
        Maximum number of keys.
    has_catalogue : bool
        Whether the placement may have a catalogue of items.
    candidate_size : int
        Number of features of a candidate, at least 1.
    reads_only_keys : bool
        Whether of a request with a key alone only the key must be checked.
    hash_key : tuple of str and int
        Salt of users' hashes, and number of the placement.
    """

    hash_key: tuple[str, int]

    def __init__(
        self,
        name: str,
        shows: Shows,
        policy: PolicyDecider,
        control: ControlGroup,
        signals: PlacementSignals | None,
    ) -> None:
        self._name, self._shows, self._policy = name, shows, policy
        self._control, self._signals = control, signals
        self._lifecycle = shows.lifecycle
        config = self._config = shows.config
        schema = config.policy.schema or (config.shadow.schema if config.shadow is not None else ())
        self.encoder = Encoder(schema) if schema else None
        self.key_limit = config.key_limit
        self.has_catalogue = has_catalogue(config.policy)
        self.candidate_size = max(sum(config.policy.feature_dims), 1)
        self._dim = config.context_dim if config.signals is None else config.signals.client
        self.reads_only_keys = shows.has_plain_offer and not self._dim

    # Reading ---------------------------------------------------------------------------------

    def read(self, request: DecisionRequest) -> Impression:
        """Check a request and return its impression; changes nothing.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm, the context, the session, the user or the id does not fit.
        """
        for field in ("relevance", "examination", "segment", "unknown"):
            if (value := getattr(request, field)) is not None:
                raise InvalidValue(field, value, "leave it out: the policy reads no features")
        arms = request.arms
        if arms is not None:
            arms = self._lifecycle.check_arms(arms)
        impression = self._make_impression(request, arms, self._check_session(request.session))
        return self._with_unit(impression, request.session, request.user)

    def read_keys(self, keys: Sequence[str], users: Sequence[str | None] | None = None) -> Block[Impression]:
        """Check keys, and users if there are any; return an impression of nothing else for each key.

        Raises
        ------
        InvalidValue
            If a key or a user does not fit, or requests of this placement need more than a key.
        """
        nothing: list[Any] = [None] * len(keys)
        users = nothing if users is None else list(users)
        if not self.reads_only_keys or self._config.sticky is not None:
            pairs = zip(keys, users, strict=True)
            return Block.from_rows(
                Impression, [self.read(DecisionRequest(key, user=user)) for key, user in pairs]
            )
        for user in users if users is not nothing else ():
            if user is not None:
                check_id("user", user)
        for key in filterfalse(self._policy.learner.lanes.lane_of_key.__contains__, keys):
            _check_key(key)
        deferred = [False] * len(keys)
        # Without arms, context and id; then without the log's text, details and session.
        return Block(Impression, [list(keys), *3 * [nothing], deferred, *3 * [nothing], users])

    def find_new_keys(
        self, keys: Iterable[str], admitted: Collection[str], learners: Sequence[Learner]
    ) -> set[str]:
        """Check the limit of keys, and return the keys that the learner does not have; changes nothing.

        Without a limit the set is empty.

        Parameters
        ----------
        keys : iterable of str
        admitted : collection of str
            New keys that were already admitted but have no decision yet.
        learners : sequence of Learner
            All learners of the placement, for the bytes of a key in the error.

        Raises
        ------
        InvalidValue
            If there would be more keys than the configuration allows.
        """
        limit, learner = self.key_limit, self._policy.learner
        if limit is None:
            return set()
        # Keys use memory forever, so too many are refused.
        new = {key for key in keys if key not in learner} - set(admitted)
        if new and len(learner) + len(admitted) + len(new) > limit:
            key_bytes = sum(each.policy.key_bytes for each in learners)
            raise InvalidValue(
                "key",
                min(new),
                f"placement {self._name!r} lets in {limit:,} keys, of {key_bytes:,} bytes each, and has "
                f"{len(learner) + len(admitted):,}: raise its most_keys, let keys share what is learned "
                "(per_key = false), or send a key that it has",
            )
        return new

    @property
    def can_warn(self) -> bool:
        """True if :meth:`find_warning` can return warnings in the current configuration."""
        return (self.encoder or self._control.holdout or self._config.sticky) is not None

    def find_warning(self, request: Any) -> str | None:
        """Return a warning about a valid request that is probably a mistake; None otherwise."""
        if self._config.sticky is not None and request.user is None:
            return STICKY_WARNING
        holdout = self._control.holdout
        if holdout is not None and holdout.unit != DECISION and getattr(request, holdout.unit) is None:
            return format_unit_warning(holdout.unit)
        return None if self.encoder is None else self.encoder.find_warning(request.context)

    def check_offer(self, impressions: Sequence[Impression]) -> None:
        """Check again, when impressions are decided, that the arms they name are still on offer.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired after the request came.
        """
        self._lifecycle.check_offer(impressions)

    # Candidates ------------------------------------------------------------------------------

    def count_candidates(self, impressions: Block[Impression]) -> Sequence[int]:
        """Return the number of candidates of each impression; by default the number of arms on offer."""
        return [len(self._lifecycle.offer.arm_indices)] * len(impressions)

    def look_up_candidates(self, impressions: Block[Impression], places: Sequence[int]) -> Block[Impression]:
        """Return impressions with candidates from the catalogue in place of queries; by default unchanged.

        With several impressions, errors name the position of the impression in its request (``places``).

        Raises
        ------
        InvalidValue, UnknownName
            If an impression has no candidates, or one is missing.
        """
        return impressions

    # Repeated requests -----------------------------------------------------------------------

    def is_same_request(self, impression: Impression, row: DecisionRow) -> bool:
        """True if a logged decision answers an equal impression: a repeated request gets the same answer.

        A client's decision must also have shown the same arm.
        """
        client_decision = impression.details
        if isinstance(client_decision, ClientDecision) and client_decision.arm != row.arm:
            return False
        if impression.arms is None and self._shows.is_full_offer(row.offered):
            row = row._replace(offered=None)
        if not self._control.has_bucket(row, self.get_unit(impression)):
            return False
        context = row.context if self._signals is None else self._signals.get_client_context(row)
        return impression.matches_decision(row, context)

    def is_same_impression(self, impression: Impression, earlier: Impression) -> bool:
        """True if two impressions are equal, apart from sessions and users that the holdout ignores."""
        comparable = [item._replace(session=None, user=self.get_unit(item)) for item in (impression, earlier)]
        return comparable[0] == comparable[1]

    def get_unit(self, impression: Impression) -> str | None:
        """Return the user or session by which the holdout assigns an impression.

        None if it assigns each decision alone, or there is no holdout.
        """
        return None if self._unit == DECISION else getattr(impression, self._unit)

    @property
    def _unit(self) -> str:
        """Unit of the holdout's assignment; ``decision`` without a holdout."""
        holdout = self._control.holdout
        return DECISION if holdout is None else holdout.unit

    # Parts of requests -----------------------------------------------------------------------

    def _check_session(self, id: str | None) -> str | None:
        """Check a request's session; return its hash as JSON for the log, or None if no signal uses sessions.

        Raises
        ------
        InvalidValue
            If the session is no valid id, or nothing uses sessions.
        """
        if id is None:
            return None
        check_id("session", id)
        # Clients may still send it after a holdout by sessions has ended.
        has_sessions = self._control.has_had_unit(SESSION)
        if self._signals is not None and (self._signals.stream.follows_sessions or not has_sessions):
            return self._signals.hash_session(id)  # which refuses it if no signal uses sessions
        if not has_sessions:
            raise InvalidValue("session", id, "leave it out: the placement computes no signals")
        return None

    def _with_unit(self, impression: Impression, session: str | None, user: str | None) -> Impression:
        """Check the user of an impression, and its arms; return it with session and user.

        The arms must include the one that the holdout's control shows. If users keep their arms, the user's
        hash is added for the log.

        Raises
        ------
        InvalidValue
            If the user is no valid id, or the arms lack the one that the holdout's control shows.
        """
        if user is not None:
            check_id("user", user)
        arm = None if self._control.holdout is None else self._control.holdout.arm
        if arm is not None and impression.arms is not None and arm not in impression.arms:
            raise InvalidValue("arms", impression.arms, f"offer {arm!r}, which the control shows")
        if session is user is None:
            return impression
        impression = impression._replace(session=session, user=user)
        if self._config.sticky is None or user is None:
            return impression
        unit = hash_unit(*self.hash_key, user, session=None)
        return impression._replace(asked=SearchFields(unit=unit).text)

    def _make_impression(
        self,
        request: DecisionRequest,
        arms: Sequence[Arm] | None,
        text: str | None = None,
        source: Any = None,
    ) -> Impression:
        """Check key, context and id of a request and return its impression.

        Parameters
        ----------
        request : DecisionRequest
        arms : sequence of arms or None
            The checked offer.
        text : str, optional
            Text for the log's column ``asked``.
        source : optional
            The impression's ``details``.

        Raises
        ------
        InvalidValue
            If one does not fit.
        """
        context, id = self._read_context(request.context), request.id
        if id is not None:
            id = check_id("decision_id", id)
        key = _check_key(request.key)
        return Impression(key, arms, context, id, request.deferred, text, source)

    def _read_context(self, context: Any) -> Any:
        """Check a context and return it as a sequence of numbers, or None; named fields are encoded.

        Raises InvalidValue if it is missing, not expected, or has the wrong number of numbers.
        """
        if isinstance(context, Mapping):
            if self.encoder is None:
                remedy = "give numbers, or configure the placement's context: context = { NAME = … }"
                raise InvalidValue("context", context, remedy)
            context = self.encoder.encode_row(context).tolist()
        dim = self._dim
        if context is not None and not dim:
            remedy = "leave it out, or configure the placement's context: its policy reads none"
            if self._signals is not None:
                remedy = "leave it out: the signals are the service's"
            raise InvalidValue("context", context, remedy)
        if dim and not _fits(context, dim):
            named = "" if self.encoder is None else f", or what is known of {', '.join(self.encoder.fields)}"
            raise InvalidValue("context", context, f"give a list of {dim} finite numbers{named}")
        return context


def _check_key(key: str) -> str:
    """Return a key if it is valid; raise InvalidValue otherwise."""
    if "\0" in key:
        raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
    return checks.name("key", key)


def _fits(context: Any, dim: int) -> bool:
    """True if a context is a sequence of ``dim`` finite numbers."""
    return (
        isinstance(context, Sequence)
        and len(context) == dim
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )
