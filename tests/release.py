"""Build the wheel and the source distribution as they are released, and try them as a stranger.

python tests/release.py --out dist
python tests/release.py --python python3.12 --python python3.13 --compiled --tests
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

# What each extra is for, done once with nothing else installed.
EXTRAS = {
    "": """
import tacit
result = tacit.simulate(tacit.UCB1(arms=2), tacit.BernoulliArms([0.1, 0.9]), 1000, runs=2, seed=1)
assert result.table
""",
    "service": """
import json, tempfile, urllib.request
from pathlib import Path
from tacit.service.config.file import load_config
from tacit.service.app.server import run_in_thread

def asked(url, body=None):
    head = {"content-type": "application/json"}
    sent = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(url, sent, head)).read().decode()

with tempfile.TemporaryDirectory() as folder:
    values = {"store.path": str(Path(folder) / "s.db"), "server.port": 0}
    with run_in_thread(load_config(overrides=values)) as address:
        place = f"{address}/v1/placements/default"
        decision = json.loads(asked(f"{place}/decide", {"key": "a"}))
        told = {"decision_id": decision["decision_id"], "reward": 1}
        assert json.loads(asked(f"{place}/feedback", told))["outcome"] == "learned"
        assert "What learning earned" in asked(address)
        assert "fetch" in asked(f"{address}/static/page.js")
""",
    "postgres": """
from tacit.service.config.schema import StoreConfig
from tacit.service.errors import StoreError
from tacit.service.engine.stores import open_store
try:
    open_store(StoreConfig(url="postgresql://nobody@127.0.0.1:1/nothing"))
except StoreError as error:
    assert "127.0.0.1" in str(error)
else:
    raise AssertionError("a database that is not there was opened")
""",
    "client": """
from tacit.client import Client, Unavailable
try:
    with Client("http://127.0.0.1:1", retries=0) as client:
        client.decide("default", "a")
except Unavailable:
    pass
else:
    raise AssertionError("a service that is not there answered")
""",
    "ray": """
import tacit
from tacit.cluster import on_ray
arguments = [tacit.UCB1(arms=2)], tacit.BernoulliArms([0.1, 0.9]), 1000
local = tacit.simulate(*arguments, runs=2, seed=1)
with on_ray("local"):
    assert tacit.simulate(*arguments, runs=2, seed=1).table == local.table
""",
    "otel": """
from tacit.service.config.schema import TracesConfig
from tacit.service.app.traces import create_provider
create_provider(TracesConfig("http://127.0.0.1:1/v1/traces", sample=0.0)).shutdown()
""",
    "kafka": """
from tacit.errors import LogError
from tacit.feed.kafka_topics import parse_address
from tacit.feed import kafka
kafka.PATIENCE = 0.1
try:
    kafka.Topic(parse_address("kafka://127.0.0.1:1/topic"), {})
except LogError:
    pass
else:
    raise AssertionError("a broker that is not there answered")
""",
    "plots": """
import tempfile
from pathlib import Path
import tacit
result = tacit.simulate(tacit.UCB1(arms=2), tacit.BernoulliArms([0.1, 0.9]), 1000, runs=2, seed=1)
with tempfile.TemporaryDirectory() as folder:
    result.plot(Path(folder) / "regret.png")
    assert (Path(folder) / "regret.png").stat().st_size > 1000
""",
    "interleaving": """
import numpy as np
from tacit.interleaving import Optimized
lists = [["a", "b", "c"], ["c", "a", "b"]]
assert len(Optimized(length=3).interleave(lists, np.random.default_rng(1)).items) == 3
""",
}
# Plays every policy; says what came of each, to the last bit, and how many loops were compiled.
PLAYED = """
import hashlib, json, sys
import numpy as np, tacit
from tacit.core.compiled import cache_statistics
from tacit.core.arrays import leaves
from tacit.warmup import all_policies

