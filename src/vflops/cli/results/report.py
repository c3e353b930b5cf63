"""``vflops report RUN``: the page of a run."""

from __future__ import annotations

import typer

from vflops.cli import options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(run: options.Run = None) -> None:
    """Write report.html of a run, from its folder alone."""
    from vflops.cli.terminal import console
    from vflops.publish.report.report_page import write_report

    contents = console.read_run(run)
    with console.working("drawing"):
        write_report(contents)
    typer.echo(console.shown(contents.folder.report_file))
    console.open_report(contents.folder)
