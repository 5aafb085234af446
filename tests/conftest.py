"""What all tests share."""

import asyncio
import contextlib
import gc
import importlib.util
import inspect
import os
import random
import shutil
from pathlib import Path

# A second thread of BLAS would wait in a loop, from the start of each process on.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import drawn  # says how many examples are drawn, before any test is read
import pytest
import stores

# What is compiled, and for how long, depends on what ran before.
os.environ.setdefault("TACIT_QUIET", "1")
# Ray's workers yield to all else (nice 15): beside another busy test they would hardly run.
os.environ.setdefault("RAY_worker_niceness", "0")
# It would end workers where other tests need the memory.
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")

# Looked through for examples they would be read twice, and each class in them be two.
collect_ignore = [str(path) for path in Path(__file__).parent.rglob("*.py") if "test_" not in path.name]

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
"""Parts of real data, which the tests carry; its README says where they come from."""
CHROMIUM = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


WAITING = ("test_ray", "test_feed", "test_chaos", "test_crash", "test_cli", "test_site")
"""Files that mostly wait for processes: one of several workers has them, while others compute."""


def pytest_configure(config):
    """Say nothing of data that contradict what is assumed: it would hide failures; tests of it catch it."""
    config.addinivalue_line("filterwarnings", "ignore::tacit.errors.AssumptionWarning")


def is_here(name):
    """True if there is a program, a Python package, or in NODE_PATH a JavaScript package of this name."""
    folders = filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))
    return bool(
        shutil.which(name)
        or importlib.util.find_spec(name)
        or any(Path(folder, name).is_dir() for folder in folders)
    )


def pytest_collection_modifyitems(config, items):
    """Leave to the long form what is marked so, and what needs a program or package that no extra brings
    and is not here; begin with what mostly waits."""
    items.sort(key=lambda item: not item.path.name.startswith(WAITING))
    lacking = {}
    for item in items:
        for mark in item.iter_markers("needs"):
            if not is_here(mark.args[0]):
                lacking[item] = mark.args[0]
    if config.getoption("--hypothesis-profile") == "long":
        for item, name in lacking.items():
            item.add_marker(pytest.mark.skip(reason=f"{name} is not installed"))
        return
    left = [item for item in items if item in lacking or item.get_closest_marker("long")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for garbage only after all tests are read, and not among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Compile nothing for tests that play few rounds, but in the long form."""
    interpreted = item.get_closest_marker("interpreted") and not item.get_closest_marker("compiled")
    with pytest.MonkeyPatch.context() as patch:
        if interpreted and not drawn.is_long():
            patch.setenv("TACIT_COMPILE", "0")
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that is a coroutine in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}))
    return True


@contextlib.contextmanager
def same_draws(node):
    """Draw the random bits of ids, seeds and salts the same in each run: coins fall by them."""
    bits = random.Random(node.nodeid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tacit.service.log.ids.urandom", bits.randbytes)
        patch.setattr("secrets.randbits", bits.getrandbits)
        patch.setattr("secrets.token_hex", lambda size: bits.randbytes(size).hex())
        yield


@pytest.fixture(autouse=True, scope="module")
def same_in_each_module(request):
    """Draw the same for what the tests of a module share, which is made before the first of them."""
    with same_draws(request.node):
        yield


@pytest.fixture(autouse=True)
def same_in_each_test(request):
    with same_draws(request.node):
        yield


@pytest.fixture(params=stores.KINDS)
def kind(request, monkeypatch):
    """Run a test once on each kind of store."""
    monkeypatch.setattr(stores, "chosen", request.param)
    return request.param


@pytest.fixture
def schema(request):
    """The name of a schema of its own in PostgreSQL, dropped with all that began with it."""
    import psycopg

    name = stores.schema_of(request.node.nodeid)
    yield name
    with psycopg.connect(stores.cluster().url, autocommit=True) as connection:
        for (each,) in connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s", (f"{name}%",)
        ).fetchall():
            connection.execute(f'DROP SCHEMA "{each}" CASCADE')


@pytest.fixture
def client(address):
    """A client of the service that the module serves."""
    from harness import Client

    return Client(address)


@pytest.fixture(scope="module")
def browser():
    """A real browser. It holds the thread's event loop, so modules that need none get none."""
    from harness import PATIENCE
    from playwright.sync_api import expect, sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("chromium is missing; install it with: apt-get install chromium")
    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM, timeout=1000 * PATIENCE)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, address):
    """Give a function that opens a page, and fail if the browser complained."""
    from harness import PATIENCE

    complaints, contexts, refused = [], [], []

    def failed(request):
        # Whoever leaves the page leaves its stream, and what it was about to fetch.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(request.url)

    def open_page(path="", **options):
        context = browser.new_context(**options)
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", failed)
        page.goto(address + path)
        return page

    # A browser notes refused requests on its console: their status, where a test wants that.
    open_page.refused = refused
    yield open_page
    for context in contexts:
        context.close()
    assert [one for one in complaints if not any(f"status of {status}" in one for status in refused)] == []
