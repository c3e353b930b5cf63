"""The command ``vflops``: thin commands that call the other packages and do not import torch."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from vflops import interruption
from vflops.cli.terminal import console
from vflops.cli.terminal.safe_stream import safe_stream
from vflops.errors import DiskFull, Interrupted, RunFailed, VflopsError

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # saves 30 ms; no plugin is used

COMMANDS: dict[str, tuple[str, ...]] = {
    "measure.system": ("system",),
    "measure.micro": ("micro",),
    "measure.count": ("count",),
    "measure.roofline": ("roofline",),
    "train.run": ("run", "resume"),
    "train.plan": ("plan",),
    "train.data": ("data",),
    "train.replay": ("replay",),
    "train.scale": ("scale",),
    "train.predict": ("predict",),
    "train.listing": ("list",),
    "cluster.preflight": ("preflight",),
    "cluster.join": ("join",),
    "cluster.control": ("attach", "cancel"),
    "results.score": ("score",),
    "results.check": ("check",),
    "results.report": ("report",),
    "results.compare": ("compare",),
    "results.history": ("history",),
    "results.power": ("power",),
    "results.accept": ("accept",),
    "publish.evidence": ("verify", "sign", "archive", "extract", "reproduce"),
    "publish.audit": ("audit",),
    "publish.export": ("export",),
    "publish.challenge": ("challenge",),
    "publish.ranking": ("ranking",),
}
"""The modules of this package and the commands of each, in the order of ``--help``.

The folder of a module is the group that ``--help`` shows its commands in.
"""


def groups() -> dict[str, list[str]]:
    """Return the names of the commands by group."""
    names: dict[str, list[str]] = {}
    for module, commands in COMMANDS.items():
        names.setdefault(module.partition(".")[0], []).extend(commands)
    return names


class GroupedCommands(TyperGroup):
    """A command group whose help has one section per group of commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; if a signal ends it, say so, which click does not."""
        try:
            with interruption.handled():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(
                interruption.cause(error), hint="run the same command again"
            ) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the summary of every command."""
        width = max(map(len, self.commands))
        for group, names in groups().items():
            rows = [
                (
                    name.ljust(width),
                    self.commands[name].get_short_help_str(formatter.width - width - 6),
                )
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(group.capitalize()):
                    formatter.write_dl(rows)


def application(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line; if ``arguments`` name a command, only its module is imported."""
    app = typer.Typer(
        name="vflops",
        cls=GroupedCommands,
        help="Measure how fast a computer really trains AI, in valid FLOPS: speed times quality.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_options)
    modules = [
        module for module, commands in COMMANDS.items() if arguments and arguments[0] in commands
    ]
    for module in modules or COMMANDS:
        importlib.import_module(f"vflops.cli.{module}").register(app)
    return app


def _options(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        import vflops

        typer.echo(f"vflops {vflops.__version__}")
        raise typer.Exit


def _ensure_home() -> None:
    """Name a home if the user has none, as in many containers: libraries fail without a name."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"


def main() -> None:
    """Run the command line; a user's mistake gives a message and an exit code, not a traceback."""
    gc.set_threshold(100_000)  # in a short command, collecting garbage costs more than it frees
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):  # replace characters that the terminal cannot show
            stream.reconfigure(errors="replace")
            setattr(sys, name, safe_stream(stream))
    _ensure_home()
    try:
        application(sys.argv[1:])()
    except VflopsError as error:
        console.show_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `vflops list | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            _show_bug()
        where = f" {error.filename}" if error.filename else ""
        full = DiskFull(
            f"cannot write{where}: {error.strerror}",
            hint="free some space there, or choose a folder on another disk",
        )
        console.show_error(full)
        sys.exit(full.exit_code)
    except Exception:
        _show_bug()


def _show_bug() -> NoReturn:
    """Show the traceback, and do not exit like a failed check."""
    traceback.print_exc()
    sys.exit(RunFailed.exit_code)
