"""How often the lift of a holdout errs, how wide it is, and when it shows: docs/proof.md measured.

python benchmarks/proof.py            everything; writes PROOF.md
python benchmarks/proof.py --quick    fewer runs, in about two minutes; prints only
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from proof_traffic import (
    DAY,
    Plan,
    chapters,
    clicks,
    constant,
    drifting,
    equal_arms,
    looks,
    revenue,
    stepping,
    sticky,
    sticky_chapters,
    with_edges,
)
from tables import markdown

from tacit.core.seeds import stream
from tacit.uplift import HoldoutSums, boundary, decisions_needed, share_evidence
from tacit.uplift.holdout import difference_from_ratio, has_enough_data, is_refuted, ratio_ends
from tacit.uplift.traffic import ALARM, independent_counts

HERE = Path(__file__).parent
SEED = 20260503
C = boundary()
SHARES = (0.05, 0.1, 0.5)
RATES = (0.01, 0.05, 0.2, 0.5)


class Effort(NamedTuple):
    """How much is simulated."""

    runs: int
    looks: int
    heavy: int
    """Runs where each draws every user or amount."""
    sticky: int


FULL = Effort(runs=4000, looks=400, heavy=2000, sticky=1000)
QUICK = Effort(runs=2000, looks=200, heavy=200, sticky=60)


class Measured(NamedTuple):
    """A figure with its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} ± {100 * self.error:.1f} %"


def share_of(happened: Any) -> Measured:
    """Return in how many runs something happened."""
    n, p = len(happened), float(np.mean(happened))
    return Measured(p, math.sqrt(max(p * (1 - p), 1 / n) / n))


Row = tuple[Any, ...]


def table(title: str, heads: tuple[str, ...], rows: Iterator[Row], note: str = "") -> str:
    """Print a table row by row, and return it as Markdown."""
    print(f"\n{title}\n{' | '.join(heads)}")
    found = []
    for row in rows:
        found.append(row)
        print(" | ".join(map(str, row)), flush=True)
    return "\n\n".join([f"## {title}", *([note] if note else []), markdown(heads, found)])


# Errors --------------------------------------------------------------------------------------


def peeked(sums: HoldoutSums, z: float) -> Any:
    """Whether a difference of means, tested as if this was the only look, errs."""
    mean0, mean1 = sums.totals / np.maximum(sums.counts, 1)
    spread = sums.squares / np.maximum(sums.counts, 1) - np.array([mean0, mean1]) ** 2
    error = np.sqrt((spread / np.maximum(sums.counts, 1)).sum(axis=0))
    return np.abs(mean1 - mean0) > z * np.where(error > 0, error, np.inf)


def ever(steps: Iterator[Any], judges: list[Callable[[Any], Any]], runs: int) -> list[Measured]:
    """Return in how many runs each judge says yes at any look."""
    found = np.zeros((len(judges), runs), bool)
    for step in steps:
        for seen, judge in zip(found, judges, strict=True):
            seen |= judge(step)
    return [share_of(seen) for seen in found]


