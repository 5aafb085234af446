"""``tacit serve``, and the keys of its callers."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tacit.cli.options import json_option, ray_option_as, service_logs, show, store_place, usage
from tacit.errors import ConfigError, MissingExtra, TacitError

if TYPE_CHECKING:
    from tacit.service.config.schema import Config

logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with placements; by default one placement named default.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
@click.option("--store", help="The log: an SQLite file, or postgresql://user@host/database.")
@ray_option_as("cluster", "Needs --store postgresql://…")
@click.option(
    "--shards",
    type=click.IntRange(1, 1024),
    help="With --ray: deal the keys out to so many; as many as the log has, or one per core.",
)
@click.option(
    "--ingresses",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="With --ray: so many processes of this machine answer at the address.",
)
@click.option(
    "--merge-seconds",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0, 86_400.0, min_open=True),
    help="With --ray: how often shards share what is learned for all keys.",
)
@click.option(
    "--clock-is-right",
    is_flag=True,
    help="Start though the clock is far ahead of the last row and rows are dropped by age.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Take rows that are not what was written out of the log for good, and go on without them.",
)
def serve(
    config: Path | None,
    host: str | None,
    port: int | None,
    store: str | None,
    cluster: str | None,
    shards: int | None,
    ingresses: int,
    merge_seconds: float,
    *,
    clock_is_right: bool,
    skip_damaged: bool,
) -> None:
    """Run the decision service, until Ctrl-C or SIGTERM."""
    try:
        from tacit.service.app.logs import log_the_uncaught, set_up
        from tacit.service.app.server import serve as run
        from tacit.service.config.file import load_config
        from tacit.service.errors import AddressUnavailable
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error

    if shards is not None and cluster is None:
        raise click.UsageError("--shards: only with --ray")
    if ingresses > 1 and cluster is None:
        raise click.UsageError("--ingresses: only with --ray")
    overrides = {"server.host": host, "server.port": port, **store_place(store)}
    if clock_is_right:
        overrides["store.clock_is_right"] = True
    with usage():
        configuration = load_config(config, overrides)

    def reread() -> Config:
        return load_config(config, overrides)

    form = configuration.server.log
    set_up(form)
    log_the_uncaught()
    try:
        if skip_damaged:
            _leave_out_damaged(config, store)
        if cluster is None:
            run(configuration, reread=reread)
        else:
            from tacit.cluster.serving import serve as run_on_ray

            run_on_ray(
                configuration,
                cluster,
                shards,
                merge_seconds=merge_seconds,
                ingresses=ingresses,
                reread=reread,
            )
    except TacitError as error:
        # Whoever starts it again must not do so for a wrong configuration: it would end the same.
        wrong = isinstance(error, ConfigError) and not isinstance(error, AddressUnavailable)
        end(error, wrong, form)


def _leave_out_damaged(config: Path | None, store: str | None) -> None:
    from tacit.service.log.store import rows_text

    for name, _, opened in service_logs(config, store):
        if damaged := opened.damaged():
            opened.leave_out(damaged)
            shard, lost = f" {name}:" * bool(name), rows_text(damaged)
            logger.warning("store:%s left out for good, as they were damaged: %s", shard, lost)


def end(error: TacitError, wrong: bool, form: str) -> NoReturn:
    """End for an error: of the configuration, or another one."""
    if form == "json":
        # Whoever reads the log must be able to read its end.
        logging.getLogger("tacit").critical("%s", error)
        sys.exit(2 if wrong else 1)
    if wrong:
        raise click.UsageError(str(error)) from error
    raise error


@click.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    default=("decide", "feedback"),
    show_default=True,
    type=click.Choice(["decide", "feedback", "read", "admin"]),
    help="What it may be used for; can be given more than once.",
)
@click.option(
    "--placement",
    "placements",
    multiple=True,
    help="A placement that it reaches, or a pattern of names such as 'shop-*'; by default all; can "
    "be given more than once.",
)
@json_option
def key(name: str, scopes: tuple[str, ...], placements: tuple[str, ...], as_json: bool) -> None:
    """Make an API key for the decision service; only its hash goes into the configuration."""
    try:
        from tacit.service.config.keys import KeyConfig, new_key
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error
    made, sha256 = new_key()
    with usage():
        KeyConfig(sha256, [], [*placements] or None).check()
    text = (
        f"{made}\n\nThis is the key; it is shown once. Add to the configuration:\n\n"
        f'[keys.{name}]\nsha256 = "{sha256}"\nscopes = {json.dumps(scopes)}'
    )
    told = {"name": name, "key": made, "sha256": sha256, "scopes": scopes}
    if placements:
        text += f"\nplacements = {json.dumps(placements)}"
        told["placements"] = placements
    show(told, text, as_json)
