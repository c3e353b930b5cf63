"""``vflops report RUN``: the page of a run."""

from __future__ import annotations

import typer

from vflops.cli import options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(run: options.Run = None) -> None:
    """Write report.html of a run, from its folder alone."""
    from vflops.cli import console
    from vflops.report.report import write_report

    folder = console.open_run(run)
    console.warn_if_incomplete(folder)
    write_report(folder)
    typer.echo(console.shown(folder.report_file))
    console.next_step("open it in a browser", "it needs no network")
