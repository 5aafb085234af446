"""Write what was measured into docs/benchmarks.md and TABLES.md, and the figure.

python benchmarks/page.py    from peers.json, without measuring

The text is written by hand; what stands between ``<!-- measured: NAME -->`` and
``<!-- end -->`` is replaced.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any

import items_tables
from matplotlib.figure import Figure

from tacit.plots import COLOURS

HERE = Path(__file__).parent
RESULTS = HERE / "peers.json"
CONTEXT = HERE / "context.json"
PAGES = (HERE.parent / "docs" / "benchmarks.md", HERE / "TABLES.md")
FIGURE = HERE.parent / "docs" / "images" / "peers-regret.png"
BLOCK = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLES = {
    "shifting": "shifting intent",
    "drift": "chances that wander",
    "stealth": "a better arm rises unseen",
    "late": "only clicks, late",
    "graded": "graded rewards",
    "names": "names of children (real)",
    "interest": "search interest (real)",
    "dueling": "duels of rankers",
    "examination": "examination",
    "contextual": "examination, θ × 4",
}

Results = dict[str, Any]


def write(results: Results) -> None:
    """Renew the pages and the figure."""
    for page in PAGES:
        page.write_text(filled(page.read_text(), results))
    draw(results)


def filled(text: str, results: Results) -> str:
    """Return a page's text with every block renewed."""

    def block(match: re.Match[str]) -> str:
        name, _, part = match[2].partition(":")
        return f"{match[1]}{BLOCKS[name](results, part)}\n{match[3]}"

    return BLOCK.sub(block, text)


