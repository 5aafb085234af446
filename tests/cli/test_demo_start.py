"""The demo waits for its service as long as that says what it does, however slow the machine."""

import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tacit import demo
from tacit.errors import TacitError


class Starting(BaseHTTPRequestHandler):
    """A service that is ready when it is asked for the third time."""

    asked = 0

    def do_GET(self):
        type(self).asked += 1
        self.send_response(200 if self.asked >= 3 else 503)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def process():
    """Something that runs until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def test_a_service_that_still_compiles_is_waited_for_and_one_that_is_silent_is_not(
    process, tmp_path, monkeypatch
):
    """The log is as old as it is said to be: nothing here takes time."""
    monkeypatch.setattr(demo, "PATIENCE", 10.0)
    log = tmp_path / "service.log"
    log.write_text("compiling open …\n")
    os.utime(log, (0, time.time() + 1000))
    with HTTPServer(("127.0.0.1", 0), Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        demo.await_ready(process, server.server_port, log)
        assert Starting.asked == 3
        os.utime(log, (0, time.time() - 11))
        with pytest.raises(TacitError, match=r"said nothing for 10 s; see .*service\.log"):
            demo.await_ready(process, server.server_port, log)
        server.shutdown()
