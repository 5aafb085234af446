"""Count the functions of the package that one decision passes, from its bytes to its answer, and its forms.

python tools/walk.py [--list]

A service of one plain placement runs in a process of its own, warm and with everything off that can
be; a profile hook notes which functions are called while one more decision is made and answered. Its
forms are the records that these functions are given or return, and that hold a decision's key or id.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

CONFIG = """
[store]
path = "{folder}/log.db"

[server]
port = 0

[placements.home]
arms = ["a", "b", "c"]
policy = "ucb1"
"""
SERVICE = """
import sys, threading
from pathlib import Path
import tacit
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
package, noted, notes = str(Path(tacit.__file__).parent), set(), False
forms = set()
tells = {"key", "keys", "lanes", "decision_id"}

def fields_of(kind):
    for named in ("_fields", "__struct_fields__", "__dataclass_fields__"):
        if hasattr(kind, named):
            return set(getattr(kind, named))
    return tells if kind.__name__.startswith("Open") else set()

def look(value):
    if type(value) in (list, tuple) and value:
        value = value[0]
    kind = getattr(value, "kind", object) if type(value).__name__ == "Block" else type(value)
    if kind.__module__.startswith("tacit.") and tells & fields_of(kind):
        forms.add((kind.__module__.replace(".", "/"), kind.__name__))

def hook(frame, event, arg):
    global notes
    if notes and event in ("call", "return") and frame.f_code.co_filename.startswith(package):
        code = frame.f_code
        place = code.co_filename[len(package) + 1:], code.co_qualname, code.co_firstlineno
        # What is done once the answer is out is seen or not, as it happens to come before the order to end.
        # An answer whose beginning is not noted is the one before.
        answered = event == "return" and code.co_qualname == "PendingAnswer.send" and place in noted
        noted.add(place)
        for value in [arg] if event == "return" else list(frame.f_locals.values()):
            look(value)
        if answered:
            notes = False

def obey():
    global notes
    for line in sys.stdin:
        notes = line == "begin\\n"
        found = [f"{file} {line} {name}" for file, name, line in sorted(noted)]
        found += [f"form - {file} {name}" for file, name in sorted(forms)]
        noted.clear(), forms.clear()
        print(*found, "end", sep="\\n", flush=True)

threading.Thread(target=obey, daemon=True).start()
threading.setprofile(hook)
sys.setprofile(hook)
serve(load_config(sys.argv[1]))
"""
WARM, TRIES = 200, 15


def walked() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the file and the name of each function that a decision passes, and of each of its forms."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "tacit.toml")
        config.write_text(CONFIG.format(folder=folder))
        service = subprocess.Popen(
            [sys.executable, "-c", SERVICE, str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert service.stdin is not None
            assert service.stdout is not None
            port = int(service.stdout.readline().split()[3].rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port)
            for _ in range(WARM):
                _decide(connection)
            walks = [_walk(service, connection) for _ in range(TRIES)]
        finally:
            service.kill()
            service.wait()
    # The others met what goes on beside: a sweep, an alarm, a commit in the other thread.
    walk = [line.split() for line in min(walks, key=len)]
    forms = [(f"{words[2]}.py", words[3]) for words in walk if words[0] == "form"]
    functions = [(words[0], words[2]) for words in walk if words[0] != "form"]
    # Newer interpreters call no function for a comprehension.
    return [(file, name) for file, name in functions if not name.endswith(("comp>", "genexpr>"))], forms


def _walk(service: subprocess.Popen[str], connection: http.client.HTTPConnection) -> list[str]:
    assert service.stdin is not None
    assert service.stdout is not None
    passed: list[str] = []
    for order in ("begin", "end"):
        service.stdin.write(f"{order}\n")
        service.stdin.flush()
        passed = list(iter(service.stdout.readline, "end\n"))
        if order == "begin":
            _decide(connection)
    return [line for line in passed if line.strip()]


def _decide(connection: http.client.HTTPConnection) -> None:
    body = json.dumps({"key": "a query"})
    connection.request("POST", "/v1/placements/home/decide", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the functions")
    wants_list = parser.parse_args().list
    functions, forms = walked()
    files = Counter(file for file, _ in functions)
    print(f"a decision passes {len(functions)} functions in {len(files)} files")
    for file, name in functions if wants_list else ():
        print(f"  {file:40} {name}")
    print(f"and takes {len(forms)} forms: {', '.join(name for _, name in forms)}")
    for file, name in forms if wants_list else ():
        print(f"  {file:40} {name}")
