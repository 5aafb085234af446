"""The item that plays the recommended policy beside tuned ones."""

import math

import numpy as np
import pytest

import tacit
from studies import defaults as study
from studies import item
from studies.defaults import FOLDER, series_names, stream_of
from studies.study import Setup
from tacit.errors import InvalidValue


def test_ratios_and_their_errors_worked_by_hand():
    # Ratio 4/8; differences from half the other: 0, −1, 1 with a deviation of 1.
    ratio, error = study.study.ratio_of(np.array([4.0, 3.0, 5.0]), np.array([8.0, 8.0, 8.0]))
    assert (ratio, error) == (0.5, pytest.approx(1.0 / math.sqrt(3) / 8.0))


def test_the_geometric_mean_takes_looks_at_one_stream_to_err_together():
    cells = [
        {"ratio": 2.0, "ratio_se": 0.2, "stream": "a"},
        {"ratio": 2.0, "ratio_se": 0.4, "stream": "a"},
        {"ratio": 0.25, "ratio_se": 0.1, "stream": "b"},
    ]
    # Relative errors of 0.1 + 0.2 in one stream and 0.4 in another: 0.5 in three cells.
    assert study.geometric_mean(cells) == (pytest.approx(1.0), pytest.approx(0.5 / 3.0))


def test_rows_of_a_series_share_the_rounds_and_columns_are_ranked_among_their_own():
    assert series_names() == ["electricity", "elnino", "employment", "fertility", "macrodata", "weather"]
    for name in series_names():
        world = stream_of(name, 10_000)
        lengths = np.diff([1, *world.events, 10_001])
        assert set(lengths) <= {10_000 // len(world.clicks), 10_000 // len(world.clicks) + 1}
        clicks = np.array(world.clicks)
        assert (clicks.min() >= 0.02, clicks.max() <= 0.5) == (True, True)
        np.testing.assert_allclose(clicks.mean(axis=0), 0.26, atol=1e-12)
    # Renewable energy has grown in all of the seventeen years but the third.
    renewable = 0.02 + 0.48 * np.array([0, 2, 1, *range(3, 17)]) / 16
    np.testing.assert_allclose(np.array(stream_of("electricity", 10_000).clicks)[:, 2], renewable)


def test_the_readme_of_the_series_has_a_source_and_the_size_of_each():
    rows = (FOLDER / "README.md").read_text(encoding="utf-8").split("\n")
    for name in series_names():
        (row,) = [row for row in rows if row.startswith(f"| `{name}.csv` |")]
        world = stream_of(name, 10_000)
        size = row.split("|")[2].replace(",", "")
        assert [int(word) for word in size.split() if word.isdigit()] == [len(world.clicks), world.arms]
        assert "public domain" in row or "CC BY 4.0" in row


def test_many_cells_are_drawn_by_family_and_few_one_by_one(tmp_path):
    cells = [
        {"family": "ab"[i % 2], "setting": f"s{i}", "stream": f"s{i}", "ratio": 0.5 + i / 20, "ratio_se": 0.1}
        for i in range(study.MANY)
    ]
    study.draw(cells, tmp_path / "many.png")
    study.draw(cells[:5], tmp_path / "few.png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


ALL = {
    name: setting
    for family in study.families(Setup(1, reading="all")).values()
    for name, setting in family.items()
}


@pytest.mark.parametrize("name", ALL)
def test_candidates_and_the_recommended_policy_suit_each_setting(name):
    setting = ALL[name]
    for world in (setting.environment, *setting.others):
        candidates = setting.candidates(world, setting.horizon)
        own = tacit.policies.policy_from_spec("auto", world.arm_count, setting=world.setting)
        assert len({each.label for each in candidates}) == len(candidates) > 4
        assert all(each.shows == own.shows == world.takes for each in candidates)
        assert own not in candidates
    assert list(setting.looks) == sorted({*setting.looks})
    assert all(0 < look < setting.horizon for look in setting.looks)


def test_there_are_so_many_cells_of_each_family():
    found = study.families(Setup(1, reading="all"))
    cells = {family: sum(1 + len(s.looks) for s in made.values()) for family, made in found.items()}
    assert cells == {
        "nineteen": 19, "stealth": 4, "duels": 62, "lists": 2 * 15, "series": 6, "clicks-only": 26,
        "rewards": 24,
    }  # fmt: skip


@pytest.mark.long
def test_the_quick_reading_plays_a_setting_of_each_family_and_each_cell_is_of_its_look(tmp_path, written):
    table = tmp_path / "interest.csv"
    table.write_text("date,holiday,film\n1996-07-02,80,0\n1996-07-03,70,5\n1996-07-05,10,90\n")
    result = item("defaults").reproduce(Setup(6, seed=1, workers=2, reading="quick", data=table))
    assert [cell["family"] for cell in result.cells] == list(study.FAMILIES)
    assert all(math.isfinite(cell["ratio"]) and cell["runs"] > 1 for cell in result.cells)
    for family in study.FAMILIES:
        assert f"Family '{family}': geometric mean" in result.report
    written("defaults", result)


def test_each_look_has_the_best_that_was_tuned_for_it_and_runs_are_dealt_out_among_worlds():
    world = tacit.BernoulliArms([0.1, 0.5])
    setting = study.RegretSetting(
        world,
        400,
        lambda world, horizon: [tacit.UniformRandom(2), tacit.KLUCB(2)],
        others=[world],
        looks=[100],
    )
    early, late = study.cells_of("x", setting, Setup(8, seed=1, workers=1))
    assert (early["setting"], late["setting"]) == ("x, 100", "x, 400")
    assert (early["runs"], late["best"]) == (8, "KLUCB")
    assert early["regret_mean"] < late["regret_mean"]


def test_interest_alone_needs_a_table():
    with pytest.raises(InvalidValue, match="give a table"):
        item("defaults").reproduce(Setup(6, reading="interest"))


def test_the_item_writes_its_four_files(monkeypatch, written):
    kept = {"1 shift": study.SETTINGS["1 shift"], "again": study.SETTINGS["3 stealthy shifts"]}
    few = {
        name: setting._replace(
            horizon=500, candidates=lambda world, horizon: [tacit.KLUCB(5), tacit.Thompson(5)]
        )
        for name, setting in kept.items()
    }
    monkeypatch.setattr(study, "SETTINGS", few)
    result = item("defaults").reproduce(Setup(6, seed=1, workers=2, reading="nineteen"))
    (first, second), report = written("defaults", result)
    assert {cell["family"] for cell in (first, second)} == {"nineteen"}
    assert (first["policy"], first["candidates"], first["tuning_runs"]) == ("DriftMixture", 2, 5)
    assert first["best"] in ("KLUCB", "Thompson")
    assert first["ratio"] == pytest.approx(first["regret_mean"] / first["best_mean"])
    assert (first["stealthy"], second["stealthy"]) == (False, True)
    assert "Without stealthy shifts: geometric mean" in report
