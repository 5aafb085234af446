"""Vowpal Wabbit on the streams of `embeddings.py` and `item_lists.py`, its best knobs in hindsight.

python benchmarks/items_elsewhere.py [NAME ...] [--seeds N] [--first SEED] [--tuning N] [--keep]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import embedding_streams
import item_list_streams
import numpy as np
from embeddings import TUNING
from embeddings import played as one_item
from embeddings import policy_for as policy_for_items
from item_lists import played as a_list
from item_lists import policy_for as policy_for_lists
from items_kept import keep, over, spread
from venvs import HERE, install, output

PEER = "vowpalwabbit"
SKIPPED = ("only the order tells",)
"""A catalogue of 200,000 items, whose numbers say nothing."""


def standard(rows: Any, known: Any) -> Any:
    """Return rows at the size that known rows have: a gift to those who do not learn it."""
    deviation = known.std(axis=0)
    scaled = (rows - known.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return scaled / np.sqrt(rows.shape[1] or 1)


def arrays(name: str, seed: int) -> dict[str, Any]:
    """Return what a peer is handed of a stream."""
    if name in embedding_streams.STREAMS:
        one = embedding_streams.stream(name, seed)
        given = {"kind": "users", "offers": one.offers, "chances": one.chances, "uniforms": one.coins}
        items, users = one.items, one.users
    else:
        many = item_list_streams.stream(name, seed)
        given = {"kind": "lists", "seen": many.seen, "on": np.array([many.after_skip, many.after_click])}
        given |= {part: getattr(many, part) for part in ("offers", "chances", "likes", "looks")}
        items, users = many.items, many.users
    return given | {"seed": seed, "scaled_items": standard(items, items), "scaled": standard(users, users)}


def scores(name: str, seeds: range, role: str, only: str = "") -> dict[str, Any]:
    """Return the scores of each candidate of a peer, or of one, and the seconds of a round."""
    python = install(PEER)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{seed}.npz" for seed in seeds]
        for seed, path in zip(seeds, paths, strict=True):
            np.savez(path, **arrays(name, seed))
        # -P keeps the scripts' folder, where files are named after packages, off the import path.
        command = [str(python), "-P", "-W", "ignore", str(HERE / "peers" / "play.py"), PEER, role]
        command += [f"--only={only}"] if only else []
        return json.loads(output([*command, *map(str, paths)]).splitlines()[-1])["played"]  # type: ignore[no-any-return]


def ours(name: str, seed: int) -> tuple[float, float]:
    """Return our regret, and what the best would have got."""
    if name in embedding_streams.STREAMS:
        here = embedding_streams.stream(name, seed)
        policy = policy_for_items(here)
        shown = one_item(here, policy.init(1), policy, seed)
        return embedding_streams.regret(here, shown), 0.0
    lists = item_list_streams.stream(name, seed)
    mix = policy_for_lists(lists)
    shown = a_list(lists, mix.init(1), mix, seed)
    best = np.argsort(-lists.chances, axis=1)[:, : mix.positions]
    return item_list_streams.regret(lists, shown), float(item_list_streams.worth(lists, best).sum())


def tuned(name: str, seeds: range, role: str) -> str:
    """Return the candidate that is the best on some seeds; none, if there are none."""
    found = {label: np.mean([run[2][0] for run in runs]) for label, runs in scores(name, seeds, role).items()}
    best = min if role == "items_by" else max
    return best(found, key=lambda label: float(found[label]))


def compare(name: str, seeds: range, tuning: range) -> dict[str, Any]:
    """Print and return the mean regret of ours and of a peer's best, in hindsight or on seeds for tuning."""
    own = np.array([ours(name, seed) for seed in seeds])
    role = "items_by" if name in embedding_streams.STREAMS else "lists_by"
    found, only = {}, tuned(name, tuning, role) if tuning else ""
    for label, runs in scores(name, seeds, role, only).items():
        regrets = np.array([run[2][0] for run in runs])
        regrets = regrets if role == "items_by" else own[:, 1] - regrets
        found[label] = regrets, 1e6 * np.mean([run[0] / run[1] for run in runs])
    label = min(found, key=lambda one: float(found[one][0].mean()))
    theirs, micros = found[label]
    one, other, ratio = spread(own[:, 0]), spread(theirs), over(theirs, own[:, 0])
    shown = [f"{each['score']:8.1f} ± {each['standard_error']:5.1f}" for each in (one, other)]
    beside = f"{ratio['score']:6.2f} ± {ratio['standard_error']:.2f}"
    print(f"{name:40} {shown[0]} {shown[1]} {beside}  {micros:7,.0f} µs   {label}", flush=True)
    tuned_on = {"first": seeds.start, "seeds": len(seeds), "tuning": len(tuning)}
    rows = {"ours": one, "theirs": other, "ratio": ratio, "policy": label, "microseconds": micros}
    return tuned_on | rows


def main() -> None:
    """Compare on what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tuning", type=int, default=0, help="tune on so many other seeds, not in hindsight")
    parser.add_argument("--keep", action="store_true", help="write it into items.json")
    asked = parser.parse_args()
    settings = [name for name in item_list_streams.SETTINGS if name not in SKIPPED]
    print(f"{'regret':40} {'tacit':>16} {'Vowpal Wabbit':>16} {'ratio':>13}  {'a round':>10}   with")
    for name in asked.names or [*embedding_streams.STREAMS, *settings]:
        seeds = range(asked.first, asked.first + asked.seeds)
        found = compare(name, seeds, range(TUNING, TUNING + asked.tuning))
        if asked.keep:
            keep("elsewhere", name, found)


if __name__ == "__main__":
    main()