def errors(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors of click rates."""
    at = looks(effort.looks)
    for share in SHARES:
        for rate in RATES:
            for name, rates in (("constant", constant(rate)), ("drifting", drifting(rate))):
                if rate == 0.5 and name == "drifting":
                    rates = drifting(0.4)
                rng = stream("proof errors", SEED, int(1000 * share), int(1000 * rate), len(name))
                steps = clicks(rng, effort.runs, at, share, rates(at), rates(at))
                ours = lambda s, h=share: has_enough_data(s, h) & is_refuted(s, C)  # noqa: E731
                naive = [lambda s, h=share, z=z: has_enough_data(s, h) & peeked(s, z) for z in (1.96, C)]
                yield (f"{share:.0%}", f"{rates(at)[0]:.2g}", name, *ever(steps, [ours, *naive], effort.runs))


def moving(effort: Effort) -> Iterator[Row]:
    """Yield how often the interval ever misses a true lift that moves, average so far."""
    at = looks(effort.looks)
    for share in SHARES:
        for rate in (0.05, 0.3):
            control = drifting(rate)(at)
            policy = control * np.linspace(1.0, 1.4, len(at))
            steps = np.diff(at, prepend=0)
            truth = iter(np.cumsum(steps * policy) / np.cumsum(steps * control))
            rng = stream("proof moving", SEED, int(1000 * share), int(1000 * rate))
            missed = lambda s, h=share: has_enough_data(s, h) & is_refuted(s, C, ratio=next(truth))  # noqa: B023, E731
            sums = clicks(rng, effort.runs, at, share, control, policy)
            yield f"{share:.0%}", rate, *ever(sums, [missed], effort.runs)


def planned(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors where one look was planned."""
    at = looks(effort.looks)
    for share in SHARES:
        for rate in RATES:
            rng = stream("proof planned", SEED, int(1000 * share), int(1000 * rate))
            plan = at[len(at) * 4 // 5]

            def errs(sums: HoldoutSums, share: float = share, plan: int = plan) -> Any:
                n = sums.counts.sum(axis=0)
                c = boundary(planned=bool(n[0] == plan))
                return has_enough_data(sums, share) & is_refuted(sums, c)

            p = constant(rate)(at)
            yield (
                f"{share:.0%}",
                rate,
                *ever(clicks(rng, effort.runs, at, share, p, p), [errs], effort.runs),
            )


def amounts(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors of revenue."""
    at = looks(effort.looks // 4, last=200_000)
    for share in SHARES:
        for sigma in (1.0, 1.5, 2.0):
            rng = stream("proof revenue", SEED, int(1000 * share), int(10 * sigma))
            ours = lambda s, h=share: (  # noqa: E731
                has_enough_data(s, h, math.inf) & is_refuted(s, C, largest=math.inf)
            )
            steps = revenue(rng, effort.heavy, at, share, 0.03, sigma)
            naive = lambda s, h=share: has_enough_data(s, h, math.inf) & peeked(s, C)  # noqa: E731
            found = ever(steps, [ours, naive], effort.heavy)
            yield f"{share:.0%}", sigma, *found


def users(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors where users stay in their group, and of the shares of traffic."""
    at = looks(effort.looks // 4, last=200_000)
    for share in SHARES:
        for rate in (0.05, 0.3):
            wrong: list[list[bool]] = []
            for run in range(effort.sticky):
                rng = stream("proof users", SEED, int(1000 * share), int(1000 * rate), run)
                seen = np.zeros(4, bool)
                for sums in sticky(rng, at, share, 4000, rate, clustered=True):
                    if not sums.counts.all():
                        continue
                    alone = sums._replace(buckets=None)
                    for i, each in enumerate((sums, alone)):
                        seen[i] |= bool(has_enough_data(each, share) and is_refuted(each, C))
                        counts = independent_counts(each)
                        seen[2 + i] |= share_evidence(counts, share) > ALARM
                wrong.append(list(seen))
            yield f"{share:.0%}", rate, *map(share_of, np.array(wrong).T)


# Chapters ------------------------------------------------------------------------------------

PLANS: dict[str, Plan] = {
    "10, 50, 5 %": [(20_000, 0.1), (60_000, 0.5), (math.inf, 0.05)],
    "50, 5, 20 %": [(10_000, 0.5), (100_000, 0.05), (math.inf, 0.2)],
    "5, 10, 5 %": [(40_000, 0.05), (80_000, 0.1), (math.inf, 0.05)],
}
ENDS = np.array([10_000, 20_000, 40_000, 60_000, 80_000, 100_000])


def counted(each: list[HoldoutSums], plan: Plan) -> tuple[list[HoldoutSums], Any]:
    """Return the sums of chapters with nothing where one is too early; and whether any is not."""
    known = [has_enough_data(sums, share) for sums, (_, share) in zip(each, plan, strict=False)]
    kept = [
        HoldoutSums(*(x if x is None else x * ok for x in sums)) for sums, ok in zip(each, known, strict=True)
    ]
    return kept, np.any(known, axis=0)


def misses(plan: Plan, ratio: float = 1.0) -> list[Callable[[Any], Any]]:
    """Return judges: of chapters weighed by decisions, of their deviances added, and of one sum."""

    def ours(each: list[HoldoutSums]) -> Any:
        kept, known = counted(each, plan)
        return known & is_refuted(kept, C, ratio=ratio)

    def added(each: list[HoldoutSums]) -> Any:
        deviance: Any = 0.0
        for sums, (_, share) in zip(each, plan, strict=False):
            n, r = sums.counts, sums.totals
            q = np.array([n[0], ratio * n[1]]) / (n[0] + ratio * n[1])
            mean0 = r.sum(axis=0) / (n[0] + ratio * n[1])
            own = 2 * (r * np.log(np.where(r > 0, r, 1.0) / (r.sum(axis=0) * q))).sum(axis=0)
            spread = (1 - mean0) * q[0] + (1 - ratio * mean0) * q[1]
            deviance = deviance + np.where(has_enough_data(sums, share), own / spread, 0.0)
        return deviance > C * C

    def pooled(each: list[HoldoutSums]) -> Any:
        whole = each[0]
        for sums in each[1:]:
            whole = whole.merge(sums)
        return has_enough_data(whole, plan[0][1]) & is_refuted(whole, C, ratio=ratio)

    return [ours, added, pooled]


def with_arms(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors where arms come and go: of sums that go on, and that begin anew."""
    last = 200_000
    at = with_edges(looks(effort.looks, last), np.arange(DAY, last + 1, DAY))
    for share in SHARES:
        for rate in (0.05, 0.3):
            rng = stream("proof arms", SEED, int(1000 * share), int(1000 * rate))
            p = stepping(rng, rate)(at)
            before = [np.zeros((3, 2, effort.runs))]

            def anew(sums: HoldoutSums, share: float = share, before: Any = before) -> Any:
                own = HoldoutSums(*(np.array(sums[:3]) - before[0]))
                if sums.counts[:, 0].sum() % DAY == 0:
                    before[0] = np.array(sums[:3])
                return has_enough_data(own, share) & is_refuted(own, C)

            ours = lambda s, h=share: has_enough_data(s, h) & is_refuted(s, C)  # noqa: E731
            steps = clicks(rng, effort.runs, at, share, p, p)
            yield f"{share:.0%}", rate, *ever(steps, [ours, anew], effort.runs)


def with_shares(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors where the share changes twice."""
    at = with_edges(looks(effort.looks, 300_000), ENDS)
    for name, plan in PLANS.items():
        for rate in (0.05, 0.3):
            for drift, rates in (("constant", constant(rate)), ("drifting", drifting(rate))):
                rng = stream(f"proof chapters {name} {drift}", SEED, int(1000 * rate))
                steps = chapters(rng, effort.runs, at, plan, rates(at), rates(at))
                yield name, rate, drift, *ever(steps, misses(plan), effort.runs)


def covered(effort: Effort) -> Iterator[Row]:
    """Yield how often a true lift, average so far, is in the interval at every look."""
    at = with_edges(looks(effort.looks, 300_000), ENDS)
    for name, plan in PLANS.items():
        for text, lifts in (("20 %", (0.2, 0.2, 0.2)), ("0, 30, -10 %", (0.0, 0.3, -0.1))):
            control = drifting(0.1)(at)
            own = np.array(lifts)[np.searchsorted([until for until, _ in plan], at)]
            policy, rng = control * (1 + own), stream(f"proof coverage {name} {text}", SEED)
            steps = np.diff(at, prepend=0)
            truths = iter(np.cumsum(steps * policy) / np.cumsum(steps * control))
            rows = zip(chapters(rng, effort.runs, at, plan, control, policy), truths, strict=True)
            judges = [lambda step, i=i, plan=plan: misses(plan, step[1])[i](step[0]) for i in range(3)]
            found = ever(rows, judges, effort.runs)
            yield name, text, *(Measured(1 - one.value, one.error) for one in found)


def sticky_shares(effort: Effort) -> Iterator[Row]:
    """Yield any-look errors where users stay in their group and the share changes twice."""
    at = with_edges(looks(effort.looks // 8, 100_000), np.array([20_000, 60_000]))
    for shares in ((0.1, 0.2, 0.1), (0.5, 0.1, 0.05)):
        plan = list(zip((20_000, 60_000, math.inf), shares, strict=True))
        wrong = []
        for run in range(effort.runs):
            rng = stream("proof sticky", SEED, int(1000 * shares[1]), run)
            seen = np.zeros(2, bool)
            for each in sticky_chapters(rng, at, plan, 1000, 0.1, clustered=True):
                pairs = zip(each, plan, strict=False)
                some = [sums for sums, (_, share) in pairs if has_enough_data(sums, share)]
                if some:
                    # Chapters whose units are taken for others' have buckets of other users.
                    apart = [
                        sums._replace(buckets=np.roll(sums.buckets, i, axis=1)) for i, sums in enumerate(some)
                    ]
                    seen |= [bool(is_refuted(some, C)), bool(is_refuted(apart, C))]
            wrong.append(seen)
        yield ", ".join(f"{share:.0%}" for share in shares), *map(share_of, np.array(wrong).T)


def kept_power(effort: Effort) -> Iterator[Row]:
    """Yield until when a lift shows, and how wide the interval is, where something changes."""
    rate, lift = 0.05, 0.2
    for share in SHARES:
        need = decisions_needed(rate, lift, share)
        middle = int(need / 2)
        at = with_edges(looks(effort.looks, int(4 * need)), np.array([middle]))
        p = np.full(len(at), rate)
        other = 0.05 if share > 0.1 else 2 * share
        for text, plan, begins in (
            ("nothing", [(math.inf, share)], 0),
            ("arms: the sums go on", [(math.inf, share)], 0),
            ("arms: the sums begin anew", [(middle, share), (math.inf, share)], 1),
            ("a metric: chapters", [(middle, share), (math.inf, share)], 0),
            (f"the share, to {other:.0%}: chapters", [(middle, share), (math.inf, other)], 0),
        ):
            rng = stream(f"proof kept {text}", SEED, int(1000 * share))
            rates = p * np.where(at > middle, 1.2, 1.0) if text.startswith("arms") else p
            when, wide = np.full(effort.runs, np.inf), 0.0
            steps = chapters(rng, effort.runs, at, plan, rates, rates * (1 + lift))
            for n, each in zip(at, steps, strict=True):
                live = min(begins, len(each) - 1)
                kept, known = counted(each[live:], plan[live:])
                when = np.where(known & is_refuted(kept, C) & np.isinf(when), n, when)
                if n >= need and not wide:
                    low, high = ratio_ends(kept, C)
                    wide = float(np.median(np.log(high) - np.log(low)))
            yield (f"{share:.0%}", text, _over(when, 0.5, need), _over(when, 0.8, need), f"{wide:.3f}")


def _over(when: Any, power: float, need: float) -> str:
    """Return after how many decisions a lift shows in a share of the runs, over those needed."""
    with np.errstate(invalid="ignore"):
        found, error = np.quantile(when, power) / need, _error(when, power) / need
    return f"{found:.2f} ± {error:.2f}" if np.isfinite(error) else "about 4, or more"


def shares(effort: Effort) -> Iterator[Row]:
    """Yield false alarms of the traffic's shares, and after how much loss shows."""
    at = looks(effort.looks)
    for share in SHARES:
        rng = stream("proof shares", SEED, int(1000 * share))
        found = np.zeros((2, effort.runs), bool)
        counts = np.zeros((2, effort.runs))
        for n in np.diff(at, prepend=0):
            n0 = rng.binomial(n, share, effort.runs)
            counts += [n0, n - n0]
            found[0] |= _evidences(counts, share) > ALARM
            total = counts.sum(axis=0)
            found[1] |= np.abs(counts[0] - share * total) > 2.58 * np.sqrt(total * share * (1 - share))
        lost = np.array([0.95 * share, 1 - share])
        shown = next(n for n in range(1000, 10**7, 1000) if share_evidence(n * lost, share) > ALARM)
        yield f"{share:.0%}", *map(share_of, found), f"{shown:,}"


def _evidences(counts: Any, share: float) -> Any:
    return np.array([share_evidence(pair, share) for pair in counts.T.tolist()])


def winners(effort: Effort) -> Iterator[Row]:
    """Yield false winners among equal arms, and errors of the policy's lift over uniform."""
    at = looks(effort.looks // 2, last=300_000)
    for arms in (2, 5):
        for floor in (0.1, 0.5):
            for rate in (0.05, 0.3):
                for name, rates in (("constant", constant(rate)), ("drifting", drifting(rate))):
                    rng = stream("proof winners", SEED, arms, int(100 * floor), int(100 * rate))
                    c = boundary(comparisons=arms - 1)

                    def declared(step: Any, c: float = c) -> Any:
                        pair, _, _, _ = step
                        low, _ = pair.ends(c)
                        return np.all(np.isnan(pair.d) | (pair.enough & (low > 0)), axis=0)

                    def lifted(step: Any) -> Any:
                        low, high = step[1].ends(C)
                        return step[1].enough & ((low > 0) | (high < 0))

                    def by_counts(step: Any) -> Any:
                        _, _, shows, hits = step
                        mean = (hits + 1) / (shows + 2)
                        error = mean * (1 - mean) / (shows + 3)
                        order = np.argsort(mean, axis=0)[-2:]
                        one, two = (np.take_along_axis(mean, o[None], 0)[0] for o in order)
                        e1, e2 = (np.take_along_axis(error, o[None], 0)[0] for o in order)
                        return two - one > 1.645 * np.sqrt(e1 + e2)

                    runs = effort.runs // 2
                    steps = equal_arms(rng, runs, at, arms, rates(at), floor)
                    found = ever(steps, [declared, by_counts, lifted], runs)
                    yield arms, floor, rate, name, *found


# Widths and planning -------------------------------------------------------------------------


def widths(effort: Effort) -> Iterator[Row]:
    """Yield the width of the interval over that of one look, by expected control clicks."""
    for share in SHARES:
        for rate in RATES:
            ratios = []
            for expected in (25, 100, 1000):
                n = int(expected / (share * rate))
                rng = stream("proof widths", SEED, int(1000 * share), int(1000 * rate), expected)
                p = np.full(1, rate)
                (sums,) = clicks(rng, effort.runs, np.array([n]), share, p, p)
                sums = HoldoutSums(*(x[:, has_enough_data(sums, share)] for x in sums[:3]))
                if not sums.counts.size:
                    ratios.append("too early")
                    continue
                once = 2 * 1.96 * math.sqrt((1 / share + 1 / (1 - share)) / n)
                parts = []
                for c in (C, boundary(planned=True)):
                    low, high = ratio_ends(sums, c)
                    apart = difference_from_ratio(sums, high) - difference_from_ratio(sums, low)
                    parts.append(apart.mean() / (once * math.sqrt(rate * (1 - rate))))
                    wide = np.median(np.log(high) - np.log(low))
                    parts.append(wide / (once * math.sqrt((1 - rate) / rate)))
                ratios.append("{0:.2f}, {2:.2f} ({1:.2f}, {3:.2f})".format(*parts))
            yield f"{share:.0%}", rate, *ratios


def plans(effort: Effort) -> Iterator[Row]:
    """Yield after how many decisions lifts show, over what the planner says."""
    for rate in (0.01, 0.05, 0.2):
        for share in SHARES:
            for lift in (0.05, 0.1, 0.2):
                rng = stream("proof plans", SEED, int(1000 * share), int(1000 * rate), int(100 * lift))
                need = decisions_needed(rate, lift, share)
                at = np.unique(np.geomspace(need / 100, need * 6, effort.looks).astype(np.int64))
                p = np.full(len(at), rate)
                when = np.full(effort.runs // 2, np.inf)
                steps = clicks(rng, len(when), at, share, p, p * (1 + lift))
                for n, sums in zip(at, steps, strict=True):
                    shown = has_enough_data(sums, share) & is_refuted(sums, C)
                    when = np.where(shown & np.isinf(when), n, when)
                    if np.mean(np.isfinite(when)) > 0.95:
                        break
                half = decisions_needed(rate, lift, share, power=0.5)
                times = [
                    f"{np.quantile(when, power) / asked:.2f} ± {_error(when, power) / asked:.2f}"
                    for power, asked in ((0.8, need), (0.5, half))
                ]
                yield rate, f"{share:.0%}", f"{lift:.0%}", f"{need:,.0f}", *times


def _error(times: Any, power: float) -> float:
    """Return the standard error of a quantile, from the order statistics around it."""
    step = math.sqrt(power * (1 - power) / len(times))
    low, high = np.quantile(times, [power - step, power + step])
    return float(high - low) / 2


PARTS: tuple[tuple[str, tuple[str, ...], Callable[[Effort], Iterator[Row]]], ...] = (
    ("Any-look error, nothing to find", ("holdout", "click rate", "rates", "tacit", "z = 1.96",
     "difference of means, c = 3.25"), errors),
    ("Any-look error where the lift grows from 0 to 40 %", ("holdout", "click rate", "tacit"),
     moving),
    ("Any-look error with one planned look", ("holdout", "click rate", "tacit"), planned),
    ("Any-look error of revenue: 3 % buy, for lognormal amounts", ("holdout", "sigma", "tacit",
     "difference of means, c = 3.25"), amounts),
    ("Any-look error where 4,000 users stay in their group", ("holdout", "click rate", "tacit",
     "decisions as units", "false alarm of shares", "the same, decisions as units"), users),
    ("Any-look error where an arm comes or goes every 5,000 decisions", ("holdout", "click rate",
     "tacit: the sums go on", "they begin anew each time"), with_arms),
    ("Any-look error where the share changes twice", ("holdout", "click rate", "rates", "tacit",
     "D of chapters added", "one sum"), with_shares),
    ("Coverage of a true lift where the share changes twice", ("holdout", "lift", "tacit",
     "D of chapters added", "one sum"), covered),
    ("Any-look error where 1,000 users stay in their group and the share changes twice",
     ("holdout", "tacit", "chapters taken for independent"), sticky_shares),
    ("Decisions until a lift of 20 % shows where something changes halfway, over the planner's",
     ("holdout", "what changes", "1 in 2", "4 in 5", "width of ln ρ at the planner's"), kept_power),
    ("False alarms of the traffic's shares", ("holdout", "tacit", "z = 2.58",
     "5 % of the control lost shows after"), shares),
    ("False winners among equal arms", ("arms", "floor", "click rate", "rates", "tacit",
     "P(best) ≥ 95 % from counts", "error of the lift over uniform"), winners),
    ("Width over that of an interval for one look", ("holdout", "click rate",
     "25 control clicks", "100", "1,000"), widths),
    ("Decisions until a lift shows, over the planner's", ("click rate", "holdout", "lift",
     "planner, 4 in 5", "4 in 5", "1 in 2"), plans),
)  # fmt: skip

NOTES = {
    "Any-look error where the share changes twice": (
        "After 20,000 and 60,000 decisions; 10,000 and 100,000; 40,000 and 80,000. Added deviances "
        "of a single ratio ask whether all chapters have the same lift, too; one sum takes days "
        "when there were more of the control for the policy's fault."
    ),
    "Coverage of a true lift where the share changes twice": (
        "Of the lift that is average over all decisions so far, at every look; drifting rates, the "
        "plans as above."
    ),
    "Width over that of an interval for one look": (
        "The mean width of the difference at any look, and at a planned look; in brackets the "
        "median width of ln ρ."
    ),
}


def main() -> None:
    """Measure, print, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs; print only")
    parser.add_argument("--only", help="tables whose title holds this; print only")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    # Before the first click there is nothing to divide by, and nothing is said.
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            table(title, heads, rows(effort), NOTES.get(title, ""))
            for title, heads, rows in PARTS
            if options.only is None or options.only in title
        ]
    if options.quick or options.only:
        return
    text = f"""# Proof that learning helps, measured

Written by `make bench-proof`; [FORMULAS.md](FORMULAS.md) says what is computed. All figures
are shares of simulated experiments with their standard errors: {effort.runs:,} runs each
({effort.heavy:,} for revenue, {effort.sticky:,} for users), up to {effort.looks} looks from 200
decisions on, as soon as there is traffic enough. Drifting rates rise and fall by 40 % every day of
5,000 decisions, and fall to a half.

"""
    (HERE / "PROOF.md").write_text(text + "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
