"""A home page for who is asking: the service learns it, with a tenth of the traffic held out.

python examples/personalise_home.py
"""

import time

import numpy as np

from tacit.client import Client, Feedback, Impression
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

context = {"device": ["ios", "android", "web"], "age": "number"}
home = {"arms": ["film", "song", "game"], "context": context, "holdout": {}, "attribution_window": 1.0}
values = {"server.port": 0, "store.path": "home.db", "placements.home": home}
rng, taste = np.random.default_rng(1), lambda age: "game" if age < 30 else "film" if age < 50 else "song"
with run_in_thread(load_config(overrides=values)) as url, Client(url) as client:
    for _ in range(40):
        people = [{"device": str(rng.choice(["ios", "web"])), "age": rng.uniform(15, 75)} for _ in range(50)]
        shown = client.decide_many("home", [Impression("all", context=person) for person in people])
        likes = [0.6 if one.arm == taste(of["age"]) else 0.2 for one, of in zip(shown, people, strict=True)]
        clicks = zip(shown, (rng.random(50) < likes).astype(float), strict=True)
        client.feedback_many("home", [Feedback(one.decision_id, click) for one, click in clicks])
    time.sleep(1.0)  # what came back in the last second is learned by then
    print(client.lift("home").verdict)
    whom = client.for_whom("home")  # what the page /placements/home shows
    print(whom.verdict)
    for segment in whom.fields[0].segments:
        print(f"{whom.fields[0].field} {segment.value}: {segment.arms[0].arm}")
