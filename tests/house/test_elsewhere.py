"""The pages for those who come from elsewhere run, and print what they show."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT
from generate.run import execute
from harness import PATIENCE

from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

PAGES = ROOT / "docs" / "elsewhere"
THEIRS = {"mabwiser": "mabwiser", "river": "river", "open-bandit": "obp", "bandits-in-products": "growthbook"}
SERVED = ("bandits-in-products", "personalizer")
"""Pages whose code asks a service, of their first configuration."""


def blocks(name, language):
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}(?: title=\"[^\"]+\")?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [name for name in THEIRS if name not in SERVED])
def test_what_is_here_runs_and_prints_what_it_shows(name):
    ours = [code for code in blocks(name, "python") if f"from {THEIRS[name]}" not in code]
    assert execute("".join(ours), {}, "page") == "".join(blocks(name, "text"))


@pytest.mark.parametrize("name", SERVED)
def test_what_asks_a_service_runs_and_prints_what_it_shows(name, tmp_path):
    ours, _ = blocks(name, "python")
    path = tmp_path / "tacit.toml"
    path.write_text(blocks(name, "toml")[0])
    overrides = {"server.port": 0, "store.path": str(tmp_path / "s.db")}
    with run_in_thread(load_config(path, overrides)) as address:
        printed = execute(ours.replace("http://127.0.0.1:8787", address), {}, "page")
    assert printed == "".join(blocks(name, "text"))


def test_the_example_of_language_models_prints_what_the_page_shows(tmp_path):
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "choose_a_model.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stderr
    (shown,) = blocks("language-models", "text")
    assert result.stdout == shown
    rewards = {row.split()[0]: float(row.split()[-1]) for row in shown.splitlines()[1:6]}
    assert rewards["tacit"] == max(rewards.values())


def test_the_call_of_a_model_is_one_of_the_client(tmp_path):
    (code,) = blocks("language-models", "python")
    (text,) = blocks("language-models", "toml")
    path = tmp_path / "tacit.toml"
    path.write_text(text)
    overrides = {"server.port": 0, "store.path": str(tmp_path / "s.db")}
    with run_in_thread(load_config(path, overrides)) as address:
        told = execute(code.replace("http://127.0.0.1:8787", address) + "print(recorded.outcome)", {}, "page")
    assert told == "learned\n"