def played(policy):
    rng, learner = np.random.default_rng(1), tacit.Learner(policy, seed=2)
    digest, (relevance, examination) = hashlib.sha256(), policy.feature_dims
    for _ in range(200):
        given = {}
        if policy.context_dim:
            given["context"] = rng.random(policy.context_dim)
        if relevance or examination:
            arms = ["a", "b", "c"] if policy.arms is None else policy.arm_count
            given["arms"], rows = (arms, 3) if policy.arms is None else (None, arms)
            given["relevance"] = rng.random((rows, relevance)) if relevance else None
            given["examination"] = rng.random((rows, examination)) if examination else None
        made = learner.choose("k%d" % rng.integers(3), **given)
        clicks = (rng.random(policy.feedback_width) < 0.3).astype(float).tolist()
        learner.learn(made, clicks if len(clicks) > 1 else clicks[0])
        digest.update(repr((made.shown, made.propensity, made.epoch)).encode())
    for _, array in leaves(learner.state):
        digest.update(array.tobytes())
    return digest.hexdigest()

print(json.dumps([{each.label: played(each) for each in all_policies()}, cache_statistics()[1]]))
"""
# What compiled code of this environment is made for: it can run wherever this very numba can.
MADE_FOR = """
import importlib.metadata, json
from tacit.core.compilation.loops import SHIPPED_FOR
numba = importlib.metadata.distribution("numba")
lines = numba.read_text("WHEEL").splitlines()
tags = [line[5:].split("-") for line in lines if line.startswith("Tag: ")]
tag = "-".join([*tags[0][:2], ".".join(platform for _, _, platform in tags)])
print(json.dumps({"numba": numba.version, "tag": tag, "processor": SHIPPED_FOR}))
"""
# Base, logs, learning, simulation, the service over HTTP and its store: some minutes of tests.
REPRESENTATIVE = (
    "evaluate/test_parts", "learning/test_learner", "logs/test_logs", "policies/test_policies",
    "simulation/test_simulation", "policies/test_bwc", "interleaving/test_interleaving",
    "service/test_engine", "service/test_http", "client/test_client",
)  # fmt: skip


LARGEST = 100_000_000
"""What PyPI takes, in bytes, if nobody asks for more."""


def build(folder, root=ROOT, umask=-1):
    """Build both distributions of a source tree, without any network; return their paths."""
    folder = Path(folder)
    run(*(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, root), quiet=True, umask=umask)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def released(folder):
    """Build twice, and once more from the source distribution: the bytes must be the same."""
    folder = Path(folder)
    wheel, sdist = build(folder)
    with tempfile.TemporaryDirectory() as other:
        again = build(Path(other) / "again", umask=0o077)
        with tarfile.open(sdist) as archive:
            archive.extractall(other, filter="data")
        source = Path(other) / sdist.name.removesuffix(".tar.gz")
        for built in (*again, *build(Path(other) / "from the sdist", source)):
            first = folder / built.name
            if built.read_bytes() != first.read_bytes():
                raise SystemExit(f"{built.name} is not the same when built {built.parent.name}")
    return wheel, sdist


def contents(archive):
    """Return the files of a wheel or a source distribution, the latter without its folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {name.split("/", 1)[1] for name in sdist.getnames()}


