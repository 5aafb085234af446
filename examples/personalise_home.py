"""A home page for who is asking: the service learns it, with a tenth of the traffic held out.

python examples/personalise_home.py
"""

import time

import numpy as np

from tacit.client import Client, Feedback, Impression
from tacit.service.app.server import running
from tacit.service.config.file import load_config

context = {"device": ["ios", "android", "web"], "age": "number"}
home = {"arms": ["film", "song", "game"], "context": context, "holdout": {}, "attribution_window": 1.0}
values = {"server.port": 0, "store.path": "home.db", "placements.home": home}
rng, taste = np.random.default_rng(1), lambda age: "game" if age < 30 else "film" if age < 50 else "song"
with running(load_config(overrides=values)) as url:
    client = Client(url)
    for _ in range(40):
        ages, devices = rng.uniform(15, 75, 50), rng.choice(["ios", "web"], 50)
        people = [{"device": device, "age": age} for device, age in zip(devices, ages, strict=True)]
        shown = client.decide_many("home", [Impression("all", context=person) for person in people])
        likes = [0.6 if each.arm == taste(age) else 0.2 for each, age in zip(shown, ages, strict=True)]
        clicks = (rng.random(50) < likes).astype(float)
        told = [Feedback(each.decision_id, click) for each, click in zip(shown, clicks, strict=True)]
        client.feedback_many("home", told)
    time.sleep(1.0)  # what came back in the last second is learned by then
    for age in (20, 40, 60):
        print(age, client.decide("home", "all", context={"device": "ios", "age": age}).arm)
    print(client.lift("home").verdict)
