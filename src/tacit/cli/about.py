"""What is installed: ``tacit policies``, ``doctor``, ``warmup`` and ``version``."""

from __future__ import annotations

from pathlib import Path

import click

from tacit import __version__
from tacit.cli.options import json_option, show, usage
from tacit.errors import MissingExtra


@click.command()
@json_option
@click.argument("names", nargs=-1)
def policies(names: tuple[str, ...], as_json: bool) -> None:
    """List the policies: where each comes from, what it assumes, what to use when that fails.

    The name auto stands for those that are recommended, each for what it suits.
    """
    from tacit.core.dispatch import shipped
    from tacit.policies.base import registry
    from tacit.policies.spec import is_auto, policy_class

    recommended = [policy for policy in registry.values() if policy.about.suits]
    with usage():
        chosen = [
            policy
            for name in names
            for policy in (recommended if is_auto(name) else [policy_class(name)])
        ] or list(registry.values())
    # A class of one's own may have no example.
    known = shipped(registry, "policies")
    table = {
        policy.__name__: policy.about._asdict()
        | {"propensity": policy.example().propensities if policy in known else ""}
        for policy in chosen
    }
    text = "\n\n".join(
        f"{name}\n" + "\n".join(f"  {label:<10} {told}" for label, told in about.items() if told)
        for name, about in table.items()
    )
    show(table, text, as_json)


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation, and say how to mend what is wrong."""
    from tacit.service.maintenance.doctor import checks

    found = checks()
    marks = {True: "ok", False: "WRONG", None: "note"}
    lines = [(marks[check.ok], f"{check.name}: {check.detail}", check.remedy) for check in found]
    text = "\n".join(
        f"{mark:<5}  {line}" + (f"\n       → {remedy}" if remedy and mark != "ok" else "")
        for mark, line, remedy in lines
    )
    show([check._asdict() for check in found], text, as_json)
    if any(check.ok is False for check in found):
        raise SystemExit(1)


@click.command()
@json_option
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of the service: compile only what it serves.",
)
def warmup(as_json: bool, config: Path | None) -> None:
    """Compile everything ahead, into the cache that later runs use."""
    hits, misses, folder = _compiled() if config is None else _compiled_for(config)
    text = f"compiled {misses} loops, found {hits} in the cache: {folder}"
    show({"compiled": misses, "cached": hits, "folder": str(folder)}, text, as_json)


def _compiled() -> tuple[int, int, Path]:
    from tacit.warmup import compile_all

    return compile_all()


def _compiled_for(config: Path) -> tuple[int, int, Path]:
    try:
        from tacit.service.config.file import load_config
        from tacit.service.running.warming import compile_served
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error
    with usage():
        configuration = load_config(config)
    return compile_served(configuration)


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    show({"version": __version__}, f"tacit {__version__}", as_json)
