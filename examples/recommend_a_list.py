"""Ten recommendations out of 200 retrieved items, for a user: the service learns what is seen and liked.

python examples/recommend_a_list.py
"""

import numpy as np

from tacit.client import Client
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

rng = np.random.default_rng(1)
ids, catalogue = [f"item-{i}" for i in range(1_000)], rng.standard_normal((1_000, 48))  # their embeddings
taste, clicks = rng.standard_normal((2, 48)) / 48**0.5, []  # what users like; nobody knows it
home = {"kind": "slates", "relevance_dim": 48, "positions": 10, "context": {"age": "number"}, "holdout": {}}
home |= {"aggregation": "first", "attribution_window": 1.0}  # the first report of clicks teaches
values = {"server.port": 0, "store.path": "list.db", "placements.home": home}
with run_in_thread(load_config(overrides=values)) as url, Client(url) as client:
    client.put_items("home", ids, catalogue)
    for age in rng.uniform(15, 75, 1_500):
        found = rng.choice(ids, 200, replace=False).tolist()  # by your search: the best first, if it knows
        shown = client.slate("home", "all", arms=found, context={"age": age})
        likes = catalogue[[ids.index(item) for item in shown.slate]] @ ([1.0, (age - 45) / 17] @ taste) > 2.0
        clicked = likes & (rng.random(10) < 1 / np.arange(1, 11))  # fewer look at lower positions
        client.clicks("home", shown.decision_id, np.flatnonzero(clicked).tolist())
        clicks.append(clicked.sum())
    while client.lift("home").pending:  # until the last windows are closed
        pass
    print(f"clicks on a list: {np.mean(clicks[:100]):.2f} first, {np.mean(clicks[-500:]):.2f} in the end")
    for age in (20, 70):
        print(f"for somebody of {age}:", client.slate("home", "all", context={"age": age}).slate)
    print(client.lift("home").verdict)  # as the page /placements/home says it