def package_files(root=ROOT):
    """Return the files that belong to the package, as a wheel names them."""
    return {
        path.relative_to(root / "src").as_posix()
        for path in (root / "src" / "tacit").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def run(*command, quiet=False, **options):
    """Run a command; fail with what it said."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=quiet, text=True, check=False, **options
    )
    if done.returncode:
        said = f"\n{done.stdout[-2000:]}{done.stderr[-4000:]}" if quiet else ""
        raise SystemExit(f"failed: {' '.join(map(str, command))[:200]}{said}")
    return done


def environment(python, folder, wheel, extras, *constraints):
    """Make an empty environment and install the wheel into it; return its Python."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    wanted = f"tacit-learn[{extras}] @ {wheel.resolve().as_uri()}" if extras else wheel
    run(inside, "-m", "pip", "install", "--quiet", *constraints, wanted, quiet=True)
    return inside


def isolate(cache, **variables):
    """Return the environment of a process that compiles into a folder, and does not see this source."""
    return os.environ | {"TACIT_CACHE_DIR": str(cache), "PYTHONPATH": ""} | variables


def try_extra(python, wheel, extra):
    """Install with one extra only; ask for the version; do what the extra is for."""
    with tempfile.TemporaryDirectory() as folder:
        inside = environment(python, Path(folder) / "venv", wheel, extra)
        apart = {"cwd": folder, "quiet": True, "env": isolate(folder)}
        said = run(inside, "-m", "tacit", "version", **apart).stdout
        assert run(inside.with_name("tacit"), "version", **apart).stdout == said
        assert re.search(r"-(\d[^-]*)-", wheel.name)[1] in said, said
        run(inside, "-c", EXTRAS[extra], **apart)


def compiled(python, wheel, folder):
    """Compile all policies with what pip installs today; return the wheel that brings it along."""
    with tempfile.TemporaryDirectory() as apart:
        inside = environment(python, Path(apart) / "venv", wheel, "service")
        code = Path(apart) / "compiled"
        made_for = run(inside, "-c", MADE_FOR, quiet=True, cwd=apart).stdout
        elsewhere = isolate(code, NUMBA_CPU_NAME=json.loads(made_for)["processor"], NUMBA_CPU_FEATURES="")
        compile_all = "from tacit.warmup import compile_shipped; compile_shipped()"
        run(inside, "-c", compile_all, env=elsewhere, cwd=apart, quiet=True)
        for lock in code.rglob("*lock"):
            lock.unlink()
        (code / "made_for.json").write_text(made_for)
        command = sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", apart
        run(*command, ROOT, quiet=True, env={**os.environ, "TACIT_COMPILED": str(code)})
        (built,) = Path(apart).glob("*.whl")
        return Path(shutil.move(built, folder))


def try_compiled(python, wheel):
    """Play all policies as the wheel brings them along, with nothing compiled; then compile them
    for this very processor: what came of them must be the same to the last bit."""
    with tempfile.TemporaryDirectory() as folder:
        inside = environment(python, Path(folder) / "venv", wheel, "")
        apart = {"cwd": folder, "quiet": True, "env": isolate(f"{folder}/cache")}
        done = run(inside, "-c", PLAYED, **apart)
        brought, compilations = json.loads(done.stdout)
        assert compilations == 0, done.stderr
        assert "compil" not in done.stderr, done.stderr
        assert not (Path(folder) / "cache").exists()
        shutil.rmtree(next((Path(folder) / "venv").glob("lib/*/site-packages/tacit/compiled")))
        made_here, compilations = json.loads(run(inside, "-c", PLAYED, **apart).stdout)
        assert compilations
        other = [label for label in brought if brought[label] != made_here[label]]
        assert not other, f"not the same when compiled for this processor: {other}"
        return len(brought)


def try_tests(python, wheel, sdist):
    """Run the representative tests of the source distribution against the installed wheel."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        source = Path(folder) / sdist.name.removesuffix(".tar.gz")
        pinned = ("--constraint", source / "constraints.txt")
        inside = environment(python, Path(folder) / "venv", wheel, "all,dev", *pinned)
        tests = [source / "tests" / f"{name}.py" for name in REPRESENTATIVE]
        apart = isolate(folder, PYTHONPATH=os.pathsep.join((str(source), str(source / "tests"))))
        run(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=folder, env=apart)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where to keep what was built")
    parser.add_argument("--python", action="append", help="interpreters; default: this one")
    parser.add_argument("--extra", action="append", choices=EXTRAS, help="default: each")
    parser.add_argument(
        "--compiled", action="store_true", help="a wheel with compiled code, too, for each Python"
    )
    parser.add_argument("--tests", action="store_true", help="run tests, too, with each Python")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = released(told.out or folder)
        for built in (wheel, sdist):
            print(f"{built.name}: {built.stat().st_size:,} bytes, the same when built again")
        for python in told.python or [sys.executable]:
            named = run(python, "--version", quiet=True).stdout.strip()
            for extra in told.extra or EXTRAS:
                start = time.monotonic()
                try_extra(python, wheel, extra)
                label = f"tacit-learn[{extra}]" if extra else "tacit-learn"
                print(f"{named}: {label} installs and works, {time.monotonic() - start:.0f} s")
            if told.compiled:
                built = compiled(python, wheel, told.out or folder)
                if built.stat().st_size > LARGEST:
                    raise SystemExit(f"{built.name}: PyPI takes no file of over {LARGEST:,} bytes")
                print(f"{built.name}: {built.stat().st_size:,} bytes", flush=True)
                count = try_compiled(python, built)
                print(f"{named}: {count} policies run as compiled, the same to the last bit")
            if told.tests:
                try_tests(python, wheel, sdist)
                print(f"{named}: tests passed", flush=True)


if __name__ == "__main__":
    main()
