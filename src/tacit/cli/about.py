"""What is installed, and is it sound: ``tacit policies``, ``check``, ``doctor``, ``warmup``, …"""

from pathlib import Path
from typing import Annotated

import click

from tacit import __version__
from tacit.cli.options import File, Json, Seed, Typed, command, names, show, usage
from tacit.errors import needing


@command()
def policies(
    called: Annotated[tuple[str, ...], Typed(metavar="[NAMES]...")] = (), *, as_json: Json = False
) -> None:
    """List the policies: where each comes from, what it assumes, what to use when that fails.

    The name auto stands for those that are recommended, each for what it suits.
    """
    from tacit.core.dispatch import shipped
    from tacit.policies.base import registry
    from tacit.policies.spec import is_auto, policy_class

    recommended = [policy for policy in registry.values() if policy.about.suits]
    with usage():
        chosen = [
            policy for name in called for policy in (recommended if is_auto(name) else [policy_class(name)])
        ] or list(registry.values())
    # A class of one's own may have no example.
    known = shipped(registry, "policies")
    table = {
        policy.__name__: policy.about._asdict()
        | {"propensity": policy.example().propensities if policy in known else ""}
        for policy in chosen
    }
    text = "\n\n".join(
        f"{name}\n" + "\n".join(f"  {label:<10} {text}" for label, text in about.items() if text)
        for name, about in table.items()
    )
    show(table, text, as_json)


@command()
def check(
    policy: str,
    *,
    arms: Annotated[int, click.IntRange(2)] = 3,
    draws: Annotated[int, click.IntRange(100)] = 20_000,
    only: str | None = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Test a policy: its propensity, its lanes, its chance, and that all drivers agree.

    POLICY is a name, a call or module:Class, such as "mypolicies:ExploreThenCommit(tries=50)". The
    exit code is 1 if a test fails.

    Parameters
    ----------
    arms
        How many arms there are.
    draws
        Choices that are compared with their propensity.
    only
        Tests by name, with commas between them; by default all.
    """
    from tacit.checking import check as checked
    from tacit.policies import policy_from_spec

    with usage():
        made = policy_from_spec(policy, arms)
        wanted = None if only is None else names(only)
        found = checked(made, only=wanted, seed=seed, draws=draws)
    show(found.as_dict(), found.summary(), as_json)
    if not found.passed:
        raise SystemExit(1)


@command()
def doctor(
    *,
    url: str | None = None,
    key: Annotated[str, Typed(envvar="TACIT_PLACEMENT_KEY")] | None = None,
    as_json: Json = False,
) -> None:
    """Check the installation, or a service that runs, and say how to mend what is wrong.

    Parameters
    ----------
    url
        Look at the service that answers there: values in contexts that nobody declared, what was
        learned in bytes.
    key
        API key of that service; better in TACIT_PLACEMENT_KEY.
    """
    from tacit.service.maintenance.doctor import checks, served

    found = checks() if url is None else served(url, key)
    marks = {True: "ok", False: "WRONG", None: "note"}
    lines = [(marks[check.ok], f"{check.name}: {check.detail}", check.remedy) for check in found]
    text = "\n".join(
        f"{mark:<5}  {line}" + (f"\n       → {remedy}" if remedy and mark != "ok" else "")
        for mark, line, remedy in lines
    )
    show([check._asdict() for check in found], text, as_json)
    if any(check.ok is False for check in found):
        raise SystemExit(1)


@command()
def warmup(
    called: Annotated[tuple[str, ...], Typed(metavar="[POLICY]...")] = (),
    *,
    config: File | None = None,
    as_json: Json = False,
) -> None:
    """Compile ahead, into the cache that later runs use: what is named, or everything.

    POLICY is a name, a call or module:Class; auto stands for those that are recommended. Everything
    takes many minutes, a policy some seconds.

    Parameters
    ----------
    config
        TOML file of the service: compile only what it serves.
    """
    if called and config is not None:
        raise click.UsageError("--config: name policies or give a configuration, not both")
    hits, misses, folder = _compiled(called) if config is None else _compiled_for(config)
    text = f"compiled {misses} loops, found {hits} in the cache: {folder}"
    show({"compiled": misses, "cached": hits, "folder": str(folder)}, text, as_json)


def _compiled(called: tuple[str, ...]) -> tuple[int, int, Path]:
    from tacit.warmup import compile_all, compile_named

    if not called:
        return compile_all()
    with usage():
        return compile_named(called)


def _compiled_for(config: Path) -> tuple[int, int, Path]:
    with needing("service"):
        from tacit.service.app.warming import compile_served
        from tacit.service.config.file import load_config
    with usage():
        configuration = load_config(config)
    return compile_served(configuration)


@command()
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    show({"version": __version__}, f"tacit {__version__}", as_json)
