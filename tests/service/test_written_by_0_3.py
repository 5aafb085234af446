"""What version 0.3 wrote: its log folds, its snapshots open and its learners decide as they did, bit for bit.

``record_behaviour.py`` recorded it. On another processor than that on which it was recorded, or with another
NumPy or numba, floats are compared up to rounding; ``BIT_FOR_BIT=1`` demands all bits. Loops run as plain
Python, and in the long form compiled. What both fold to was recorded; the traffic was decided compiled.
"""

import contextlib
import json
import lzma
import os
import shutil
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest
import record_behaviour as recorder
from conftest import DATA
from harness import configured, served
from placement_access import WHEN_IT_COMES, Engine, decide_alone, get_mode, patch_internal

from tacit.errors import ConfigError
from tacit.policies import ContextMixture, DriftMixture, policy_to_spec
from tacit.service.log.sqlite import SqliteStore

pytestmark = pytest.mark.interpreted
WRITTEN = DATA / "written_by_0.3"
ABOUT = json.loads((WRITTEN / "placements.json").read_text())
PLACEMENTS = ABOUT["placements"]
EXACT = bool(os.environ.get("BIT_FOR_BIT")) or ABOUT["machine"] == recorder.read_machine()

with zipfile.ZipFile(WRITTEN / "learners.zip") as archive:
    NEXT = json.loads(archive.read("next.json"))
    LEARNERS = {name: archive.read(f"{name}.tacit") for name in NEXT}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "store.db"
    path.write_bytes(lzma.decompress((WRITTEN / "store.db.xz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def recorded():
    return json.loads(lzma.decompress((WRITTEN / "behaviour.json.xz").read_bytes()))


def is_as_recorded():
    """Whether what was written live, by compiled loops, is to come out the same to the last bit."""
    return EXACT and recorder.read_form() == "compiled"


def select_tables(kind):
    return {name: table for name, table in PLACEMENTS.items() if name.partition(".")[0] == kind}


@pytest.mark.parametrize("kind", recorder.KINDS)
def test_its_log_folds_to_what_it_was_and_its_snapshots_lead_there(store, recorded, kind):
    config = configured(store, placements=select_tables(kind))
    folded, _ = recorder.fold_store(store, config, snapshot=False)
    restored, began = recorder.fold_store(store, config, snapshot=True)
    assert began == {name: ABOUT["snapshots"][name] for name in began}
    assert min(began.values()) > 0
    assert folded.keys() == config.placements.keys()
    expected = {name: recorded[recorder.read_form()][name] for name in folded}
    assert list(recorder.find_differences(folded, expected, EXACT)) == []
    assert list(recorder.find_differences(restored, folded, is_as_recorded())) == []


# The mode apprentice, which 0.3 had -------------------------------------------------------------


@pytest.fixture(scope="module")
def apprentices(tmp_path_factory):
    """Return a store with placements that were in that mode, and what 0.3 recorded of them."""
    path = tmp_path_factory.mktemp("apprentices") / "store.db"
    path.write_bytes(lzma.decompress((WRITTEN / "apprentice.db.xz").read_bytes()))
    return path, json.loads(lzma.decompress((WRITTEN / "apprentice.json.xz").read_bytes()))


def test_decisions_of_apprentices_fold_to_what_they_were(apprentices):
    path, about = apprentices
    config = configured(path, placements=about["placements"])
    folded, _ = recorder.fold_store(path, config, snapshot=False)
    restored, began = recorder.fold_store(path, config, snapshot=True)
    assert began == about["snapshots"]
    assert list(recorder.find_differences(folded, about[recorder.read_form()], EXACT)) == []
    assert list(recorder.find_differences(restored, folded, is_as_recorded())) == []


async def test_a_placement_that_is_an_apprentice_is_refused_at_the_start(apprentices, tmp_path):
    path, about = apprentices
    path = shutil.copy(path, tmp_path / "store.db")
    (still,) = [name for name in about["placements"] if name.endswith(".still")]
    said = rf"^placements\.{still}\.mode: 'apprentice': .*; set another mode with tacit 0\.3 first"
    with contextlib.closing(SqliteStore(path)) as store, pytest.raises(ConfigError, match=said):
        Engine(configured(path, placements=about["placements"]), store)
    left = {name: table for name, table in about["placements"].items() if name != still}
    async with served(path, configured(path, placements=left)) as engine:
        assert {get_mode(placement) for placement in engine.placements.values()} == {"online"}


# Learners, and the same traffic again -----------------------------------------------------------


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_its_learners_decide_as_they_did(name, tmp_path):
    path = tmp_path / f"{name}.tacit"
    path.write_bytes(LEARNERS[name])
    shown = recorder.teach_next(path)
    assert list(recorder.find_differences(shown, NEXT[name][recorder.read_form()], is_as_recorded())) == []


async def test_the_same_traffic_is_decided_as_it_was(store, recorded, monkeypatch):
    """Live, from an empty store, by the rule of feedback that 0.3 had: rows, outcomes, state in the end."""
    patch_internal(monkeypatch, IN_ORDER=WHEN_IT_COMES)
    decide_alone(monkeypatch)
    patch_internal(monkeypatch, to_spec=lambda policy: json.dumps(policy_to_spec(policy)))
    # What was recommended in 0.3, as a stored policy of that version is read.
    for kind in (ContextMixture, DriftMixture):
        monkeypatch.setattr(sys.modules["tacit.policies.auto"], kind.__name__, partial(kind, **kind.earlier))
    exact = is_as_recorded()
    cases = recorder.list_cases()
    # Where late rewards correct, Thompson was the recommended policy; items had one spread of rewards.
    earlier = {"auto.correct": "thompson", "items.": "embedding-mixture(relevance_dim=4, spread=all)"}
    placements = {
        name: table | next(({"policy": earlier[start]} for start in earlier if name.startswith(start)), {})
        for name, table in PLACEMENTS.items()
    }
    with recorder.make_folder() as folder, recorder.fixed_chance():
        copy, outcomes, live, refused = await recorder.play(Path(folder) / "store.db", cases, placements)
        rows, expected = recorder.read_rows(copy), recorder.read_rows(store)
    assert refused == {}
    assert list(recorder.find_differences(rows, expected, exact)) == []
    assert outcomes == recorded["outcomes"]
    assert list(recorder.find_differences(live, recorded["compiled"], exact)) == []
