"""``tacit serve``, and the keys of its callers."""

from __future__ import annotations

from pathlib import Path

import click

from tacit.cli.options import json_option, show, usage
from tacit.cli.store import store_place
from tacit.errors import MissingExtra


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with placements; by default one placement named default.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
@click.option("--store", help="The log: an SQLite file, or postgresql://user@host/database.")
def serve(config: Path | None, host: str | None, port: int | None, store: str | None) -> None:
    """Run the decision service, until Ctrl-C or SIGTERM."""
    try:
        from tacit.service.config import load_config
        from tacit.service.server import serve as run
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error

    overrides = {"server.host": host, "server.port": port, **store_place(store)}
    with usage():
        configuration = load_config(config, overrides)
    run(configuration, reread=lambda: load_config(config, overrides))


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
@json_option
def key(name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Make an API key for the decision service; only its hash goes into the configuration."""
    try:
        from tacit.service.keys import new_key
    except ImportError as error:
        raise MissingExtra(error.name or "the service", "service") from error
    made, sha256 = new_key()
    quoted = ", ".join(f'"{scope}"' for scope in scopes)
    text = (
        f"{made}\n\nThis is the key; it is shown once. Add to the configuration:\n\n"
        f'[keys.{name}]\nsha256 = "{sha256}"\nscopes = [{quoted}]'
    )
    show({"name": name, "key": made, "sha256": sha256, "scopes": scopes}, text, as_json)
