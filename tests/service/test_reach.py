"""A key for some placements: whatever the service answers, it tells of no other one."""

import json

import httpx
import pytest
from click.testing import CliRunner
from harness import Client, configured, eventually, in_shards

from tacit.cli import cli
from tacit.errors import ConfigError
from tacit.service.app.app import create_application
from tacit.service.app.routes import APIS
from tacit.service.app.server import run_in_thread
from tacit.service.log.search_records import SUBJECTS
from tests.service.test_guard import FIRST, KEY, MADE, bearer, process

PATTERNS = ["own", "shop-[12]*"]
OWN, FOREIGN = "own", "zebra"
ARM, HIDDEN = "an arm of zebra", "a key of zebra"
PLACEMENTS = {
    OWN: {"arms": ["a", "b"]},
    "shop-1": {"arms": 2, "holdout": {"share": 0.1}},
    FOREIGN: {"arms": [ARM, "b"], "holdout": {"share": 0.1}},
    "zebra-duels": {"kind": "duels", "rankers": ["x", "y"]},
}
ALL, EVERY = ["decide", "feedback", "read", "admin"], bearer(KEY["admin"])
SOME = bearer(KEY["read"])
"""All scopes, for all placements, and for some."""
KEYS = {
    "operator": {"sha256": MADE["admin"][1], "scopes": ALL},
    "tenant": {"sha256": MADE["read"][1], "scopes": ALL, "placements": PATTERNS},
}
VALUES = {"placements": PLACEMENTS, "keys": KEYS}
ROUTES = [
    pytest.param(path, route, id=f"{method} {path.template}")
    for api in APIS
    for path in api.paths.values()
    for method, route in path.routes.items()
    if method != "HEAD" and not path.template.startswith(("/v1/subjects/", "/v1/shards/"))
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with run_in_thread(configured(tmp_path_factory.mktemp("reach") / "s.db", **VALUES)) as address:
        client = Client(address)
        for name in (OWN, FOREIGN):
            asked = {"key": HIDDEN if name == FOREIGN else "mine"}
            assert client.post(f"{name}/decide", asked, **EVERY)[0] == 200
        yield client


def addressed(path, route, name):
    """Return the address of a route that names a placement."""
    id = {"id": name, "none": "page.css"}.get(route.placement_source, "x")
    template = path.template.replace("{id}", id)
    return f"{template.replace('{name}', name)}?placement={name}&key={HIDDEN.replace(' ', '+')}"


def asked(client, route, address, key):
    body = None if route.method in ("GET", "DELETE") else {}
    with client.opened(route.method, address, body, key) as response:
        # A stream does not end.
        endless = "event-stream" in response.headers.get("content-type", "")
        content = response.readline() + response.readline() if endless else response.read()
    return response.status, content.decode(errors="replace")


@pytest.mark.parametrize(("path", "route"), ROUTES)
def test_no_route_tells_of_another_placement(client, path, route):
    address = addressed(path, route, FOREIGN)
    status, content = asked(client, route, address, SOME)
    if route.placement_source in ("each", "none"):
        # Of a feed that nobody configured, nothing is told either.
        assert status == (404 if route.accepts_signature else 200)
        assert not any(hidden in content for hidden in (FOREIGN, ARM, HIDDEN)), content
    else:
        assert status == 403
        # Which one, and which ones it may ask for.
        assert FOREIGN in content
        assert all(pattern in content for pattern in PATTERNS)
        assert asked(client, route, address, EVERY)[0] != 403
    if route.placement_source == "each" and route.handler is not None and route.operation != "fedNow":
        assert OWN in content
    # And what it may ask for is answered.
    assert asked(client, route, addressed(path, route, OWN), SOME)[0] != 403


def test_who_is_forgotten_is_forgotten_everywhere_and_needs_a_key_that_reaches_all(client):
    for kind in SUBJECTS:
        address = f"/v1/subjects/{kind}/ann"
        assert client.ask("DELETE", address, None, SOME)[0] == 403
        assert client.ask("DELETE", address, None, EVERY)[0] == 200


def test_what_is_said_of_the_service_as_a_whole_is_for_keys_that_reach_all(client):
    def told(key):
        return client.ask("GET", "/metrics", None, key)[2].decode()

    assert 'tacit_decisions_total{placement="shop-1"}' in told(SOME)
    assert "tacit_log_rows" in told(EVERY)
    assert "tacit_log_rows" not in told(SOME)
    assert "tacit_srm_alarm" in told(SOME)
    page = [client.ask("GET", "/", None, key)[2].decode() for key in (SOME, EVERY)]
    assert ['id="store"' in one for one in page] == [False, True]
    assert [f'data-row="{FOREIGN}"' in one for one in page] == [False, True]


def test_a_placement_that_is_not_there_is_told_only_to_whom_it_would_concern(client):
    for method, path, body in (
        ("POST", "/v1/placements/{}/decide", {"key": "a"}), ("GET", "/placements/{}", None),
        ("POST", "/ofrep/v1/evaluate/flags/{}", {}), ("GET", "/key?placement={}&key=a", None),
    ):  # fmt: skip
        status, _, content = client.ask(method, path.format("shop-17"), body, SOME)
        assert status == 404
        assert FOREIGN not in str(content)
        assert client.ask(method, path.format("nowhere"), body, SOME)[0] == 403


@pytest.mark.parametrize("told", [[], [""], ["a b"], ["shop/*"], ["[ab"], ["home", "ä"], "home", 3])
def test_patterns_that_can_match_nothing_refuse_to_start(tmp_path, told):
    key = {**KEYS["tenant"], "placements": told}
    with pytest.raises(ConfigError, match=r"keys\.shop.*placements"):
        configured(tmp_path / "s.db", keys={"shop": key})


def test_a_key_is_made_for_some_placements():
    runner = CliRunner()
    shown = runner.invoke(cli, ["key", "shop", "--placement", "home", "--placement", "shop-*"])
    assert 'placements = ["home", "shop-*"]' in shown.output
    refused = runner.invoke(cli, ["key", "shop", "--placement", "a b"])
    assert refused.exit_code == 2
    assert "'a b'" in refused.output


async def test_at_a_shard_it_is_the_same(tmp_path):
    """It has the application of one server, whose handlers are given another engine."""
    placements = {name: {**PLACEMENTS[name], "seed": 1} for name in (OWN, FOREIGN)}
    config = configured(tmp_path / "s.db", placements=placements, keys=KEYS)
    async with in_shards(tmp_path, config) as (service, _):
        transport = httpx.ASGITransport(create_application(service))
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        assert (await client.get("/v1/placements", headers=SOME)).status_code == 200
        for path in ("/v1/placements", "/", "/metrics"):
            assert FOREIGN in (await client.get(path, headers=EVERY)).text
            assert FOREIGN not in (await client.get(path, headers=SOME)).text
        for name, status in ((FOREIGN, 403), (OWN, 422)):
            answer = await client.post(f"/v1/placements/{name}/decide", headers=SOME, json={})
            assert answer.status_code == status


FILE = FIRST + "[placements.shop]\narms = 2\n"


def test_keys_are_reloaded(tmp_path):
    """What a key reaches changes, a stream of one that is gone ends, and no key at all is said."""
    path = tmp_path / "tacit.toml"

    def write(keys):
        tables = [
            f"[keys.{name}]\n" + "\n".join(f"{field} = {json.dumps(value)}" for field, value in key.items())
            for name, key in keys.items()
        ]
        return FILE + "\n".join(tables)

    tenant = {**KEYS["tenant"], "placements": ["home"]}
    path.write_text(write({"tenant": tenant, "operator": KEYS["operator"]}))
    with process(path) as (server, client, reread):
        with client.opened("GET", "/live", headers=SOME) as stream:
            assert stream.readline() == b"event: changed\n"
            assert client.post("shop/decide", {"key": "a"}, **SOME)[0] == 403
            reread(write({"tenant": {**tenant, "placements": ["sho?"]}, "operator": KEYS["operator"]}))
            eventually(lambda: client.post("shop/decide", {"key": "a"}, **SOME)[0] == 200)
            assert client.post("home/decide", {"key": "a"}, **SOME)[0] == 403
            # Whoever listens must show his key again.
            stream.read()
        with client.opened("GET", "/live", headers=SOME) as stream:
            assert stream.readline() == b"event: changed\n"
            reread(write({"operator": KEYS["operator"]}))
            stream.read()
        assert client.ask("GET", "/live", None, SOME)[0] == 401
        reread(write({}))
        eventually(lambda: client.post("shop/decide", {"key": "a"})[0] == 200)
        lines = map(json.loads, server.stderr)
        assert next(line for line in lines if "no keys any more" in line["message"])["level"] == "warning"


def test_the_last_key_stays_where_other_machines_are_answered(tmp_path):
    """A file may say another address than the one that is listened on."""
    path = tmp_path / "tacit.toml"
    keys = f'[keys.operator]\nsha256 = "{MADE["admin"][1]}"\nscopes = ["admin"]\n'
    path.write_text(FILE.replace("port = 0", 'port = 0\nhost = "0.0.0.0"') + keys)
    with process(path) as (server, client, reread):
        reread(FILE)
        line = next(line for line in map(json.loads, server.stderr) if line["level"] == "error")
        assert "0.0.0.0 answers to other machines" in line["message"]
        assert client.post("home/decide", {"key": "a"})[0] == 401
        assert client.post("home/decide", {"key": "a"}, **EVERY)[0] == 200
