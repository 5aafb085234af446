"""What the README and the documentation show is run here, as it stands there."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
from conftest import ROOT
from generate.run import commands, execute
from generate.run import run as run_page
from harness import PATIENCE

from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config


def blocks(page, language):
    """Return the code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def printed(code, folder):
    """Run Python code in a folder, as a program would; return what it printed."""
    with contextlib.chdir(folder), warnings.catch_warnings():
        return execute(code, {"__name__": "__main__"}, "page")


def run(arguments, folder, path=None):
    """Run a command in a folder, with a PYTHONPATH (by default the folder); return its output."""
    result = subprocess.run(
        arguments,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(folder) if path is None else path},
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_readme_runs_and_prints_what_it_shows(tmp_path):
    output = printed("\n".join(blocks("README.md", "python")), tmp_path)
    assert output.strip() in (ROOT / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / "regret.png").stat().st_size > 10_000


@pytest.mark.needs("curl")
def test_the_service_of_the_readme_answers_curl_as_it_shows(tmp_path):
    """But for ids and which arm: both are drawn. What the second request names is what the first one got."""
    (configuration,) = blocks("README.md", "toml")
    (tmp_path / "tacit.toml").write_text(configuration)
    (asked,) = [commands(block) for block in blocks("README.md", "console") if "curl" in block]
    (serve, _), *curls = asked
    assert serve.startswith("tacit serve --config tacit.toml ")
    overrides = {"server.port": 0, "store.path": str(tmp_path / "s.db")}
    config, named = load_config(tmp_path / "tacit.toml", overrides), "018bcfe5-…"
    arms = tomllib.loads(configuration)["placements"]["search"]["arms"]
    with run_in_thread(config) as address:
        for command, shown in curls:
            command = command.replace("018bcfe5-…", named).replace("localhost:8787", address)
            answer, shown = json.loads(run([*shlex.split(command), "--silent"], tmp_path)), json.loads(shown)
            named = answer["decision_id"]
            assert {shown.pop("arm", arms[0]), answer.pop("arm", arms[0])} <= set(arms)
            assert answer | {"decision_id": "018bcfe5-…"} == pytest.approx(shown)
        assert json.loads(run(["curl", "--silent", f"{address}/v1/placements"], tmp_path))


def test_the_first_page_runs(tmp_path):
    printed("\n".join(blocks("docs/index.md", "python")), tmp_path)


@pytest.mark.parametrize("page", ["dueling", "items", "lists", "proof"])
def test_the_code_of_the_page_prints_what_it_shows(page, tmp_path):
    code = "\n".join(blocks(f"docs/{page}.md", "python"))
    assert printed(code, tmp_path) == "".join(blocks(f"docs/{page}.md", "text"))


def test_the_page_on_writing_a_policy_runs(tmp_path):
    policy, use = blocks("docs/write-a-policy.md", "python")
    (tmp_path / "mypolicies.py").write_text(policy)
    own = "mypolicies:ExploreThenCommit(tries=50)"
    arguments = ["simulate", "--policy", own, "--horizon", "2000", "--runs", "2"]
    # As a user in the policy's folder would: with the installed command.
    command = Path(sys.executable).parent / "tacit"
    assert own.partition(":")[2] in run([command, *arguments], tmp_path, path="")
    code = f"import tacit\nfrom mypolicies import *\n{use}\nprint(learner.choose('q').arm)"
    assert run([sys.executable, "-c", code], tmp_path).strip() in "01234"
    (tmp_path / "pooled.py").write_text((ROOT / "examples" / "pooled_policy.py").read_text(encoding="utf-8"))
    output = run([sys.executable, "pooled.py"], tmp_path)
    assert output == "new keys begin with: 1 1 1 1\nwhat all keys share: [[0.0, 6.0]]\n"


@pytest.mark.parametrize(
    "page", ["examination", "interleaving", "offline-evaluation", "ray", "shifting-intent", "ubi"]
)
def test_the_page_runs_and_prints_what_it_shows(page, tmp_path):
    if page == "ray":
        pytest.importorskip("ray")
    differences, _ = run_page(ROOT / "docs" / f"{page}.md", tmp_path)
    assert not differences, "\n".join(map(str, differences))


def test_the_page_on_who_is_asking_runs_and_prints_what_it_shows(tmp_path):
    page = "docs/who-is-asking.md"
    first, *codes, in_service = blocks(page, "python")
    printed(first, tmp_path)
    assert printed("\n".join(codes), tmp_path) == "".join(blocks(page, "text"))
    assert "client.decide" in in_service


def test_the_page_on_which_policy_when_runs_and_fits_a_screen(tmp_path):
    printed("\n".join(blocks("docs/choose.md", "python")), tmp_path)
    text = (ROOT / "docs/choose.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 45
    for call in re.findall(r"`(tacit\.\w+\(arms=.*?\))`", text):
        printed(f"import tacit\n{call}", tmp_path)
    printed("\n".join(blocks("docs/all-policies.md", "python")), tmp_path)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_page_on_the_service_runs_and_prints_what_it_shows(tmp_path):
    for code, output in zip(
        blocks("docs/service.md", "python"), blocks("docs/service.md", "text"), strict=True
    ):
        assert printed(code, tmp_path) == output


@pytest.mark.parametrize("page", sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md")))
def test_what_a_page_shows_as_a_configuration_is_one(page, tmp_path):
    for text in re.findall(r"^```toml[^\n]*\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.M | re.S):
        if "[placements." in text:
            (tmp_path / "tacit.toml").write_text(text)
            named = tomllib.loads(text)["placements"]
            assert set(load_config(tmp_path / "tacit.toml").placements) == set(named)


def test_the_frames_of_the_page_on_click_logs_are_read(tmp_path):
    pytest.importorskip("pandas")
    code = "\n".join([code for code in blocks("docs/click-logs.md", "python") if "frame" in code])
    with warnings.catch_warnings(action="ignore"):
        shown = printed(code + "print(len(list(log)), *result.segments)", tmp_path)
    assert shown.splitlines()[0].split() == ["arm", "plays", "count", "now", "mean", "95", "%", "best"]
    assert shown.endswith("1 phone desk\n")
