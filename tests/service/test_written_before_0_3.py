"""What versions before 0.3 wrote: refused untouched, with what to do; and read once 0.3 has opened it."""

import contextlib
import gzip
import json
import lzma
import shutil
import zipfile

import psycopg
import pytest
import stores
from conftest import DATA
from harness import configured
from placement_access import Engine, FencedStore, ReadStore
from record_behaviour import read_machine

import tacit
from tacit.errors import BEFORE_0_3, SnapshotError, TacitError
from tacit.learning import feedback_window
from tacit.service.config.file import load_config
from tacit.service.errors import StoreError
from tacit.service.log.postgres import PostgresStore
from tacit.service.log.sqlite import ReadSqlite, SqliteStore
from tacit.service.maintenance.doctor import has_user_data, verify
from tacit.service.maintenance.log_export import export, import_log

pytestmark = pytest.mark.interpreted
WRITTEN = DATA / "written_before_0.3"
VERSIONS = ["0.1", "0.2"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("opens", [SqliteStore, ReadSqlite])
def test_a_store_in_sqlite_is_refused_untouched(version, opens, tmp_path):
    path = tmp_path / "store.db"
    content = gzip.decompress((WRITTEN / f"store_of_{version}.db.gz").read_bytes())
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        opens(path)
    number = {"0.1": 6, "0.2": 9}[version]
    assert str(caught.value) == f"store.path: {path} is of version {number} and {BEFORE_0_3}"
    assert path.read_bytes() == content


@pytest.fixture
def old_schema():
    """Make the schema of a store of 0.2 in PostgreSQL; yield its address."""
    url = stores.cluster().url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((WRITTEN / "store_of_0.2.sql").read_text())
        yield url
        connection.execute("DROP SCHEMA tacit CASCADE")


@pytest.mark.parametrize("opens", [PostgresStore, ReadStore, FencedStore])
def test_a_store_in_postgresql_is_refused_untouched(old_schema, opens):
    with pytest.raises(StoreError) as caught:
        opens(old_schema)
    said = str(caught.value)
    assert said.startswith("store.url: schema tacit of ")
    assert said.endswith(f" is of version 8 and {BEFORE_0_3}")
    with psycopg.connect(old_schema) as connection:
        found = connection.execute("SELECT version, probed, epoch FROM tacit.store, tacit.owner").fetchall()
    assert found == [(8, 0, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_learner_is_refused(version, tmp_path):
    path = shutil.copy(WRITTEN / f"learner_of_{version}.tacit", tmp_path / "learner.tacit")
    with pytest.raises(SnapshotError) as caught:
        tacit.Learner.load(path)
    assert str(caught.value) == f"{path}: {BEFORE_0_3}, and save it again"


def test_a_placement_cannot_start_from_a_learner_of_before(tmp_path):
    path = WRITTEN / "learner_of_0.1.tacit"
    table = {"arms": ["film", "holiday", "shop"], "policy": "thompson", "start": str(path)}
    store = SqliteStore(tmp_path / "store.db")
    with contextlib.closing(store), pytest.raises(TacitError) as caught:
        Engine(configured(placements={"home": table}), store)
    assert str(caught.value) == f"placements.home.start: {path}: {BEFORE_0_3}, and save it again"


def test_a_feedback_window_with_a_learner_of_before_is_refused(tmp_path):
    path = tmp_path / "window.tacit"
    tacit.FeedbackWindow(tacit.Learner(tacit.Thompson(2), seed=1), seconds=60).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[feedback_window.LEARNER] = (WRITTEN / "learner_of_0.2.tacit").read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(SnapshotError) as caught:
        tacit.FeedbackWindow.load(path)
    assert str(caught.value) == f"{path}: {BEFORE_0_3}, and save it again"


def test_an_exported_log_is_refused_before_a_row_is_taken(tmp_path):
    store = SqliteStore(tmp_path / "store.db")
    folder = tmp_path / "out"
    export(configured(), store, folder)
    path = folder / "placements.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 3}))
    with pytest.raises(StoreError) as caught:
        import_log(store, folder)
    assert str(caught.value) == f"{folder}: is of version 3 and {BEFORE_0_3}, and export it again"
    assert store.placements() == {}
    store.close()


IS_SAME_MACHINE = "AVX-512" in read_machine()[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_whether_a_backup_tells_of_somebody_is_not_said(version, tmp_path):
    path = tmp_path / "backup.db"
    path.write_bytes(gzip.decompress((WRITTEN / f"store_of_{version}.db.gz").read_bytes()))
    with pytest.raises(StoreError) as caught:
        has_user_data(path, "user", "ann")
    assert str(caught.value).startswith(f"{path} is of version ")
    assert str(caught.value).endswith(BEFORE_0_3)


def test_a_store_that_0_3_has_opened_is_read(tmp_path):
    """With a holdout, a control's own policy, arms that change, late rewards that correct, and frozen."""
    shutil.copy(WRITTEN / "brought_forward.toml", tmp_path / "tacit.toml")
    (tmp_path / "store.db").write_bytes(lzma.decompress((WRITTEN / "brought_forward.db.xz").read_bytes()))
    config = load_config(tmp_path / "tacit.toml")
    store = SqliteStore(config.store.path)
    # Its snapshots are of a processor with AVX-512: weights learned on another differ by rounding.
    assert [text for text in verify(config, store) if IS_SAME_MACHINE or ": weights of key" not in text] == []
    engine = Engine(config, store)
    assert {name: each.decisions for name, each in engine.placements.items()} == dict.fromkeys(
        config.placements, 50
    )
    store.close()
