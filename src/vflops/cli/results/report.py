"""``vflops report RUN``: writes the report of a run."""

from __future__ import annotations

import typer

from vflops.cli import options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(run: options.Run = None) -> None:
    """Write the report of a run, report.html, from its folder."""
    from vflops.cli.terminal import console
    from vflops.publish.report.report_page import write_report

    contents = console.read_run(run)
    with console.working("drawing"):
        write_report(contents)
    typer.echo(console.shell_path(contents.folder.report_file))
    console.open_report(contents.folder)
