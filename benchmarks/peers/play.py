"""Play a package on streams; print what came of it as JSON.

    play.py PACKAGE ROLE STREAM.npz... [--only NAME]

The file ``PACKAGE.py`` beside this one has a function per role. It takes a stream's arrays and
returns, by the names of the algorithms, functions of a seed. For arms (``arms``, ``late``, ``graded``), arms
with features (``features``) and users with numbers (``users``) these return a function that chooses an arm,
one that learns its reward and, if it needs more of the decision, the dictionary that holds it; for all else
they play by themselves, and return the rounds and a list of scores. Algorithms whose names begin with one of
the file's ``COUNTING`` take no rewards but 0 and 1.
"""

from __future__ import annotations

import argparse
import json
import runpy
import time
import warnings
from pathlib import Path

import numpy as np


def main():
    """Play every algorithm, or the one that is asked for, on every stream."""
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("role")
    parser.add_argument("streams", nargs="+")
    parser.add_argument("--only")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    module = runpy.run_path(str(Path(__file__).with_name(f"{asked.package}.py")))
    role = module[asked.role]
    played = {}
    for path in asked.streams:
        with np.load(path, allow_pickle=False) as file:
            stream = dict(file)
        for name, make in role(stream).items():
            if asked.only in (None, name):
                stream["rounded"] = name.startswith(module.get("COUNTING", ()))
                played.setdefault(name, []).append(play(make, stream))
    print(json.dumps({"played": played, "megabytes": megabytes()}))


def play(make, stream):
    """Play a stream; return seconds of the processor, rounds and the scores."""
    if isinstance(make(int(stream["seed"])), tuple):
        return KINDS[str(stream["kind"])](make, stream)
    return play_by_itself(make, stream)


def play_arms(make, stream):
    """Play a stream of arms, a player per key; the score is the regret."""
    keys, uniforms = stream["keys"].tolist(), stream["uniforms"].tolist()
    chances, which = stream["chances"], stream["which"]
    table = chances.tolist()
    rows = [table[place] for place in which.tolist()]
    players = [make(int(stream["seed"]) + key) for key in range(max(keys) + 1)]
    pulled = []
    start = time.process_time()
    for key, row, uniform in zip(keys, rows, uniforms):  # noqa: B905 old Pythons, too
        choose, learn = players[key][:2]
        arm = choose()
        learn(arm, 1.0 if uniform < row[arm] else 0.0)
        pulled.append(arm)
    seconds = time.process_time() - start
    regret = chances.max(axis=1)[which] - chances[which, pulled]
    return seconds, len(keys), [float(regret.sum())]


def play_late(make, stream):
    """Play arms whose clicks come late, each learned when it is known; the score is the regret."""
    chances, delays, window = stream["chances"][stream["which"]], stream["delays"], int(stream["window"])
    choose, learn, *last = make(int(stream["seed"]))
    clicks = stream["uniforms"][:, None] < chances
    known = [[] for _ in range(len(chances) + window + 1)]
    pulled = []
    start = time.process_time()
    for t in range(len(chances)):
        for arm, reward, before in known[t]:
            for own in last:
                own.update(before)
            learn(arm, reward)
        arm = choose()
        click, before = bool(clicks[t, arm]), dict(*last)
        known[t + 1 + (int(delays[t]) if click else window)].append((arm, float(click), before))
        pulled.append(arm)
    seconds = time.process_time() - start
    return (
        seconds,
        len(chances),
        [float((chances.max(axis=1) - chances[np.arange(len(pulled)), pulled]).sum())],
    )


def play_graded(make, stream):
    """Play arms with graded rewards, rounded to 0 or 1 at random for who counts; the score is the regret."""
    rewards, uniforms, means = stream["rewards"].tolist(), stream["uniforms"].tolist(), stream["chances"][0]
    choose, learn = make(int(stream["seed"]))[:2]
    pulled = []
    start = time.process_time()
    for row, uniform in zip(rewards, uniforms):  # noqa: B905
        arm = choose()
        learn(arm, float(uniform < row[arm]) if stream["rounded"] else row[arm])
        pulled.append(arm)
    seconds = time.process_time() - start
    return seconds, len(rewards), [float((means.max() - means[pulled]).sum())]


def play_features(make, stream):
    """Play a stream of arms with features; the score is the regret."""
    chances, offers = stream["chances"], stream["offers"].tolist()
    uniforms, known = stream["uniforms"].tolist(), chances.tolist()
    choose, learn = make(int(stream["seed"]))[:2]
    pulled = []
    start = time.process_time()
    for offer, uniform in zip(offers, uniforms):  # noqa: B905
        arm = choose(offer)
        learn(arm, 1.0 if uniform < known[arm] else 0.0)
        pulled.append(arm)
    seconds = time.process_time() - start
    regret = chances[stream["offers"]].max(axis=1) - chances[pulled]
    return seconds, len(offers), [float(regret.sum())]


def play_users(make, stream):
    """Play a stream of users; the score is the regret."""
    chances, uniforms = stream["chances"], stream["uniforms"].tolist()
    known = chances.tolist()
    choose, learn = make(int(stream["seed"]))
    pulled = []
    start = time.process_time()
    for t, uniform in enumerate(uniforms):
        arm = choose(t)
        learn(arm, 1.0 if uniform < known[t][arm] else 0.0)
        pulled.append(arm)
    seconds = time.process_time() - start
    regret = chances.max(axis=1) - chances[np.arange(len(pulled)), pulled]
    return seconds, len(pulled), [float(regret.sum())]


def play_lists(make, stream):
    """Play a stream of lists; the score is how many clicks were expected of what was shown."""
    chances, likes, looks = (stream[name].tolist() for name in ("chances", "likes", "looks"))
    seen, (after_skip, after_click) = stream["seen"].tolist(), stream["on"].tolist()
    chain = after_skip < 1.0 or after_click < 1.0
    choose, learn = make(int(stream["seed"]))
    worth, start = 0.0, time.process_time()
    for t in range(len(chances)):
        places, clicks, looked, come = choose(t), [], True, 1.0
        for k, place in enumerate(places):
            chance = seen[k]
            if chain and k:
                chance = (after_click if clicks[-1] else after_skip) if looked else 0.0
            looked, liked = looks[t][k] < chance, chances[t][place]
            clicks.append(1.0 if looked and likes[t][place] < liked else 0.0)
            worth += (come if chain else seen[k]) * liked
            come *= liked * after_click + (1.0 - liked) * after_skip
        learn(places, clicks)
    return time.process_time() - start, len(chances), [worth]


KINDS = {
    "arms": play_arms,
    "late": play_late,
    "graded": play_graded,
    "features": play_features,
    "users": play_users,
    "lists": play_lists,
}


def play_by_itself(make, stream):
    """Let the algorithm play."""
    play = make(int(stream["seed"]))
    start = time.process_time()
    rounds, scores = play()
    return time.process_time() - start, int(rounds), [float(score) for score in scores]


def megabytes():
    """Return the most memory that this process had in use."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024.0
    return None


if __name__ == "__main__":
    main()
