"""Commands that simulate, list, test and compile policies, and check the installation."""

# 1. ``demo``, ``simulate``: policies with simulated users.
# 2. ``policies``, ``check``, ``doctor``, ``warmup``, ``version``: what is installed, and whether it works.

import os
from pathlib import Path
from typing import Annotated, Any

import click

from tacit import __version__
from tacit.cli import options
from tacit.cli.options import (
    Count,
    File,
    Json,
    OptionFormat,
    Ray,
    RewardRange,
    Seed,
    Workers,
    command,
    execution_context,
    parse_range,
    print_result,
    split_names,
    usage_errors,
)
from tacit.core.reward_range import UNIT_RANGE
from tacit.errors import require_extra


@command(configured=True)
def demo(
    *,
    policy: str | None = None,
    interest: File | None = None,
    context: bool = False,
    lists: bool = False,
    duel: bool = False,
    impressions: Annotated[int, click.IntRange(100)] | None = None,
    holdout: Annotated[float, click.FloatRange(0, 0.5)] | None = None,
    feed: bool = False,
    out: Path = Path("demo"),
    port: Annotated[int, click.IntRange(0, 65535)] = 0,
    keep: bool = False,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Start the service, send it simulated searchers with shifting intent, and show what it learned.

    Parameters
    ----------
    policy
        Policy that learns, e.g. "ucb1" or "exp3s(gamma=0.05)".
    interest
        Use this date × topic table of search interest instead of simulated shifts.
    context
        Simulate different users with known features: which users see which arms, and why.
    lists
        Simulate users of lists, who do not see everything: views, clicks and relevance by position.
    duel
        Simulate searchers who see interleaved lists of two rankers: which ranker they prefer.
    impressions
        Number of impressions.  [default: 15000; 8000 with --context, 5000 with --lists, 8000 with --duel]
    holdout
        Share of searchers who are shown a random arm, to measure the lift; 0 for none.
        [default: 0.1, none with --duel]
    feed
        Write clicks to a file of events, which tacit feed sends to the service.
    out
        Folder for the log, a figure, and the final state of the page.
    port
        Port of the page; 0 selects a free one.
    keep
        Keep the page open afterwards, until Ctrl-C.
    """
    import tacit.demo as show_case

    share = show_case.HOLDOUT if holdout is None else holdout or None

    if sum((lists, duel, context, interest is not None)) > 1:
        raise click.UsageError("of --lists, --duel, --context and --interest give one")
    if duel and holdout:
        raise click.UsageError("--duel: it has no holdout; leave out --holdout")
    if feed and (lists or duel):
        raise click.UsageError("--feed: leave out --lists and --duel")
    if lists or duel:
        from tacit.demo_rankings import play_duels, play_lists

        with usage_errors():
            if lists:
                play_lists(policy, impressions or 5000, out, port, seed, share, keep=keep, as_json=as_json)
            else:
                play_duels(policy, impressions or 8000, out, port, seed, keep=keep, as_json=as_json)
        return
    with usage_errors():
        scenario = show_case.build_scenario(interest, policy, impressions, seed, share, context=context)
    show_case.play(scenario, out, port, keep=keep, as_json=as_json, feed=feed)


@command(configured=True)
def simulate(
    *,
    policy: tuple[str, ...] = ("auto", "thompson"),
    environment: str = "bernoulli-arms([0.1, 0.2, 0.3, 0.4, 0.5])",
    rewards: options.ExistingPath | None = None,
    arms: str | None = None,
    shuffled: bool = False,
    horizon: Count | None = None,
    runs: Count = 20,
    seed: Seed = 1,
    workers: Workers | None = None,
    feedback: str = "at once",
    window: int | None = None,
    delay: float | None = None,
    reward_range: RewardRange | None = None,
    cluster: Ray | None = None,
    plot: Path | None = None,
    table: Path | None = None,
    as_json: Json = False,
) -> None:
    """Compare policies in a simulated environment with known rewards.

    Parameters
    ----------
    policy
        Name, call or module:Class; may be repeated. E.g. "epsilon-greedy(epsilon=0.05)".
    environment
        E.g. "shifting-arms(arms=5, keys=10, delay=(5, 20))" or "search-interest('FILE')".
    rewards
        A table of rewards in place of an environment: a column an arm, a row a round.
    arms
        With rewards: the columns of the arms, with commas between.  [default: all]
    shuffled
        With rewards: each run has the rows in an order of its own.
    horizon
        Rounds per run.  [default: 100000, or the number of rows of rewards]
    runs
        Repetitions.
    feedback
        "clicks only": clicks are delayed, and their absence is known when a round's window ends.
    window
        With clicks only: length of the window, in rounds; later clicks do not count.
    delay
        With clicks only: mean delay of a click, in rounds; by default a tenth of the window.
    reward_range
        Range of the policies' rewards; by default the environment's.
    cluster
        Never changes results.
    plot
        Draw the regret curves into this file.
    table
        Write all checkpoints (.csv or .parquet).
    """
    from tacit.environments import RewardTable, environment_from_spec
    from tacit.plots import check_plot
    from tacit.policies import policy_from_spec
    from tacit.simulation import simulate as run
    from tacit.simulation.clicks_only import read_click_timing

    with usage_errors():
        if rewards is None and (shuffled or arms):
            raise click.UsageError("--shuffled, --arms: only with --rewards")
        limits = None if reward_range is None else parse_range(reward_range)
        world: Any = environment_from_spec(environment)
        if rewards is not None:
            known = UNIT_RANGE if limits is None else limits
            world = RewardTable(rewards, arms and split_names(arms), shuffled=shuffled, reward_range=known)
        horizon = horizon or (100_000 if rewards is None else len(world.rewards))
        count, setting = world.arm_count, world.setting
        policy_list: list[Any] = [policy_from_spec(spec, arms=count, setting=setting) for spec in policy]
        limits = world.reward_range if limits is None else limits
        if limits != UNIT_RANGE:
            policy_list = [player.with_range(limits) for player in policy_list]
        read_click_timing(feedback, window, delay, world)  # raises if they do not fit
        if plot:
            check_plot(plot)
        if table and table.suffix not in (".csv", ".parquet"):
            raise click.UsageError(f"--table: {table} must end in .csv or .parquet")
        if table and table.is_file() and not is_checkpoint_table(table):
            remedy = "give a new file; a table of rewards to play is given by --rewards"
            problem = f"--table: {table} has other columns than a table of checkpoints; {remedy}"
            raise click.UsageError(problem)
    settings: dict[str, Any] = {"feedback": feedback, "window": window, "delay": delay, "workers": workers}
    with execution_context(cluster):
        result = run(policy_list, world, horizon, runs=runs, seed=seed, **settings)
    if plot:
        result.plot(plot)
    if table:
        write_table(result.table, table)
    print_result(result.rows(), result.summary(), as_json)


def is_checkpoint_table(path: Path) -> bool:
    """True if a file has the columns of a table of checkpoints, so that another one may replace it."""
    from tacit.logs.reader import open_file

    return {"policy", "run", "round", "regret"} <= set(open_file(path).names)


def write_table(table: Any, path: Path) -> None:
    """Write an Arrow table as CSV or Parquet, by its suffix; the file is replaced only when complete.

    Missing folders are created.
    """
    import pyarrow.csv
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            pyarrow.parquet.write_table(table, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# ---- The installation: list, test and compile policies


@command()
def policies(
    called: Annotated[tuple[str, ...], OptionFormat(metavar="[NAMES]...")] = (), *, as_json: Json = False
) -> None:
    """List the policies: their source, their assumptions, and what to use if these fail.

    The name auto stands for the recommended policies.
    """
    from tacit.core.dispatch import list_parts
    from tacit.policies.base import describe_propensities, registry
    from tacit.policies.spec import is_auto, policy_class

    recommended = [policy for policy in registry.values() if policy.about.suits]
    with usage_errors():
        selected = [
            policy for name in called for policy in (recommended if is_auto(name) else [policy_class(name)])
        ] or list(registry.values())
    # A user's class may have no example.
    packaged = list_parts(registry, "policies")
    table = {
        policy.__name__: policy.about._asdict()
        | {"propensity": describe_propensities(policy.example()) if policy in packaged else ""}
        for policy in selected
    }
    text = "\n\n".join(
        f"{name}\n" + "\n".join(f"  {label:<10} {text}" for label, text in entry.items() if text)
        for name, entry in table.items()
    )
    print_result(table, text, as_json)


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
    """Test a policy: its propensities, its lanes, its randomness, and that all drivers agree.

    POLICY is a name, a call or module:Class, such as "mypolicies:ExploreThenCommit(tries=50)". The
    exit code is 1 if a test fails.

    Parameters
    ----------
    arms
        Number of arms.
    draws
        Number of choices that are compared with their propensities.
    only
        Names of tests, separated by commas; by default all.
    """
    from tacit.checking import check as checked
    from tacit.policies import policy_from_spec

    with usage_errors():
        tested_policy = policy_from_spec(policy, arms)
        test_names = None if only is None else split_names(only)
        report = checked(tested_policy, only=test_names, seed=seed, draws=draws)
    print_result(report.as_dict(), report.summary(), as_json)
    if not report.passed:
        raise SystemExit(1)


@command()
def doctor(
    *,
    config: options.Configuration | None = None,
    url: str | None = None,
    key: options.PlacementKey | None = None,
    as_json: Json = False,
) -> None:
    """Check the installation, or a running service, and suggest remedies.

    Parameters
    ----------
    config
        TOML file of the service, to check it before the service is started.
    url
        Address of a running service to check: undeclared values in contexts, windows that do not fit
        the delays of clicks, the size of the learned state in bytes.
    key
        API key of that service; better set as TACIT_KEY.
    """
    with require_extra("service"):
        from tacit.service.maintenance.doctor import check_service, checks

    results = checks(config=config) if url is None else check_service(url, key)
    labels = {True: "ok", False: "WRONG", None: "note"}
    lines = []
    for check in results:
        lines.append(f"{labels[check.ok]:<5}  {check.name}: {check.detail}")
        if check.remedy and not check.ok:
            lines.append(f"       → {check.remedy}")
    print_result([check._asdict() for check in results], "\n".join(lines), as_json)
    if any(check.ok is False for check in results):
        raise SystemExit(1)


@command()
def warmup(
    called: Annotated[tuple[str, ...], OptionFormat(metavar="[POLICY]...")] = (),
    *,
    config: options.Configuration | None = None,
    as_json: Json = False,
) -> None:
    """Compile policies ahead of time into the cache: the named ones, or all.

    POLICY is a name, a call or module:Class; auto stands for the recommended policies. Compiling all takes
    many minutes, one policy some seconds.

    Parameters
    ----------
    config
        TOML file of the service: compile only its policies.
    """
    if called and config is not None:
        raise click.UsageError("--config: name policies or give a configuration, not both")
    hits, misses, folder = _compile(called) if config is None else _compile_config(config)
    text = f"compiled {misses} loops, found {hits} in the cache: {folder}"
    print_result({"compiled": misses, "cached": hits, "folder": str(folder)}, text, as_json)


def _compile(called: tuple[str, ...]) -> tuple[int, int, Path]:
    """Compile the named policies, or all without names, into the cache on the disk.

    Return the numbers of loops found in the cache and of loops compiled, and the cache's folder.
    """
    from tacit.warmup import compile_all, compile_named

    if not called:
        return compile_all()
    with usage_errors():
        return compile_named(called)


def _compile_config(config: Path) -> tuple[int, int, Path]:
    """Compile the policies of a service's configuration file into the cache on the disk.

    Return the numbers of loops found in the cache and of loops compiled, and the cache's folder.
    """
    with require_extra("service"):
        from tacit.service.app.compile_ahead import compile_served
        from tacit.service.config.file import load_config
    with usage_errors():
        configuration = load_config(config)
    return compile_served(configuration)


@command()
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    print_result({"version": __version__}, f"tacit {__version__}", as_json)
