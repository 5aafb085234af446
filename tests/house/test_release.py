"""What is released: whole, nothing else, and the same again. ``make release`` goes further."""

import re
import subprocess
import tomllib
import zipfile
from email.parser import Parser

import pytest
import release
import yaml
from conftest import ROOT
from forked import Forked

import tacit
from tacit.errors import ConfigError
from tacit.service.config.file import VERSION, load_config
from tacit.service.maintenance import doctor


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return release.released(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def metadata(built):
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_the_package_and_nothing_else(built):
    inside = release.contents(built[0])
    info = {f"tacit_learn-{tacit.__version__}.dist-info/{name}" for name in (
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE",
    )}  # fmt: skip
    assert inside == release.package_files() | info
    for needed in ("py.typed", "service/page/templates/overview.html", "service/page/static/page.css"):
        assert f"tacit/{needed}" in inside


def test_the_source_distribution_holds_what_a_packager_needs(built):
    inside = release.contents(built[1])
    for needed in (
        "tests/house/test_release.py", "studies/reports/defaults.md", "examples", "docs/stability.md",
        "benchmarks/bench.py", "deploy/Containerfile", "CHANGELOG.md", "SECURITY.md", "CITATION.cff",
        "LICENSE", "constraints.txt", "Makefile", "PKG-INFO",
    ):  # fmt: skip
        assert any(name == needed or name.startswith(f"{needed}/") for name in inside), needed
    assert not [name for name in inside if "__pycache__" in name or ".venv" in name]


def test_the_doctor_looks_at_every_extra_of_users():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(doctor.EXTRAS) == set(project["optional-dependencies"]) - {"all", "dev", "docs"}


def test_every_extra_is_tried_and_every_user_extra_is_in_all(metadata):
    extras = set(metadata.get_all("Provides-Extra"))
    assert set(release.EXTRAS) - {""} == extras - {"all", "dev", "docs"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (of_all,) = project["optional-dependencies"]["all"]
    assert set(re.search(r"\[(.*)\]", of_all)[1].split(",")) == set(release.EXTRAS) - {""}


@pytest.mark.parametrize("extra", release.EXTRAS)
def test_what_is_done_once_with_each_extra_can_be_done(extra, tmp_path):
    tried = Forked(["-c", release.EXTRAS[extra]], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    _, told = tried.communicate()
    assert tried.returncode == 0, told


PIN = re.compile(r"^([\w.-]+)==(\S+)( \\\n    --hash=sha256:[0-9a-f]{64})+$", re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "extras"),
    [("requirements.txt", {"service", "postgres"}), ("requirements-all.txt", set(release.EXTRAS) - {""})],
)
def test_everything_that_is_installed_has_hashes_in_the_versions_of_the_constraints(name, extras):
    """All that the extras need on this machine is there, nothing without a hash."""
    from generate.licences import canonical, needed

    text = (ROOT / "deploy" / name).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {canonical(match[1]): match[2] for match in PIN.finditer(text)}
    assert len(found) == len([line for line in lines if not line.startswith(" ")])
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found.items() <= {canonical(each): version for each, version in pinned}.items()
    assert set(needed(extras)) <= set(found), "make lock"


def test_what_the_metadata_say(metadata):
    assert metadata["Version"] == tacit.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    classifiers = metadata.get_all("Classifier")
    pythons = [c.rpartition(" ")[2] for c in classifiers if "Python :: 3." in c]
    stability = (ROOT / "docs" / "stability.md").read_text()
    assert f"CPython {', '.join(pythons[:-1])} and {pythons[-1]} on Linux" in stability


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tacit.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert f"## {tacit.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_documented_versions_of_formats_are_those_of_the_code():
    from tacit.learning import snapshot
    from tacit.logs import schema
    from tacit.service.log import postgres, sqlite
    from tacit.service.maintenance import log_export as log

    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (\d+) \|", (ROOT / "docs" / "stability.md").read_text(), re.M)
    assert {name: int(version) for name, version in rows} == {
        "configuration": VERSION,
        "the service's store, SQLite": sqlite.VERSION,
        "the service's store, PostgreSQL": postgres.VERSION,
        "click log": schema.VERSION,
        "exported log of the service": log.VERSION,
        "snapshot of a `Learner`": snapshot.VERSION,
        "HTTP": 1,
    }


def test_a_configuration_of_a_newer_version_is_refused_by_that_name(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text("version = 2\n[brand_new]\nkey = 1\n")
    with pytest.raises(ConfigError, match=r"version: 2 is newer than this tacit, .* update tacit"):
        load_config(path)
    path.write_text("version = 1\n[placements.a]\narms = 2\n")
    assert list(load_config(path).placements) == ["a"]
    for wrong in ("0", '"1"', "true"):
        path.write_text(f"version = {wrong}\n")
        with pytest.raises(ConfigError, match="version: "):
            load_config(path)


# What nobody else could reach, or should be sent to.
NOT_OURS = re.compile(
    r"pypi\.(org|python)|pythonhosted\.org|registry\.npmjs|conda\.anaconda\.org"
    r"|(?<![\w./])/(work|root|home/\w+|Users)/"
)


def test_no_file_names_a_registry_or_a_place_of_one_machine(built, tmp_path):
    import tarfile

    with tarfile.open(built[1]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    found = [
        f"{path.relative_to(tmp_path)}: {match[0]}"
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "test_release.py"
        for match in NOT_OURS.finditer(path.read_bytes().decode(errors="ignore"))
    ]
    assert found == []