def table(head: str, rows: list[tuple[str, ...]], words: int = 2) -> str:
    """Return a table in Markdown; all columns but the first few are numbers."""
    columns = head.split(" | ")
    rule = "|".join("---" if place < words else "--:" for place in range(len(columns)))
    lines = [f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Return a number to three digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def uncertain(value: float | None, error: float | None) -> str:
    """Return a number and its standard error to two digits of the latter."""
    if value is None:
        return "–"
    if error is None or error == 0.0:
        return number(value)
    digits = max(0, 1 - int(f"{error:e}".partition("e")[2]))
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def machine(results: Results, part: str) -> str:
    """List where a part's numbers come from, how much is behind them, and what did not run."""
    effort = results[part]["effort"]
    left_out = ("C compiler", "OS") if part != "timed" else ("OS",)
    facts = results[part]["machine"].items()
    said = [f"{name} {value}" for name, value in facts if name not in left_out]
    if part == "timed":
        said.append(f"{effort['repetitions']} repetitions")
    else:
        said.append(f"{effort['tuning']} streams for tuning, {effort['testing']} for testing")
    said += [f"not measured: {name}: {note}" for name, note in results[part]["notes"].items()]
    return "Measured with: " + "; ".join(said) + "."


def packages(results: Results, _: str) -> str:
    """List the packages."""
    return ", ".join(f"`{pin}`" for pin in results["packages"].values()) + "."


ALGORITHMS = {"replay": "replay of a log", "weighing": "estimate from a log"}
"""What is said of an algorithm beside its name, by role."""
LOOKED_FOR = {"UCB1", "Thompson", "EXP3", "SlidingWindowUCB", "CUSUMUCB", "DoubleThompsonSampling"}
LOOKED_FOR |= {"GLRKLUCB", "WinnerStays", "LaplaceEC", "LinTS", "IPS", "DR"}
"""Algorithms whose time stands on the page; the others' is in ``peers.json``."""
OURS = ("C", "tacit, compiled", "tacit, called")


def speed(results: Results, _: str) -> str:
    """Return the table of the time of a round of what is ours, too: in C, ours, and by each package."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in results["timed"]["rows"]:
        found.setdefault((row["role"], row["algorithm"]), {})[row["entrant"]] = row
    return table(
        "algorithm | other packages | C | tacit, compiled | tacit, called",
        [
            (
                f"{algorithm}, {ALGORITHMS[role]}" if role in ALGORITHMS else algorithm,
                ", ".join(others(rows, role in results["truth"])) or "–",
                *(number(rows[our]["microseconds"]) if our in rows else "–" for our in OURS),
            )
            for (role, algorithm), rows in found.items()
            if algorithm in LOOKED_FOR and "tacit, called" in rows
        ],
    )


def others(rows: dict[str, dict[str, Any]], estimates: bool) -> list[str]:
    """Return what other packages take, the quickest first; † where regret says that it is something else."""
    ours = rows.get("tacit, compiled")
    rivals = sorted(
        (each for name, each in rows.items() if name not in OURS), key=lambda each: each["microseconds"]
    )
    return [
        f"{each['entrant']} {number(each['microseconds'])}{'†' * (not estimates and differs(each, ours))}"
        for each in rivals
    ]


def differs(row: dict[str, Any], ours: dict[str, Any] | None) -> bool:
    """Whether a regret is further from ours than three standard errors of the difference."""
    if ours is None:
        return False
    error = ((row["standard_error"] or 0.0) ** 2 + (ours["standard_error"] or 0.0) ** 2) ** 0.5
    return bool(abs(row["score"] - ours["score"]) > 3.0 * error)


def estimates(results: Results, _: str) -> str:
    """Return the table of estimates from logs: how far the mean of each is from the truth, and its time."""
    truth = results["truth"]["weighing"]
    return table(
        "estimate | package | logs | mean less the truth | µs a row | to ours",
        [
            (
                row["algorithm"],
                row["entrant"],
                str(row["runs"]),
                uncertain(
                    row["score"] - truth[WHOSE.get(row["algorithm"], "the policy")], row["standard_error"]
                ),
                *(number(row[key]) for key in ("microseconds", "ratio")),
            )
            for row in sorted(results["timed"]["rows"], key=lambda row: str(row["algorithm"]))
            if row["role"] == "weighing"
        ],
    )


WHOSE = {"DR of the last arm": "the last arm"}
"""Whose value is estimated, where not the policy's."""


def memory(results: Results, _: str) -> str:
    """List the most memory that each package's process had in use."""
    most: dict[str, float] = {}
    for row in results["timed"]["rows"]:
        if row["megabytes"] is not None:
            most[row["entrant"]] = max(most.get(row["entrant"], 0.0), row["megabytes"])
    return ", ".join(f"{name} {number(most[name])}" for name in sorted(most, key=most.__getitem__)) + "."


ENTRANTS = {"untuned": "tacit, untuned", "tacit": "tacit, tuned"}
"""What ours are called."""
MARKS = {"untuned": {"color": COLOURS[0]}, "tacit": {"color": COLOURS[0], "markerfacecolor": "white"}}
"""How ours are drawn: the default in the colour that it has everywhere."""


def newest(results: Results) -> list[dict[str, Any]]:
    """Return a row for each package and stream, of the newest seeds.

    Each has its regret over the untuned default's on the same seeds as ``ratio`` and ``ratio_error``.
    """
    rows = results["fresh"]["rows"]
    ours = {row["role"]: row for row in rows if row["entrant"] == "untuned"}
    found = []
    for row in rows:
        base = ours[row["role"]]
        ratio = row["score"] / base["score"]
        error = ratio * sum((each["standard_error"] / each["score"]) ** 2 for each in (row, base)) ** 0.5
        found.append(row | {"ratio": ratio, "ratio_error": 0.0 if row is base else error})
    return found


def quality(results: Results, _: str) -> str:
    """Return the table of what is learned: of each stream and package the regret over the untuned default's.

    Streams and packages beside which the default is least good come first.
    """
    rows = newest(results)
    ours = {row["role"]: row for row in rows if row["entrant"] == "untuned"}
    rivals = [row for row in rows if row["entrant"] != "untuned"]
    by_role = {role: min(row["ratio"] for row in rivals if row["role"] == role) for role in ours}
    by_name = {row["entrant"]: 9.0 for row in rivals}
    for row in rivals:
        by_name[row["entrant"]] = min(by_name[row["entrant"]], row["ratio"])
    roles = sorted(by_role, key=by_role.__getitem__)
    cells = {(row["entrant"], row["role"]): beside(row) for row in rivals}
    default = [uncertain(ours[role]["score"], ours[role]["standard_error"]) for role in roles]
    return table(
        " | ".join(["package", *(TITLES[role] for role in roles)]),
        [
            ("tacit, untuned: clicks missed", *default),
            *(
                (ENTRANTS.get(name, name), *(cells.get((name, role), "–") for role in roles))
                for name in sorted(by_name, key=by_name.__getitem__)
            ),
        ],
        words=1,
    )


def beside(row: dict[str, Any]) -> str:
    """Return a regret over the default's; ° marks what is not told apart from 1."""
    less = row["more"]["untuned"]
    alike = abs(less["score"]) < 2.0 * (less["standard_error"] or 0.0)
    return f"{row['ratio']:.2f} ± {row['ratio_error']:.2f}{'°' * alike}"


def lost(results: Results, _: str) -> str:
    """List where somebody has less regret than the untuned default, the least first."""
    found = [
        (TITLES[row["role"]], row["entrant"], row["policy"], summary_of(row), less)
        for row in results["fresh"]["rows"]
        if (less := row["more"].get("untuned")) and less["score"] < 0.0
    ]
    found += lost_by_context(json.loads(CONTEXT.read_text())["rows"])
    best = {where: min(each[4]["score"] for each in found if each[0] == where) for where, *_ in found}
    found.sort(key=lambda each: (best[each[0]], each[4]["score"]))
    return table(
        "where | who has less regret, tuned | its regret | the default's | less by",
        [
            (
                where,
                f"{ENTRANTS.get(entrant, entrant)}, `{policy}`" if policy else entrant,
                uncertain(regret["score"], regret["standard_error"]),
                number(regret["score"] - less["score"]),
                uncertain(-less["score"], less["standard_error"]),
            )
            for where, entrant, policy, regret, less in found
            if -less["score"] > 2.0 * (less["standard_error"] or 0.0)
        ],
    )


def summary_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's mean regret and its error."""
    return {name: row[name] for name in ("score", "standard_error")}


def lost_by_context(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the same of a user's context, paired on the seeds that both have played."""
    found = []
    for row in rows:
        scores, own = row["scores"], ours_beside(row, rows)
        differences = [theirs - our for theirs, our in zip(scores, own, strict=True)]
        if row["rival"] != "tacit" and fmean(differences) < 0.0:
            where = f"who is asking: {row['stream']}"
            found.append((where, row["rival"], row["policy"], *map(spread, (scores, differences))))
    return found


def against(rows: list[dict[str, Any]], rival: str) -> tuple[float, int]:
    """Return a rival's regret over ours on the same seeds, the geometric mean, and of how many streams."""
    ratios = [
        fmean(row["scores"]) / fmean(ours_beside(row, rows))
        for row in rows
        if row["rival"] == rival and (rival != "tacit" or row["first"] == rows[-1]["first"])
    ]
    return (geometric_mean(ratios) if ratios else math.nan), len(ratios)


def ours_beside(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[float]:
    """Return our regrets on the seeds of a row of a user's context."""
    (ours,) = (
        each["scores"]
        for each in rows
        if each["rival"] == "tacit" and (each["stream"], each["first"]) == (row["stream"], row["first"])
    )
    return list(ours[: len(row["scores"])])


def older(rows: list[dict[str, Any]], rival: str) -> str:
    """Return a mark for a rival that has not played all its streams on the newest seeds."""
    return (
        ""
        if rival == "tacit"
        else "′" * any(row["first"] != rows[-1]["first"] for row in rows if row["rival"] == rival)
    )


def context(_: Results, __: str) -> str:
    """Return the table of a user's context: of each package the best on most streams."""
    found = json.loads(CONTEXT.read_text())
    rows, times = found["rows"], {row["rival"]: row for row in found["times"]}
    best: dict[str, tuple[int, float, str]] = {}
    for rival in {row["rival"] for row in rows}:
        ratio, streams = against(rows, rival)
        best[rival.split()[0]] = min(best.get(rival.split()[0], (0, 0.0, "")), (-streams, ratio, rival))
    return table(
        "played by | regret over that of `tacit.auto`, mean (streams) | µs a round | to ours | process, MB",
        [
            (
                "`tacit.auto`, untuned" if rival == "tacit" else rival,
                f"{ratio:.2f}{older(rows, rival)} ({-streams})",
                *(number(times.get(rival, {}).get(key)) for key in ("microseconds", "ratio", "megabytes")),
            )
            for streams, ratio, rival in sorted(best.values(), key=lambda each: each[1])
        ],
        words=1,
    )


def spread(scores: list[float]) -> dict[str, float]:
    """Return a mean and its standard error."""
    return {"score": fmean(scores), "standard_error": stdev(scores) / len(scores) ** 0.5}


def items(_: Results, part: str) -> str:
    """Return the table of items known by numbers: one at a time (``embeddings``), or ``lists``."""
    theirs = "stream" if part == "embeddings" else "readers or setting"
    policy = "`EmbeddingMixture`" if part == "embeddings" else "`ItemListMix`"
    ends = "any item" if part == "embeddings" else "as offered"
    head = (
        f"{theirs} | {policy} | best tuned | which | over the best tuned | Vowpal Wabbit over ours | {ends}"
    )
    rows = items_tables.rows(part, items_tables.STREAMS)
    ruled = table(head, rows, words=1).split("\n")
    ruled[1] = "|---|--:|--:|---|--:|--:|--:|"
    return "\n".join(ruled)


def all_scales(_: Results, __: str) -> str:
    """List where a rival that knew the scales beforehand has less regret than the untuned default."""
    head = "where | who has less regret, tuned | the default's over it"
    return table(head, items_tables.lost(PAGES[1].read_text()))


def figure(results: Results, _: str) -> str:
    """Return the link to the figure."""
    told = "Regret of each package's best policy over that of tacit's default, which is not tuned"
    return f"![{told}](images/{FIGURE.name})"


BLOCKS = {
    "machine": machine,
    "packages": packages,
    "speed": speed,
    "memory": memory,
    "quality": quality,
    "lost": lost,
    "figure": figure,
    "context": context,
    "estimates": estimates,
    "items": items,
    "all_scales": all_scales,
}


def draw(results: Results) -> None:
    """Draw what the table has, with two standard errors, a panel for each stream."""
    found = newest(results)
    roles = [role for role in TITLES if any(row["role"] == role for row in found)]
    sheet = Figure(figsize=(9.0, 2.9 * -(-len(roles) // 3)), layout="constrained")
    axes = sheet.subplots(-(-len(roles) // 3), 3, squeeze=False).ravel()
    for axis in axes[len(roles) :]:
        axis.set_visible(False)
    for axis, role in zip(axes, roles, strict=False):
        rows = sorted((row for row in found if row["role"] == role), key=lambda row: -row["ratio"])
        for place, row in enumerate(rows):
            axis.errorbar(
                row["ratio"],
                place,
                xerr=2.0 * row["ratio_error"],
                fmt="o",
                markersize=5,
                **MARKS.get(row["entrant"], {"color": COLOURS[7]}),
            )
        names = [ENTRANTS.get(row["entrant"], row["entrant"]) for row in rows]
        axis.set_yticks(range(len(rows)), names, fontsize=8)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.set_xlim(left=0.0)
        axis.set_title(TITLES[role], fontsize=9)
        axis.set_xlabel("regret over the default's", fontsize=8)
        axis.axvline(1.0, color=COLOURS[0], linewidth=0.8, alpha=0.5)
        axis.tick_params(axis="x", labelsize=7)
        axis.grid(axis="x", alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    sheet.savefig(FIGURE, dpi=150)


if __name__ == "__main__":
    write(json.loads(RESULTS.read_text()))
