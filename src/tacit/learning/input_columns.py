"""Validate a learner's inputs and convert them to columns.

From top to bottom: warnings about unsuitable contexts and features, impressions to decide on, and decisions
with their feedback.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.classifiers import Classifier
from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.frames import frame_names, is_frame, to_numeric
from tacit.learning.batch import Batch
from tacit.learning.catalogue import CandidateVectors
from tacit.learning.decisions import Arm, Decision, Decisions, FeaturedArms, find_featured_arms
from tacit.learning.lanes import Lanes, Offer
from tacit.policies.base import NO_FEATURES, Policy
from tacit.policies.context import Encoder

# ---- Warnings about data that do not suit a policy

WATCHED_COUNT = 30
"""Number of decisions whose features are inspected: enough that flags are not equal by chance."""


def find_classifier(policy: Any) -> Classifier | None:
    """Return the safe classifier of a policy, or of the policy that it wraps; None if neither has one."""
    while policy is not None:
        classifier = getattr(policy, "classifier", None)
        if isinstance(classifier, Classifier):
            return classifier
        policy = getattr(policy, "policy", None)
    return None


class ContextWatch:
    """Count the contexts outside the universe of a policy's classifier, and warn of the first.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    outside : int
        Number of contexts so far outside of the classifier's universe.
    """

    def __init__(self, policy: Any) -> None:
        """Create a watch that has counted none; without a classifier, :meth:`inspect` does nothing."""
        self._classifier = find_classifier(policy)
        self.outside = 0

    def inspect(self, contexts: Floats, frames: int = 5) -> None:
        """Add the number of contexts outside of the classifier's universe to ``outside``; warn of the first
        such context ever.

        Contexts have the shape (impressions, context_dim). The warning shows the line of code that is
        ``frames`` stack frames up.
        """
        classifier = self._classifier
        if classifier is None:
            return
        feasible = classifier.feasible(contexts[:, : classifier.dim])
        if feasible.all():
            return
        if self.outside == 0:
            first = contexts[int(np.argmin(feasible)), : classifier.dim].tolist()
            warnings.warn(
                f"context: {first} is outside of what {type(classifier).__name__} is safe for; "
                f"give {classifier.universe}",
                AssumptionWarning,
                stacklevel=frames,
            )
        self.outside += int(np.count_nonzero(~feasible))


class UserWatch:
    """Warn of relevance features that cannot rank arms, because all arms of a decision have the same value.

    Features of a user, passed as relevance, are an example: they vary between decisions, but never between
    the arms of one. The first 30 decisions are inspected.
    """

    def __init__(self) -> None:
        """Create a watch that has inspected no decision."""
        self._remaining = WATCHED_COUNT
        self._first: Floats | None = None
        self._constant: Booleans | None = None
        self._varied: Booleans | None = None

    def inspect(self, relevance: Floats, sizes: Ints) -> None:
        """Record which columns vary between and within decisions; after 30 decisions, warn once of those that
        vary only between them.

        Does nothing after that, or if a decision has fewer than two arms.

        Parameters
        ----------
        relevance : array of float64, shape (arms on offer, d)
            Rows of all decisions, concatenated.
        sizes : array of int64, shape (decisions,)
            Number of arms on offer in each decision.
        """
        if self._remaining <= 0 or not relevance.size or (sizes < 2).any():
            return
        self._remaining -= len(sizes)
        firsts = relevance[np.cumsum(sizes) - sizes]
        constant = (relevance == np.repeat(firsts, sizes, axis=0)).all(axis=0)
        if self._first is None:
            self._first, self._constant = firsts[0], constant
            self._varied = np.zeros(len(constant), np.bool_)
        self._constant = self._constant & constant
        self._varied = self._varied | (firsts != self._first).any(axis=0)
        columns = np.flatnonzero(self._constant & self._varied).tolist()
        if self._remaining <= 0 and columns:
            warnings.warn(
                f"relevance: the columns {columns} are the same for all arms of a decision, as "
                "features of a user are, and put no arm before another; give them as context to a "
                "policy that multiplies them with those of arms: "
                f"ClickMixture(…, context_dim={len(columns)})",
                AssumptionWarning,
                stacklevel=5,
            )


# ---- Impressions to decide on: validation and conversion to columns

Columns = tuple[Ints, Ints, Ints, Floats, Floats, Floats]


class ImpressionReader:
    """Validate impressions for a policy, convert them to columns, and warn of unsuitable ones.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    watch : ContextWatch
    encoder : Encoder or None
        Encodes contexts that are dicts, if the policy has a schema.
    """

    def __init__(self, policy: Policy) -> None:
        """Create a reader that has seen no impressions."""
        self.watch = ContextWatch(policy)
        self.encoder = Encoder(policy.schema) if policy.schema else None
        self._takes_plain = self.encoder is None and find_classifier(policy) is None
        self._users = UserWatch()
        self._columns: list[str] = []
        self._first_features: list[tuple[Floats, Floats]] | None = []

    def read(self, policy: Policy, offer: Offer, rows: int, inputs: tuple[Any, Any, Any, Any]) -> Columns:
        """Validate impressions and return the columns of a :class:`~tacit.learning.batch.Batch` after its
        ``lanes``.

        Contexts are encoded by the policy's schema. Warns of contexts or features that do not suit the
        policy.

        Parameters
        ----------
        policy : Policy
            The reader's policy.
        offer : Offer
            The arms that the learner may show.
        rows : int
            Number of impressions.
        inputs : tuple
            Contexts, arms, relevance and examination as ``choose_many`` takes them.

        Raises
        ------
        InvalidValue, UnknownName
            If contexts, features or arms do not fit the policy, or an arm is not on offer.
        """
        contexts, arms, relevance, examination = inputs
        if arms is not None and len(checks.names("arms", arms)) != rows:
            raise InvalidValue("arms", arms, f"give one list of arms for each of {rows} impressions")
        blocks, sizes = _read_features(policy, relevance, examination, rows)
        # Ids of a catalogue were checked when their vectors were found.
        offers = _read_offers(offer, None if isinstance(relevance, CandidateVectors) else arms, sizes, rows)
        if self.encoder is not None:
            contexts = self.encoder.encode_rows(contexts)
        elif not isinstance(contexts, np.ndarray | list) and is_frame(contexts):
            self._check_order(frame_names(contexts))
        context_rows = _read_contexts(policy, contexts, rows)
        if policy.context_dim:
            self.watch.inspect(context_rows)
        if sizes is not None:
            self._users.inspect(blocks[0], sizes)
        return *offers, context_rows, *blocks

    def _check_order(self, names: list[str]) -> None:
        """Raise InvalidValue if a table has the first table's columns in another order.

        ``names`` are the table's column names; the first call stores them.
        """
        self._columns = self._columns or names
        if names != self._columns and sorted(names) == sorted(self._columns):
            remedy = f"give the columns in their order of before: {self._columns}"
            raise InvalidValue("context", names, remedy)

    def read_context(self, policy: Policy, context: Any) -> Floats:
        """Validate one context and return its columns, shape (context_dim,).

        Raises InvalidValue if it does not fit the policy. Counts a context outside of the classifier's
        universe, and warns of the first.
        """
        is_plain = type(context) is np.ndarray and context.dtype == np.float64 and self._takes_plain
        # The sum of squares is not below the limit if a number is missing, infinite or too large.
        if is_plain and context.shape == (policy.context_dim,) and context.dot(context) < checks.HUGE:
            return context  # type: ignore[no-any-return]
        names: Any = getattr(context, "columns", getattr(context, "index", None))
        if self.encoder is None and hasattr(names, "tolist"):
            self._check_order(list(map(str, names)))
        contexts = [context] if self.encoder is None else self.encoder.encode_rows([context])
        rows = _read_contexts(policy, None if context is None else contexts, 1)
        self.watch.inspect(rows, frames=4)
        return rows[0]  # type: ignore[no-any-return]

    def advise(self, policy: Policy, relevance: Floats, examination: Floats) -> None:
        """Collect features of arms, and pass them once to ``policy.advise``, which warns if they do not suit.

        That happens when there are more than twice as many arms as features. Does nothing after that, or if
        the policy does not read both kinds of features.
        """
        if self._first_features is None:
            return
        if 0 in policy.feature_dims or not hasattr(policy, "advise"):
            self._first_features = None
            return
        self._first_features.append((relevance, examination))
        if sum(len(block) for block, _ in self._first_features) > 2 * sum(policy.feature_dims):
            policy.advise(*map(np.concatenate, zip(*self._first_features, strict=True)))
            self._first_features = None


def _read_contexts(policy: Policy, contexts: Any, rows: int) -> Floats:
    """Return encoded contexts as an array, shape (rows, context_dim).

    Raises InvalidValue unless they are finite numbers of this shape, and if contexts are passed to a policy
    that reads none. Warns of numbers that are too large to square.
    """
    dim = policy.context_dim
    if dim == 0:
        remedy = "tacit.auto(arms=…, context_dim=…), or signals_dim=…"
        if any(policy.feature_dims):
            remedy = "tacit.auto(relevance_dim=…, context_dim=…)"
        elif contexts is not None and any(isinstance(item, Mapping) for item in contexts):
            remedy = "tacit.auto(arms=…, context={…}), which says what each field holds"
        _refuse_unread("context", contexts, policy, remedy)
        return np.zeros((rows, 0))
    array = _to_array(contexts)
    if array.shape != (rows, dim):
        array = _to_array(_to_dense(contexts))
        array = array.reshape(rows, dim) if array.shape == (rows, 1, dim) else array
    largest = np.abs(array).max(initial=0.0)
    if array.shape != (rows, dim) or not largest < np.inf:  # NaN is not, either
        raise _make_context_error(policy, contexts, array, rows)
    if largest > checks.HUGE:
        # A warning only, since logs of earlier versions may have such numbers.
        message = (
            f"context: {largest:g} is so large that its square is none: nothing can be learned beside it"
        )
        warnings.warn(f"{message}; leave it out, or divide it", AssumptionWarning, stacklevel=5)
    return array  # type: ignore[no-any-return]


def _make_context_error(policy: Policy, contexts: Any, array: Any, rows: int) -> InvalidValue:
    """Return the error for contexts that are not ``rows`` rows of finite numbers, as the policy reads them.

    ``array`` has the contexts as numbers; it is empty if they are none. The error names the first number or
    context that is None, else the whole argument.
    """
    dim, single = policy.context_dim, _is_single(contexts, rows)
    numbers = f"give {dim} finite numbers"
    if policy.schema and (contexts is None or single):
        fields = ", ".join(name for name, _ in policy.schema)
        numbers = f"give a dict of {fields}, {{}} where nothing is known"
    elif single and isinstance(contexts[0], Mapping):
        numbers += ", or say what each field holds: tacit.auto(arms=…, context={…})"
    if not single and contexts is not None and np.ndim(array) and 0 < len(array) != rows:
        lack = f"give one for each of {rows} impressions" + "; choose_many takes several" * (rows == 1)
        return InvalidValue("context", f"{len(array)} contexts", lack)
    lacking = _find_none(contexts[0] if single else contexts, dim if single else rows)
    if lacking is not None:
        return InvalidValue(f"context[{lacking}]", None, numbers)
    if single:
        return InvalidValue("context", contexts[0], numbers)
    item = "" if rows == 1 else f"{',' * bool(policy.schema)} for each impression"
    return InvalidValue("context", contexts, numbers + item)


def _to_array(contexts: Any) -> Any:
    """Return contexts as a float64 array; an empty one, shape (0, 0), if they are not numbers."""
    try:
        return np.ascontiguousarray(to_numeric("context", contexts), dtype=np.float64)
    except InvalidValue:
        raise
    except (TypeError, ValueError):
        return np.full((0, 0), np.nan)


def _find_none(values: Any, count: int) -> int | None:
    """Return the index of the first None in ``values``; None if there is none, or if ``values`` is not a list
    or tuple of ``count`` values.
    """
    if not isinstance(values, list | tuple) or len(values) != count:
        return None
    return next((place for place, value in enumerate(values) if value is None), None)


def _to_dense(contexts: Any) -> Any:
    """Convert sparse contexts, as transformers of scikit-learn return, to dense arrays."""
    if isinstance(contexts, list):
        return list(map(_to_dense, contexts))
    return contexts.toarray() if hasattr(contexts, "toarray") else contexts


def _refuse_unread(field: str, data: Any, policy: Policy, remedy: str) -> None:
    """Raise InvalidValue if ``data`` holds anything, as the policy would ignore it.

    ``field`` names the data, and ``remedy`` a policy that reads them.
    """
    if data is not None and any(block is not None and np.size(block) for block in data):
        example = data[0] if _is_single(data, len(data)) else data
        raise InvalidValue(field, example, f"{policy.label} reads none: leave it out, or take {remedy}")


def _read_features(
    policy: Policy, relevance: Any, examination: Any, rows: int
) -> tuple[tuple[Floats, Floats], Ints | None]:
    """Return a pair of feature matrices, relevance and examination, and the number of arms of each
    impression.

    A matrix has a row per arm on offer, all impressions concatenated; no rows if the policy does not read
    these features. The numbers are None if it reads neither. Raises InvalidValue if features are invalid.
    """
    blocks, sizes = [NO_FEATURES, NO_FEATURES], None
    names = "relevance", "examination"
    for i, (field, block) in enumerate(zip(names, (relevance, examination), strict=True)):
        dim = policy.feature_dims[i]
        if dim == 0:
            _refuse_unread(field, block, policy, f"tacit.auto({field}_dim=…)")
            continue
        blocks[i], block_sizes = _stack_features(policy, field, block, rows)
        if sizes is not None and not np.array_equal(sizes, block_sizes):
            raise InvalidValue(field, block, "give as many rows as of relevance: one for each arm on offer")
        sizes = block_sizes
    return (blocks[0], blocks[1]), sizes


def _stack_features(policy: Policy, field: str, features: Any, rows: int) -> tuple[Floats, Ints]:
    """Return the feature matrices of all impressions, concatenated, and the number of rows of each.

    Raises InvalidValue unless there are ``rows`` finite matrices of the policy's width. Vectors from a
    catalogue have this form already and are returned unchanged.
    """
    if isinstance(features, CandidateVectors):
        return features
    # Relevance has index 0, examination 1.
    dim = policy.feature_dims[field == "examination"]

    def refusal() -> InvalidValue:
        """Return the error for invalid features, or for an empty catalogue."""
        # A function, since the message prints the features, which takes time.
        expected = f"a row of {dim} finite numbers for each arm on offer"
        if features is None and field == "relevance" and policy.arms is None:
            remedy = f"put items there, learner.items.put(ids, vectors), or give relevance=, {expected}"
            return InvalidValue("items", [], f"the catalogue is empty: {remedy}")
        shape: Any = () if features is None else getattr(features[0], "shape", ())
        if len(shape) == 2 and shape[1] != dim:
            expected += f"; these have {shape[1]} numbers each"
        if features is None or _is_single(features, rows):
            return InvalidValue(field, features and features[0], f"give {expected}")
        return InvalidValue(field, features, f"give, for each of {rows} impressions, {expected}")

    try:
        matrices = [np.asarray(to_numeric(field, block), dtype=np.float64) for block in features]
    except InvalidValue:
        raise
    except (TypeError, ValueError):
        raise refusal() from None
    sizes = np.array([len(matrix) if matrix.ndim == 2 else 0 for matrix in matrices], np.int64)
    fits = all(matrix.shape[1] == dim for matrix in matrices) if sizes.all() else False
    if len(matrices) != rows or not fits:
        raise refusal()
    stacked = np.concatenate(matrices) if rows else np.zeros((0, dim))
    if not np.isfinite(stacked).all():
        raise refusal()
    return stacked, sizes


def _is_single(data: Any, rows: int) -> bool:
    """True if one impression is read from a list of one row; ``Learner.choose`` passes its arguments so."""
    return isinstance(data, list) and rows == len(data) == 1


def _read_offers(
    offer: Offer, arms: Sequence[Sequence[Arm] | None] | None, sizes: Ints | None, rows: int
) -> tuple[Ints, Ints, Ints]:
    """Return the indices of the arms on offer, all impressions in one array, and where in it each
    impression's arms start and stop.

    ``arms`` are their names per impression, None for all arms. ``sizes`` is the number of feature rows of
    each impression, None without features. Raises UnknownName or InvalidValue if an arm is not on offer, or
    the numbers of arms and of feature rows differ.
    """
    if arms is None and sizes is None:
        stops = np.empty(rows, np.int64)
        stops.fill(len(offer.arm_indices))
        return offer.arm_indices, np.zeros(rows, np.int64), stops
    arm_lists = [None] * rows if arms is None else arms
    # Without names, arms are numbered by their feature rows.
    if not offer.names:
        assert sizes is not None
        for names, size in zip(arm_lists, sizes.tolist(), strict=True):
            _check_names(names, size)
        offered = [np.arange(size) for size in sizes.tolist()]
    else:
        offered = [
            offer.arm_indices if row_arms is None else offer.find_arm_indices(row_arms)
            for row_arms in arm_lists
        ]
    counts = np.array([len(slots) for slots in offered], np.int64)
    if sizes is not None and not np.array_equal(sizes, counts):
        remedy = f"give a row for each arm on offer: {counts.tolist()}"
        raise InvalidValue("relevance", sizes.tolist(), remedy)
    stops = np.cumsum(counts)
    joined = np.concatenate(offered) if offered else offer.arm_indices
    return joined, stops - counts, stops


def _check_names(names: Sequence[Arm] | None, size: int) -> None:
    """Raise InvalidValue unless there are as many names as arms on offer, all different; None is allowed."""
    if names is not None and not len(names) == len(set(checks.offer(names))) == size:
        raise InvalidValue("arms", names, f"name each of the {size} arms on offer, all differently")


# ---- Decisions and their feedback: validation and conversion to columns


class DecisionReader(NamedTuple):
    """Validate decisions for a policy and convert them to columns."""

    policy: Policy
    offer: Offer
    lanes: Lanes

    def read_columns(self, decisions: Sequence[Decision]) -> tuple[Batch, Ints, Floats, Ints]:
        """Validate decisions and return their impressions, actions, propensities and epochs as columns.

        :class:`Decisions` that this learner returned are columns already and are not validated. Unknown
        propensities are NaN.

        Raises
        ------
        InvalidValue
            If a decision is repeated, or does not fit the policy.
        UnknownName
            If nothing was ever chosen for a decision's key.
        """
        if isinstance(decisions, Decisions) and decisions.lanes is self.lanes.lane_of_key:
            return decisions.batch, decisions.actions, decisions.propensities, decisions.epochs
        batch = self.read_batch(decisions)
        refuse_repeated(decisions)
        return (
            batch,
            self.read_actions(decisions, batch),
            # NumPy takes None for NaN.
            np.array([d.propensity for d in decisions], np.float64),
            np.array([d.epoch for d in decisions], np.int64),
        )

    def read_batch(self, decisions: Sequence[Decision]) -> Batch:
        """Return the impressions of one decision or more as a batch.

        Raises InvalidValue if one is not a ``Decision`` or does not fit the policy, UnknownName for a key
        without a lane.
        """
        rows = len(decisions)
        for decision in decisions if set(map(type, decisions)) != {Decision} else ():
            require_decision(decision)
        _, keys, _, _, _, offered, _, contexts, relevance, examination, *_ = zip(*decisions, strict=True)
        featured = self.policy.feature_dims != (0, 0)
        if featured:
            offered, _, relevance, examination = zip(*map(self._find_featured_arms, decisions), strict=True)
        lanes = list(map(self.lanes.lane_of_key.get, keys))
        if None in lanes:
            lanes = list(map(self.lanes.lane, keys))
        arms, starts, stops = offered[0], np.zeros(rows, np.int64), np.full(rows, len(offered[0]))
        # Decisions among all arms share one array, and a batch then needs no copies of it.
        if featured or len(set(map(id, offered))) > 1:
            sizes = np.array([len(offer) for offer in offered], np.int64)
            stops = np.cumsum(sizes)
            arms, starts = np.concatenate(offered), stops - sizes
        blocks = NO_FEATURES, NO_FEATURES
        fits = set(map(len, contexts)) == {self.policy.context_dim}
        if featured:
            blocks = _concatenate_rows(relevance), _concatenate_rows(examination)
            shapes = [(len(arms), dim) if dim else (0, 0) for dim in self.policy.feature_dims]
            fits &= [block.shape for block in blocks] == shapes
        if self.policy.arms is not None and arms.size:
            fits &= bool(arms.max() < len(self.offer.names))
        if not fits:
            raise self._make_mismatch_error(decisions)
        dim = self.policy.context_dim
        context_rows = np.concatenate(contexts).reshape(rows, dim) if dim else np.empty((rows, 0))
        return Batch(np.array(lanes, np.int64), arms, starts, stops, context_rows, *blocks)

    def read_actions(self, decisions: Sequence[Decision], batch: Batch) -> Ints:
        """Return the arm indices that decisions showed, shape (decisions, action_width).

        Raises InvalidValue if the policy has no such arms or names them differently. Compiled code does not
        check bounds: an invalid index would write to other memory.
        """
        width = self.policy.action_width
        slots = [d.slots for d in decisions]
        if set(map(len, slots)) != {width}:
            raise self._make_mismatch_error(decisions)
        # A list's arm indices do not depend on which arms have features, so they need no conversion.
        if self.policy.feature_dims != (0, 0) and not self.policy.showing.listed:
            slots = [self._find_featured_arms(decision).slots for decision in decisions]
        actions = np.concatenate(slots, dtype=np.int64).reshape(-1, width)
        limits = batch.stops - batch.starts if self.policy.arms is None else len(self.offer.names)
        least = -1 if self.policy.showing.listed else 0
        if ((actions < least) | (actions >= np.reshape(limits, (-1, 1)))).any():
            raise self._make_mismatch_error(decisions)
        if self.policy.arms is not None and not all(map(self._has_same_names, decisions)):
            raise self._make_mismatch_error(decisions)
        return actions

    def _has_same_names(self, decision: Decision) -> bool:
        """True if a decision names its shown arms as this policy does at the same arm indices."""
        offer = self.offer
        if decision.offered is offer.arm_indices:
            return True
        names = [offer.names[slot] for slot in decision.slots.tolist() if slot >= 0]
        return [name for name in decision.shown if name is not None] == names

    def _find_featured_arms(self, decision: Decision) -> FeaturedArms:
        """Return the arms whose features a decision holds, the indices of the shown arms among these, and the
        features.
        """
        fields = decision.offered, decision.slots, decision.relevance, decision.examination
        is_named = self.policy.arms is not None
        return find_featured_arms(*fields, named=is_named, listed=self.policy.showing.listed)

    def read_feedback(self, field: str, rewards: Any, decisions: Sequence[Decision]) -> Floats:
        """Validate rewards of decisions and return them as an array, shape (decisions, positions).

        They are not scaled to [0, 1]. Empty positions of lists that are not full get 0. ``field`` names the
        argument in errors.

        Raises
        ------
        InvalidValue
            If there is not one number within the policy's range for each, or one for each position.
        """
        if isinstance(decisions, Decision) or not hasattr(decisions, "__len__"):
            raise InvalidValue("decisions", decisions, "give a list of what choose returned, or learn one")
        width, rows = self.policy.feedback_width, len(decisions)
        shape = (rows,) if width == 1 else (rows, width)
        array = _try_array(rewards)
        if array.shape != shape and width > 1:
            array = _try_array(_pad_rewards(rewards, decisions, width))
        if array.shape != shape or (array.dtype.kind not in "fiub" and array.size):
            # Raises, with a message for a single reward.
            if width == 1 and field == "reward":
                read_reward(self.policy, rewards[0])
            if field == "reward":
                remedy = f"give {width} numbers, one for each position: 1 for a click, 0 for none"
                raise InvalidValue(field, rewards[0], remedy)
            expected = "one" if width == 1 else f"{width} numbers"
            raise InvalidValue(field, rewards, f"give {expected} for each of {rows} decisions")
        values = np.ascontiguousarray(array, dtype=np.float64)
        within = self.policy.reward_range.contains(values)
        if not within.all():
            first = np.unravel_index(int(np.argmin(within)), shape)
            place, value = ", ".join(map(str, first)), float(values[first])
            raise InvalidValue(f"{field}[{place}]", value, self.policy.reward_range.remedy(value))
        return values.reshape(rows, width)

    def _make_mismatch_error(self, decisions: Sequence[Decision]) -> InvalidValue:
        """Return the error that says that decisions do not fit the policy."""
        argument = decisions[0] if len(decisions) == 1 else f"{len(decisions)} decisions"
        return InvalidValue("decision", argument, f"give decisions of a learner of {self.policy}")


def read_reward(policy: Policy, reward: Any) -> float:
    """Return the reward of an arm or a duel, scaled to the unit of the policy's state.

    Raises InvalidValue if it is not within the policy's range; of a duel, with what a reward says.
    """
    try:
        return policy.reward_range.read_number("reward", reward)  # type: ignore[no-any-return]
    except InvalidValue as error:
        if not policy.showing.compared:
            raise
        remedy = "of a duel: 1.0 if the left one of decision.pair won, 0.0 if the right one, 0.5 for a tie"
        raise InvalidValue("reward", reward, f"{error.allowed}, {remedy}") from None


def refuse_unfilled(field: str, values: Floats, actions: Ints) -> None:
    """Raise InvalidValue if a list has a reward above 0 at a position without an arm.

    ``values`` and ``actions`` have the shape (decisions, positions); ``field`` names the argument in the
    error.
    """
    if values.shape[1] > 1 and (nothing := (values > 0) & (actions < 0)).any():
        row, position = np.argwhere(nothing)[0]
        place = f"{field}[{position}]" if len(values) == 1 else f"{field}[{row}, {position}]"
        raise InvalidValue(place, float(values[row, position]), "nothing stood at that position; give 0")


def _try_array(values: Any) -> Any:
    """Return values as an array; an empty array if their rows differ in length."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.empty(0, object)


