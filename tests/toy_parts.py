"""A stage of the chain and a projection that are no part of the package, each in a class of its own."""

from collections import Counter
from dataclasses import replace

import numpy as np

from tacit.service.projections.projection import Projection

HOUR = 3_600_000_000


class EveryTenth:
    """Shows one arm to every tenth decision, whatever the policy would show.

    The propensity is that of both together: 1 or 0 for the arm, since which decision is the tenth is known.
    """

    def __init__(self, placement, decider, arm):
        self._decider, self._seqs = decider, placement.counts
        self._index = placement.lifecycle.arm_indices[arm]

    def choose(self, batch):
        for choices in self._decider.choose(batch):
            before = self._seqs.decisions
            tenth = (np.arange(before, before + len(choices.batch.ids)) + 1) % 10 == 0
            decisions = choices.decisions
            actions = np.where(tenth[:, None], self._index, decisions.actions)
            propensities = np.where(tenth, 1.0, decisions.propensities)
            choices.decisions = replace(decisions, actions=actions, propensities=propensities)
            yield choices


class HourlyCounts(Projection):
    """Counts decisions by the hour; the page says how many the last hour had."""

    def __init__(self):
        self.counts = Counter()

    def add_decisions(self, rows):
        self.counts[rows.column("time")[0] // HOUR] += len(rows)

    def make_remark(self, now):
        return f"decisions in this hour: {self.counts[now // HOUR]}"

    def save_state(self):
        return {"counts": {str(hour): count for hour, count in self.counts.items()}}

    def restore(self, saved, snapshot):
        counts = saved.added["HourlyCounts"]["counts"]
        self.counts = Counter({int(hour): count for hour, count in counts.items()})

    def export_part(self):
        return self.counts

    def merge_parts(self, parts):
        self.counts = sum(parts, Counter())
