"""Clicks alone, in bursts: they are sent at once, late in their windows or after them, or nothing is sent."""

import http.client
import itertools
import json
import random
import threading
import time
from pathlib import Path

from harness import PATIENCE

CLICK_WINDOWS = {"clicks": 1.0, "corrected": 0.5}
"""Seconds in which clicks count, by placement."""
CLICK_PLACEMENTS = (Path(__file__).parent / "data" / "clicks_alone.toml").read_text()
DELAYS = 0.0, 0.0, 0.1, 0.9, 1.0, 1.5
"""After which parts of their windows clicks are sent."""
BURST = 8
THREADS = 2
FORGOTTEN_AFTER = 30.0
"""Seconds after which a decision may be gone from the store, and a click on it be refused."""


class ClickTraffic:
    """Threads that decide and click in bursts, resend, and remember every answer.

    Attributes
    ----------
    decided, told : dict
        Key, arm and propensity of each decision that was answered, and the reward of each click, by placement
        and id.
    wrong : list
        Answers that there should not be.
    """

    def __init__(self, port, seed):
        self.decided, self.told, self.wrong = {}, {}, []
        self._port, self._over, self._closes = port, threading.Event(), 0.0
        self._threads = [
            threading.Thread(target=self._play, args=(random.Random(f"clicks {seed} {i}"), i))
            for i in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def close(self):
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def await_close(self, rng):
        """Wait until the windows of the last burst close, or have just closed."""
        time.sleep(max(0.0, self._closes - time.monotonic() + rng.uniform(0.0, 0.02)))

    def _play(self, rng, number):
        due = []
        for count in itertools.count():
            if self._over.is_set():
                return
            placement = rng.choice(list(CLICK_WINDOWS))
            asked = [
                {"key": f"key {rng.randrange(3)}", "decision_id": f"{number} {count} {i}"}
                for i in range(rng.randint(1, BURST))
            ]
            due += self._decide(rng, placement, asked)
            for name in CLICK_WINDOWS:
                now = time.monotonic()
                ready = [click for click in due if click[0] <= now and click[1] == name]
                due = [click for click in due if click not in ready]
                self._click(rng, name, rng.sample(ready, len(ready)))
            self._over.wait(rng.uniform(0.0, 0.1))

    def _decide(self, rng, placement, asked):
        """Decide in a burst; return when which of it is clicked."""
        begun = None
        for _ in range(1 + (rng.random() < 0.2)):
            status, answer, sent = self._post(f"{placement}/decide/batch", {"decisions": asked})
            if status is None:
                return []
            if status != 200:
                self.wrong.append((placement, asked, answer))
                return []
            for each, decision in zip(asked, answer["decisions"], strict=True):
                shown = each["key"], decision["arm"], decision["propensity"]
                if self.decided.setdefault((placement, each["decision_id"]), shown) != shown:
                    self.wrong.append(("another answer", placement, each, decision))
            # Of the first answer: the second one repeats it.
            begun = begun or (sent + time.monotonic()) / 2
        window = CLICK_WINDOWS[placement]
        self._closes = begun + window
        clicked = [each["decision_id"] for each in asked if rng.random() < 0.4]
        return [(begun + rng.choice(DELAYS) * window, placement, id) for id in clicked]

    def _click(self, rng, placement, clicks):
        feedback = [
            {"decision_id": id, "reward": 1.0, "feedback_id": f"click on {id}"} for _, _, id in clicks
        ]
        for _ in range(1 + (rng.random() < 0.2) if clicks else 0):
            status, answer, _ = self._post(f"{placement}/feedback/batch", {"feedback": feedback})
            old = status == 404 and time.monotonic() - min(clicks)[0] > FORGOTTEN_AFTER
            if status == 200:
                self.told |= {(placement, id): 1.0 for _, _, id in clicks}
            elif status is not None and not old:
                self.wrong.append((placement, feedback, answer))

    def _post(self, path, body):
        """Send until it is answered, which ids make safe; return status, answer and when it was sent.

        All are None where all is over before that.
        """
        content, headers = json.dumps(body), {"content-type": "application/json"}
        while not self._over.is_set():
            sent = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=15)
            try:
                connection.request("POST", f"/v1/placements/{path}", content, headers)
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError):
                pass
            else:
                if response.status != 503:
                    return response.status, answer, sent
            finally:
                connection.close()
            time.sleep(0.02)
        return None, None, None
