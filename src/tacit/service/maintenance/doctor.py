"""Checks of an installation, and of a service that runs: what is wrong, and what to do about it."""

from __future__ import annotations

import json
import platform
import re
import socket
import sqlite3
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

SOUND_SQLITE = (3, 51, 3)
DEFAULT_PORT = 8787
EXTRAS = {
    "service": (
        "apsw",
        "httptools",
        "jinja2",
        "msgspec",
        "prometheus_client",
        "starlette",
        "uvicorn",
        "uvloop",
    ),
    "postgres": ("psycopg",),
    "ray": ("ray",),
    "otel": ("opentelemetry",),
    "client": ("httpx", "msgspec"),
    "kafka": ("confluent_kafka",),
    "plots": ("matplotlib",),
    "interleaving": ("scipy",),
}


class Check(NamedTuple):
    """What one look at the installation found.

    Attributes
    ----------
    name : str
    ok : bool or None
        None is a note: neither good nor bad.
    detail : str
        What was found.
    remedy : str
        What to do; empty where nothing must be done.
    """

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def checks(port: int = DEFAULT_PORT) -> list[Check]:
    """Look at the installation.

    Parameters
    ----------
    port : int
        Where the service would listen.

    Returns
    -------
    list of Check

    Examples
    --------
    >>> [check.name for check in checks()][:3]
    ['Python', 'numpy', 'numba']
    """
    return [
        _python(),
        _package("numpy"),
        _package("numba"),
        _cache(),
        _shipped(),
        *map(_extra, EXTRAS),
        _sqlite(),
        _own_sqlite(),
        _port(port),
    ]


def _python() -> Check:
    return Check("Python", True, f"{platform.python_version()} on {platform.platform()}")


def _package(name: str) -> Check:
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, "missing", "install it with: pip install tacit")


def _cache() -> Check:
    from tacit.core.compilation.cache import cache_root

    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        return Check(
            "compiled cache",
            False,
            f"{root}: {error.strerror}; every start compiles anew",
            "set TACIT_CACHE_DIR to a folder that can be written",
        )
    return Check("compiled cache", True, str(root))


def _shipped() -> Check:
    from tacit.core.compilation.cache import SHIPPED

    name, found = "compiled code", SHIPPED / "made_for.json"
    if not found.exists():
        return Check(name, None, "none came with the wheel: what is used is compiled once")
    made_for, here = json.loads(found.read_text())["numba"], version("numba")
    if made_for != here:
        text = f"made for numba {made_for}, not {here}: what is used is compiled once"
        return Check(name, None, text, f"for a quicker start: pip install numba=={made_for}")
    return Check(name, True, f"came with the wheel, for numba {here}")


def _extra(extra: str) -> Check:
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if not missing:
        return Check(f"extra {extra}", True, "installed")
    found = f"without {', '.join(missing)}"
    return Check(f"extra {extra}", None, found, f"if needed: pip install 'tacit[{extra}]'")


def _sqlite() -> Check:
    if find_spec("apsw") is None:
        return Check("SQLite", None, "apsw is missing", "pip install 'tacit[service]'")
    import apsw

    found = apsw.sqlite_lib_version()
    if tuple(map(int, found.split("."))) >= SOUND_SQLITE:
        return Check("SQLite", True, f"{found}, from apsw")
    return Check(
        "SQLite",
        False,
        f"{found}, from apsw; before 3.51.3 a write-ahead log can corrupt its database",
        "pip install --upgrade apsw",
    )


def _own_sqlite() -> Check:
    note = "unused here"
    if sqlite3.sqlite_version_info < SOUND_SQLITE:
        note += "; do not write to the store with it, its write-ahead log can corrupt a database"
    return Check("Python's own SQLite", None, f"{sqlite3.sqlite_version}, {note}")


def _port(port: int) -> Check:
    name = f"port {port}"
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        return Check(name, False, str(error.strerror), "stop what listens there, or serve at another --port")
    return Check(name, True, "free")


# ---- A service that runs

PATIENCE = 10.0
"""Seconds for which its answer is waited for."""
_SAMPLE = re.compile(r"^(tacit_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def served(url: str, key: str | None = None) -> list[Check]:
    """Look at a service that runs, by its metrics.

    Parameters
    ----------
    url : str
        Where it answers.
    key : str, optional
        One that may read, where it needs keys.
    """
    try:
        text = _metrics(url, key)
    except HTTPError as error:
        remedy = (
            "give a key that may read, in TACIT_PLACEMENT_KEY" if error.code in (401, 403) else "see its log"
        )
        return [Check("service", False, f"{url} answered {error.code}", remedy)]
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return [Check("service", False, f"{url}: {reason}", "start it with tacit serve, or give its --url")]
    checks = [Check("service", True, f"answers at {url}")]
    for name, labels, value in _SAMPLE.findall(text):
        of, number = dict(_LABEL.findall(labels)), float(value)
        placement = f"placement {of.get('placement')}"
        if name == "tacit_state_bytes":
            checks.append(Check(placement, True, f"what was learned takes {number:,.0f} bytes"))
        elif name == "tacit_open_windows_bytes":
            checks.append(
                Check(placement, True, f"decisions whose windows are open take {number:,.0f} bytes")
            )
        elif name == "tacit_context_others_total" and number:
            field = of["field"]
            detail = (
                f"{number:,.0f} values of {field} were none of those declared; all of them count as other"
            )
            remedy = f'declare them in context.{field}, or let any be: {field} = "category"'
            checks.append(Check(placement, None, detail, remedy))
    return checks


def _metrics(url: str, key: str | None) -> str:
    """Return the metrics of a service as it gives them."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("give an address that begins with http:// or https://")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asked = Request(f"{url.rstrip('/')}/metrics", headers=headers)  # noqa: S310
    with urlopen(asked, timeout=PATIENCE) as answer:  # noqa: S310
        return str(answer.read().decode())
