"""The command line tool ``tacit``; each module has a family of commands."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import click

from tacit import __version__
from tacit.cli.evaluate import duel, evaluate, examine
from tacit.cli.feed import feed
from tacit.cli.fit import fit, schema, ubi
from tacit.cli.options import ExplainedGroup
from tacit.cli.placement import items, lift, placement
from tacit.cli.policies import check, demo, doctor, policies, simulate, version, warmup
from tacit.cli.service import key, log, serve
from tacit.core.text import escape_controls
from tacit.errors import AssumptionWarning, TacitError, TooManyRejected
from tacit.lazy_imports import IMPORT_FOLDERS

EPILOG = """\b
Every option can also come from the environment (TACIT_SIMULATE_HORIZON=1000) or from a TOML
file (--config FILE, a table per command: [simulate] horizon = 1000).
Exit codes: 0 fine, 1 the work failed, 2 wrong usage, 3 too many rows or events rejected, 130 interrupted."""


SETTINGS = {"auto_envvar_prefix": "TACIT", "max_content_width": 100}


@click.group(cls=ExplainedGroup, epilog=EPILOG, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="tacit")
def cli() -> None:
    """Learn what to show from clicks, although clicks lie.

    \b
    Start with:
      tacit demo                             the whole thing on simulated searchers
      tacit simulate --policy thompson       regret curves
      tacit evaluate LOG --policy thompson   what would a policy have got?
      tacit check mine:Policy                is a policy of one's own sound?
      tacit fit LOG -o learner.tacit         learn a log, for a warm start
      tacit serve                            decisions over HTTP
      tacit feed EVENTS --map feed.toml      clicks from files, sent to the service
    """


for command in (
    demo, simulate, check, evaluate, examine, duel, fit, schema, serve, key, feed, lift, placement, items,
    log, ubi, doctor, policies, warmup, version,
):  # fmt: skip
    cli.add_command(command)


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Print an AssumptionWarning to standard error as one line; print any other warning as Python does."""
    if issubclass(category, AssumptionWarning):
        click.echo(escape_controls(f"warning: {message}"), err=True)
    else:
        click.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def main(
    arguments: list[str] | None = None, command: click.Command = cli, name: str = "tacit", **settings: Any
) -> None:
    """Run a command, by default ``tacit`` itself, and exit the process with its code; never return.

    Errors of tacit and of usage are printed to standard error, without a traceback. Warnings are
    printed as one line each. Classes of the user, module:Class, may be in the current folder.
    """
    warnings.showwarning = print_warning
    IMPORT_FOLDERS[:] = [os.getcwd()]
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False, **settings)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = 130
    except TacitError as error:
        click.echo(escape_controls(f"error: {error}"), err=True)
        code = 3 if isinstance(error, TooManyRejected) else 1
    except BrokenPipeError:
        # The reader of the pipe has closed it, as head does; suppress further output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
