"""The gallery: every figure of ``python -m studies``, the command that makes it, what it takes.

Run as a program it makes the figures anew: ``python -m generate.gallery [--data FILE] [ITEM ...]``.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from studies import ITEMS, item

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images" / "gallery"
FACTS = IMAGES / "facts.json"
LIMIT = 60_000
"""Bytes that a figure may take."""
COLOURS = 64

# Runs behind the figures shown here, where an item's own number would take long.
RUNS = {
    "eventful-robustness": 2,
    "dueling-practice": 5,
    "qi2018-figure1": 10,
    "qi2018-scale": 3,
    "search-interest": 1,
    "yue2011-figure2-bottom": 10,
}


def part() -> str:
    """Return every item with its command, what it took, and its figure."""
    facts = json.loads(FACTS.read_text())
    return "\n\n".join(shown(name, facts[name]) for name in ITEMS if name in facts)


def shown(name: str, took: dict[str, int]) -> str:
    """Return an item of the gallery."""
    found = item(name)
    data = " --data FILE" if found.needs_data else ""
    fewer = f"; its own number is {found.runs}" if took["runs"] != found.runs else ""
    needs = f"FILE is {found.needs_data}.\n\n" if found.needs_data else ""
    return (
        f"## {name}\n\n{found.title}.\n\n"
        f"```console\n$ python -m studies {name} --runs {took['runs']} --seed 1{data}\n```\n\n"
        f"{needs}Seed 1, {counted(took['runs'], 'run')}{fewer}. It took "
        f"{counted(took['processor'], 'second')} of processor time, {took['seconds']} by the "
        f"clock of a busy machine, compiling included.\n\n"
        f"![{found.title}](images/gallery/{name}.png)"
    )


def counted(number: int, what: str) -> str:
    """Return a number of things."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def make(name: str, data: Path | None) -> dict[str, int]:
    """Run an item's command, keep its figure, and return what it took."""
    found = item(name)
    runs = RUNS.get(name, found.runs)
    with tempfile.TemporaryDirectory() as folder:
        command = ["studies", name, "--runs", str(runs), "--seed", "1", "--out", folder]
        if found.needs_data:
            command += ["--data", str(data)]
        before, start = _processor(), time.monotonic()
        subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, cwd=ROOT)
        seconds, processor = time.monotonic() - start, _processor() - before
        (IMAGES / f"{name}.png").write_bytes(small(Path(folder) / f"{name}.png"))
    return {"runs": runs, "seconds": round(seconds), "processor": round(processor)}


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def small(path: Path, colours: int = COLOURS) -> bytes:
    """Return a figure as a PNG of fewer colours, scaled down until it is below the limit."""
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    width = min(picture.width, 1050)
    while True:
        height = round(picture.height * width / picture.width)
        scaled = picture.resize((width, height), Image.Resampling.LANCZOS)
        # Thin lines are few pixels: their colours must be kept all the same.
        kept = scaled.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        kept.save(buffer, "PNG", optimize=True)
        if buffer.tell() <= LIMIT:
            return buffer.getvalue()
        width = round(0.92 * width)


def main() -> None:
    """Make the figures of some items, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", nargs="*", metavar="ITEM", help="default: each")
    parser.add_argument("--data", type=Path, help="a table of search interest: dates and topics")
    asked = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in asked.items or list(ITEMS):
        if item(name).needs_data and asked.data is None:
            print(f"left out: {name}, for want of --data")
            continue
        facts = json.loads(FACTS.read_text()) if FACTS.exists() else {}
        facts[name] = make(name, asked.data)
        ordered = {known: facts[known] for known in ITEMS if known in facts}
        FACTS.write_text(json.dumps(ordered, indent=1) + "\n")
        print(name, facts[name], flush=True)


if __name__ == "__main__":
    main()
