"""Configurations whose values are drawn from what nobody means: each is taken, or refused by name."""

import math

import pytest
from harness import configured
from placement_access import Engine, patch_internal

from tacit.errors import ConfigError, TacitError
from tacit.service.config import schema
from tacit.service.config.file import ConfigFile, load_config
from tacit.service.kind import get_kind
from tacit.service.log.sqlite import SqliteStore

PLACEMENTS = {
    "arms": {"arms": ["a", "b"]},
    "features": {"kind": "features", "relevance_dim": 3},
    "duels": {"kind": "duels", "rankers": ["a", "b"]},
    "slates": {"kind": "slates", "arms": ["a", "b", "c"]},
}
SECTIONS = {
    "server": schema.ServerConfig,
    "store": schema.StoreConfig,
    "traces": schema.TracesConfig,
    "export": schema.ExportConfig,
}
LONG = "x" * 100_000
VALUES = [
    [1], [], [[]], ["a", "a"], [""], [LONG], ["\0"], {}, {"a": 1}, {"a": {}}, {"": ""}, {"a": [1]},
    {"a": {"b": 1}},
    0, -1, 10**12, 10**30, 2**63, 0.5, 1e308, 1e-320, math.nan, math.inf, True,
    "", "x", LONG, "\0", "e\u0301", "/" * 100, "a/b\0c", "ucb1", "thompson(", "auto(arms=3)", "kafka://", "http://",
]  # fmt: skip


def refusals(tables):
    """Return what is said of each table of values that is refused."""
    said = []
    for table in tables:
        try:
            load_config(overrides=table)
        except ConfigError as error:
            said.append(str(error))
        except TacitError as error:
            pytest.fail(f"{table}: {error!r} is no ConfigError")
    return said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PLACEMENTS)
def test_what_stands_in_a_placement_is_taken_or_refused(kind):
    tables = [
        {"placements": {"home": PLACEMENTS[kind] | {field: value}}}
        for field in get_kind(kind).table.__struct_fields__
        for value in VALUES
    ]
    said = refusals(tables)
    assert len(said) > len(tables) / 2
    assert all("placements.home" in each for each in said)


@pytest.mark.filterwarnings("ignore")
def test_what_stands_elsewhere_is_taken_or_refused():
    tables = [{field: value} for field in ConfigFile.__struct_fields__ for value in VALUES]
    tables += [
        {name: {field: value}}
        for name, table in SECTIONS.items()
        for field in table.__struct_fields__
        for value in VALUES
    ]
    tables += [{name: {"n": {"map": value}}} for name in ("feeds", "keys") for value in VALUES]
    assert all(each.startswith("configuration: ") for each in refusals(tables))


def test_what_has_no_room_in_memory_is_refused(tmp_path, monkeypatch):
    def opened(*_, **options):
        raise MemoryError

    patch_internal(monkeypatch, load_placement=opened)
    with pytest.raises(
        ConfigError, match=r"placements\.default: .* of 5 arms has no room in memory; give fewer"
    ):
        Engine(configured(tmp_path / "s.db"), SqliteStore(tmp_path / "s.db"))