def _pad_rewards(rewards: Any, decisions: Sequence[Decision], width: int) -> Any:
    """Return the rewards of lists, each extended by zeros to ``width`` positions.

    Rewards are returned unchanged unless each decision has one for each shown arm, or ``width`` of them.
    """
    lists = list(map(checks.as_list, rewards)) if np.iterable(rewards) else []
    if len(lists) != len(decisions) or not all(isinstance(item, list | tuple) for item in lists):
        return rewards
    filled = [np.count_nonzero(item.slots >= 0) if type(item) is Decision else 0 for item in decisions]
    whole = [[*item, *[0.0] * (width - len(item))] for item in lists]
    return whole if all(len(item) in (n, width) for item, n in zip(lists, filled, strict=True)) else rewards


def _concatenate_rows(blocks: Sequence[Floats]) -> Floats:
    """Return matrices concatenated by rows; a single contiguous one is returned without a copy."""
    return np.ascontiguousarray(blocks[0]) if len(blocks) == 1 else np.concatenate(blocks)


def require_decision(decision: Any) -> None:
    """Raise InvalidValue, with a hint for JSON and lists, unless the argument is a ``Decision``."""
    if type(decision) is not Decision:
        hints: dict[type, str] = {
            str: ", or of its JSON Decision.from_json(text)",
            dict: ", or of its JSON the text, as to_json returned it",
            Decisions: "; learn_many learns many",
        }
        raise InvalidValue("decision", decision, f"give what choose returned{hints.get(type(decision), '')}")


