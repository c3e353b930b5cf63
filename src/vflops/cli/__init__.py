"""The command ``vflops``: thin commands over the packages; no logic here, no torch at import."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper

import typer

from vflops.cli.terminal import console
from vflops.errors import Interrupted, RunFailed, VflopsError

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # 30 ms that no plugin here needs

COMMANDS: dict[str, tuple[str, ...]] = {
    "train.run": ("run", "resume"),
    "train.plan": ("plan",),
    "train.scale": ("scale",),
    "train.predict": ("predict",),
    "train.replay": ("replay",),
    "cluster.control": ("attach", "cancel"),
    "cluster.preflight": ("preflight",),
    "measure.micro": ("micro",),
    "measure.count": ("count",),
    "measure.roofline": ("roofline",),
    "measure.system": ("system",),
    "results.score": ("score",),
    "results.check": ("check",),
    "results.report": ("report",),
    "publish.evidence": ("verify", "sign", "archive", "extract", "reproduce"),
    "publish.export": ("export",),
    "results.power": ("power",),
    "results.compare": ("compare",),
    "results.history": ("history",),
    "publish.ranking": ("ranking",),
    "train.data": ("data",),
    "train.listing": ("list",),
}
"""The modules of this package and the commands of each, in the order of the work."""


def application(words: Sequence[str]) -> typer.Typer:
    """The commands; of a command that is named only its own module, because each costs time."""
    app = typer.Typer(
        name="vflops",
        help="Measure how fast a computer really trains AI, in valid FLOPS: speed times quality.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_options)
    named = [module for module, commands in COMMANDS.items() if words and words[0] in commands]
    for module in named or COMMANDS:
        importlib.import_module(f"vflops.cli.{module}").register(app)
    return app


def _options(
    version: bool = typer.Option(False, "--version", help="Show the version and stop."),
) -> None:
    if version:
        import vflops

        typer.echo(f"vflops {vflops.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's mistake is a line and an exit code, never a traceback."""
    gc.set_threshold(100_000)  # a short command makes less garbage than looking for it costs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that lacks a sign shows another
            stream.reconfigure(errors="replace")
    try:
        application(sys.argv[1:])()
    except VflopsError as error:
        console.show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        console.show_error(Interrupted("interrupted before anything was begun"))
        sys.exit(Interrupted.exit_code)
    except BrokenPipeError:  # `vflops list | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception:  # a fault of ours: all of it, and never the exit code of a failed check
        traceback.print_exc()
        sys.exit(RunFailed.exit_code)
