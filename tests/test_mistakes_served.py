"""Typical mistakes in a configuration and over HTTP: the answer names the field, the value and the remedy."""

import json
import urllib.error
import urllib.request

import pytest

from tacit.errors import ConfigError
from tacit.service.app.server import running
from tacit.service.config.file import load_config

HOME = '[placements.home]\narms = ["film", "song"]\n'
CONFIGURED = {
    # what the file says, and what the error names: field, value and remedy
    HOME + "metrics = { revenue = 'sum' }": ("home.metrics.revenue", "'sum'", "give a table"),
    HOME + "holdout = { control = 'none' }": (
        "home.holdout.control",
        "'none'",
        "give one of uniform, baseline",
    ),
    HOME + "holdout = { share = 10 }": ("home.holdout.share", "10", "give a number of at most 0.5"),
    HOME + "holdout = 0.1": ("home.holdout", "0.1", "give a table of names and values, or nothing"),
    HOME + "attribution_window = '30s'": ("home.attribution_window", "'30s'", "give a number"),
    HOME + "attribution_window = -1": ("home.attribution_window", "-1", "give a number of at least 0.001"),
    HOME + "mode = 'learn'": ("home.mode", "'learn'", "give one of online, apprentice, frozen, shadow"),
    HOME + "aggregation = 'mean'": ("home.aggregation", "'mean'", "give one of first, last, sum, max"),
    HOME + "positions = 2": ("home.positions", "unknown field", "there is kind, policy"),
    "[placements.home]\narms = 'film, song'": ("home.arms", "'film, song'", "give a whole number or a list"),
    "[placements]\nhome = 3": ("placements.home", "3", "give a table of names and values"),
    "[keys.x]\nscopes = ['decides']": ("keys.x.scopes[0]", "'decides'", "give one of decide,"),
}
C = {"device": "ios", "age": 31}
ASKED = {
    # the path, what is sent, and what the answer names: field, value and remedy
    "a field misspelt": ("home/decide", {"key": "a", "contxt": C}, ("contxt", "`contxt`", "mean context?")),
    "a number for a key": ("home/decide", {"key": 5, "context": C}, ("key", "5", "give text")),
    "a text for arms": (
        "home/decide",
        {"key": "a", "arms": "film"},
        ("arms", "'film'", "give a list, or nothing"),
    ),
    "a reward of 5": ("home/feedback", {"decision_id": "d", "reward": 5}, ("reward", "5", "at most 1.0")),
    "a reward as text": (
        "home/feedback",
        {"decision_id": "d", "reward": "1"},
        ("reward", "'1'", "give a number"),
    ),
    "a metric as text": (
        "home/feedback",
        {"decision_id": "d", "reward": 1, "metrics": {"visits": 1, "revenue": "3"}},
        ("metrics.revenue", "'3'", "give a number"),
    ),
    "one of a batch": (
        "home/decide/batch",
        {"decisions": [{"key": "a"}, {"key": "b", "user": 7}]},
        ("decisions[1].user", "7", "give text, or nothing"),
    ),
    "a mode that is none": (
        "home/mode",
        {"mode": "live"},
        ("mode", "'live'", "give one of online, apprentice"),
    ),
    "a query misspelt": ("home/lift?confidance=0.9", None, ("confidance", "", "did you mean confidence?")),
    "a confidence as text": ("home/lift?confidence=high", None, ("confidence", "'high'", "give a number")),
    "a list for a request": ("home/decide", [1], ("body", "[1]", "give a table of names and values")),
}


@pytest.mark.parametrize("text", CONFIGURED)
def test_a_wrong_configuration_is_told_by_field_value_and_remedy(text, tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    for part in CONFIGURED[text]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[keys]\nweb = 'SECRET'",
        "[keys.web]\nsha256 = 'SECRET'\nscopes = ['decide']",
        "keys = 'SECRET'\n[placements.home]\narms = 2",
    ],
)
def test_a_key_in_the_place_of_its_hash_is_shown_to_nobody(text, tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(text.replace("SECRET", key := "tacit_not_to_be_seen"))
    with pytest.raises(ConfigError, match="keys") as caught:
        load_config(path)
    seen: BaseException | None = caught.value
    assert "hidden" in str(seen) or "pattern" in str(seen)
    while seen is not None:
        assert key not in str(seen)
        seen = seen.__cause__


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    context = {"device": ["ios", "web"], "age": "number"}
    home = {
        "arms": ["film", "song"],
        "context": context,
        "holdout": {},
        "metrics": {"revenue": {}, "visits": {}},
    }
    store = str(tmp_path_factory.mktemp("mistakes") / "clicks.db")
    with running(
        load_config(overrides={"server.port": 0, "store.path": store, "placements": {"home": home}})
    ) as url:
        yield url


@pytest.mark.parametrize("mistake", ASKED)
def test_a_wrong_request_is_answered_by_field_value_and_remedy(mistake, address):
    path, sent, (field, *told) = ASKED[mistake]
    body = None if sent is None else json.dumps(sent).encode()
    request = urllib.request.Request(
        f"{address}/v1/placements/{path}", body, {"content-type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    answer = json.load(caught.value)
    assert (answer["status"], answer["field"]) == (422, field)
    for part in told:
        assert part in answer["detail"]