def refuse_repeated(decisions: Sequence[Decision]) -> None:
    """Raise InvalidValue if two decisions have the same id; ``Decisions`` are not checked, their ids
    differ.
    """
    if isinstance(decisions, Decisions):
        return
    ids = [decision.id for decision in decisions]
    if len(set(ids)) == len(ids):
        return
    place = {id: row for row, id in enumerate(ids)}
    first = next(row for row, id in enumerate(ids) if place[id] != row)
    raise InvalidValue(
        f"decisions[{place[ids[first]]}].id",
        ids[first],
        f"decisions[{first}] has it too; give each decision once, and those of different learners apart",
    )


def order_by_id(decisions: Sequence[Decision], decision_count: int) -> Ints | None:
    """Return the indices that sort decisions by id, or None if they are learned in the given order.

    That is so if the ids ascend already, or if an id is not below ``decision_count``, this learner's number
    of decisions. In the latter case decisions of other learners are among them, whose order is unknown:
    warns.
    """
    if isinstance(decisions, Decisions):
        return None
    ids = np.array([decision.id for decision in decisions], np.int64)
    if (np.diff(ids) > 0).all():
        return None
    if ids.max() < decision_count:
        return np.argsort(ids)
    message = (
        "decisions: some are of another learner, and their numbers do not ascend: they are learned as they"
    )
    remedy = "stand; give those of each learner in the order in which they were made"
    warnings.warn(f"{message} {remedy}", AssumptionWarning, stacklevel=3)
    return None
