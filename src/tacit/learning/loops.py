"""The compiled loops of one learner, and room for a batch of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import learns_from_propensity
from tacit.learning.batch import (
    Batch,
    choose_rows,
    correct_rows,
    impose_rows,
    learn_rows,
    observe_rows,
    place_rows,
    refit_shared,
    relive_rows,
    weigh_cells,
    weigh_rows,
)
from tacit.learning.lanes import Lanes
from tacit.learning.offer import Offer
from tacit.policies.base import NO_FEATURES, Policy


class Loops:
    """Loops over batches, each compiled when it is first asked for.

    Parameters
    ----------
    policy : Policy
    offer : Offer
    lanes : Lanes
    rng : Generator
    reported : bool
        Whether decisions carry their propensity.

    Attributes
    ----------
    params : named tuple
    one : Batch
        One impression: all arms on offer, no context.
    action, feedback, epoch, propensity, fresh, prefixes, places : array
        Room for what is shown for it and comes back.
    shown, context : array
        The only rows of ``action`` and of the contexts of ``one``.
    asked : array or None
        ``propensity``, if it is wanted of decisions.
    """

    def __init__(self, policy: Policy, offer: Offer, lanes: Lanes, rng: Generator, reported: bool) -> None:
        self.params = policy.params
        self._offered = offer.slots
        self._lanes, self._rng = lanes, rng
        self.one = self.plain_batch(np.zeros(1, np.int64), np.zeros((1, policy.context_dim)))
        self.action = np.empty((1, policy.action_width), np.int64)
        self.shown, self.context = self.action[0], self.one.contexts[0]
        self.feedback = np.empty((1, policy.feedback_width))
        self.epoch, self.propensity = np.empty(1, np.int64), np.full(1, np.nan)
        self.fresh = np.zeros(1, np.bool_)
        self.prefixes, self.places = np.empty((2, 1, policy.action_width))
        wanted = reported or learns_from_propensity(self.params)
        self.asked = self.propensity if wanted else None

    def plain_batch(self, lanes: Ints, contexts: Floats) -> Batch:
        """Return impressions that are offered all arms."""
        rows, arms = len(lanes), self._offered
        stops = np.empty(rows, np.int64)
        stops.fill(len(arms))
        starts = np.zeros(rows, np.int64)
        return Batch(lanes, arms, starts, stops, contexts, NO_FEATURES, NO_FEATURES)

    @cached_property
    def choose(self) -> Any:
        """The loop over ``choose_rows``."""
        return self._entry(choose_rows, self._rng, self.action, self.epoch, self.asked)

    @cached_property
    def impose(self) -> Any:
        """The loop over ``impose_rows``."""
        imposed = np.empty((0, 0), np.int64), False
        return self._entry(impose_rows, self._rng, *imposed, self.action, self.epoch, self.propensity)

    @cached_property
    def observe(self) -> Any:
        """The loop over ``observe_rows``."""
        return self._entry(observe_rows)

    @cached_property
    def learn(self) -> Any:
        """The loop over ``learn_rows``."""
        came_back = self.feedback, self.propensity, self.epoch, self.fresh
        return self._entry(learn_rows, self._lanes.plays, self.action, *came_back)

    @cached_property
    def correct(self) -> Any:
        """The loop over ``correct_rows``."""
        from tacit.core.compiled import compiled

        return compiled(correct_rows, self.params)

    @cached_property
    def relive(self) -> Any:
        """The loop over ``relive_rows``."""
        from tacit.core.compiled import compiled

        return compiled(relive_rows, self.params)

    @cached_property
    def refit(self) -> Any:
        """The loop over ``refit_shared``."""
        from tacit.core.compiled import compiled

        return compiled(refit_shared, self.params)

    @cached_property
    def weigh(self) -> Any:
        """The loop over ``weigh_rows``."""
        return self._entry(weigh_rows, np.empty(0))

    @cached_property
    def weigh_cells(self) -> Any:
        """The loop over ``weigh_cells``."""
        return self._entry(weigh_cells, np.empty((0, 0)))

    @cached_property
    def place(self) -> Any:
        """The loop over ``place_rows``."""
        return self._entry(place_rows, self.action, self.prefixes, self.places)

    def _entry(self, loop: Callable[..., Any], *others: Any) -> Any:
        from tacit.core.compiled import compiled

        return compiled(loop, self.params).entry((self.params, self._lanes.state, self.one, *others))
