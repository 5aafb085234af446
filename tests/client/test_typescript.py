"""The client for JavaScript that is written from the OpenAPI document: node runs it against a service."""

import contextlib
import importlib.util
import json
import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from harness import PATIENCE

from tacit.service.app.routes import document
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

EXAMPLE = ROOT / "examples" / "typescript"
CONFIG = """
[placements.home]
arms = ["film", "news", "shop"]
seed = 1
context = { device = ["ios", "web"] }
"""
TSCONFIG = {
    "compilerOptions": {
        "noEmit": True, "allowJs": True, "checkJs": True, "strict": True, "target": "es2022",
        "module": "nodenext", "lib": ["es2022", "dom"], "types": [],
    },
    "files": ["shop.mjs", "tacit.d.mts", "node.d.ts"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the client, as the command of the example writes it, and the program that uses it."""
    spec = importlib.util.spec_from_file_location("generate_typescript", EXAMPLE / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = tmp_path_factory.mktemp("typescript")
    with contextlib.chdir(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["generate.py"])
        module.main()
    shutil.copy(EXAMPLE / "shop.mjs", path)
    return path


def asked(*command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


def test_every_verb_has_a_method_and_every_type_is_there(folder):
    verbs = [
        verb["operationId"]
        for path, verbs in document()["paths"].items()
        for kind, verb in verbs.items()
        if path.startswith("/v1/") and kind != "parameters"
    ]
    code, types = ((folder / name).read_text() for name in ("tacit.mjs", "tacit.d.mts"))
    assert re.findall(r"^  (\w+)\([^\n]*\): Promise<", types, re.MULTILINE) == verbs
    assert re.findall(r"^  (?!async|constructor|if)(\w+)\([^\n]*\) \{$", code, re.MULTILINE) == verbs
    used = set(re.findall(r"(?<=[<:|] )\b[A-Z]\w+|(?<=<)[A-Z]\w+", re.sub(r"/\*\*.*?\*/", "", types)))
    defined = set(re.findall(r"^export (?:declare )?(?:interface|class) (\w+)", types, re.MULTILINE))
    assert used - defined - {"Array", "Record", "Promise", "Partial", "Error", "ArrayBuffer"} == set()


@pytest.mark.needs("node")
def test_node_decides_gives_feedback_asks_for_the_lift_and_reads_a_refusal(folder, tmp_path):
    (tmp_path / "tacit.toml").write_text(CONFIG)
    overrides = {"server.port": 0, "store.path": str(tmp_path / "s.db")}
    with run_in_thread(load_config(tmp_path / "tacit.toml", overrides)) as address:
        ran = asked("node", "shop.mjs", address, folder=folder)
    assert ran.returncode == 0, ran.stderr
    lift, refused = ran.stdout.splitlines()
    assert lift.startswith("uniform: ")
    assert re.fullmatch(r"422 arms.*: .*fim.*", refused)


@pytest.mark.needs("tsc")
def test_typescript_finds_what_is_misspelt(folder, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "typescript")
    (folder / "tsconfig.json").write_text(json.dumps(TSCONFIG))
    (folder / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
    good = asked("tsc", "-p", ".", folder=folder)
    assert good.returncode == 0, good.stdout
    program = folder / "shop.mjs"
    program.write_text(program.read_text().replace("decision_id: decision.decision_id", "id: decision.id"))
    wrong = asked("tsc", "-p", ".", folder=folder)
    assert wrong.returncode != 0
    assert "'id'" in wrong.stdout
