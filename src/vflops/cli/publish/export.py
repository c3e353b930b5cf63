"""``vflops export FORMAT RUN…``: writes runs in the formats of other tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.errors import UsageError, unknown_name
from vflops.text import printable

if TYPE_CHECKING:
    from vflops.record.readout.contents import Contents

FORMATS = ("csv", "json", "openmetrics", "mllog", "mlflow")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    format: Annotated[str, typer.Argument(help="csv, json, openmetrics, mllog or mlflow.")],
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders; the newest under runs/ by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default stdout. For mllog a new folder, by default mlperf."
        ),
    ] = None,
    series: Annotated[
        bool,
        typer.Option("--series", help="For csv: one row per reading instead of one per result."),
    ] = False,
    to: Annotated[
        str | None, typer.Option(help="For mlflow: address of the server, or a folder.")
    ] = None,
    submitter: Annotated[str, typer.Option(help="For mllog: name of the submitter.")] = "unnamed",
    system: Annotated[str | None, typer.Option(help="For mllog: name of the system.")] = None,
    division: Annotated[str, typer.Option(help="For mllog: open or closed.")] = "open",
    status: Annotated[
        str, typer.Option(help="For mllog: onprem, cloud, preview or research.")
    ] = "research",
) -> None:
    """Export runs to other tools. CSV, JSON, OpenMetrics, MLPerf, MLflow."""
    from vflops.cli.terminal.console import read_run

    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if series and format != "csv":
        raise UsageError(f"--series is for csv, but the format is {format}", hint="omit it")
    if (to is None) == (format == "mlflow"):
        raise UsageError(
            "--to is required for mlflow, and applies only to mlflow",
            hint="vflops export mlflow RUN --to http://server:5000, or a folder",
        )
    contents = [read_run(run) for run in runs] if runs else [read_run(None)]
    _require_distinct(contents)
    if format == "mlflow":
        _to_mlflow(contents, str(to))
    elif format == "mllog":
        _write_submission(contents, out or Path("mlperf"), submitter, system, division, status)
    else:
        _write_text(_writer(format, series=series)(contents), out, format)


def _require_distinct(contents: Sequence[Contents]) -> None:
    ids = [run.folder.record.id for run in contents]
    repeated = sorted({id for id in ids if ids.count(id) > 1})
    if repeated:
        raise UsageError(f"run {repeated[0]} is given twice", hint="give each run once")


def _writer(format: str, *, series: bool) -> Callable[[Sequence[Contents]], str]:
    if format == "json":
        from vflops.publish.export.json_document import runs_json

        return runs_json
    if format == "openmetrics":
        from vflops.publish.export.run_metrics import runs_openmetrics

        return runs_openmetrics
    from vflops.publish.export.csv_table import runs_csv, series_csv

    return series_csv if series else runs_csv


_NEXT_STEPS = {
    "csv": ("column -s, -t < {} | less -S", "show it as a table"),
    "json": ("python -m json.tool {}", "show it indented"),
    "openmetrics": ("promtool check metrics < {}", "check it with Prometheus' tool, if installed"),
}
"""The next step for a file of each format."""


def _write_text(text: str, out: Path | None, format: str) -> None:
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.record.files import atomic

    if out is None:
        terminal = sys.stdout.isatty()
        typer.echo(printable(text, keep="\n\t") if terminal else text, nl=False)
        return
    atomic.write_text(out, text)
    typer.echo(f"written: {shell_path(out)}", err=True)
    command, why = _NEXT_STEPS[format]
    next_step(command.format(shell_path(out)), why)


def _write_submission(
    contents: Sequence[Contents],
    folder: Path,
    submitter: str,
    system: str | None,
    division: str,
    status: str,
) -> None:
    from vflops.cli.terminal.console import next_step, say, shell_path
    from vflops.publish.export.mlperf import RULE_SET
    from vflops.publish.export.mlperf.submission import write_submission

    written = write_submission(
        contents, folder, org=submitter, system_name=system, division=division, status=status
    )
    print(f"written: {shell_path(written.folder)}, {len(written.results)} results")
    for note in written.notes:
        say(f"note    {note}", indent=8)
    if submitter == "unnamed":
        say("note    --submitter is not given, so the submitter is 'unnamed'")
    check = f"python -m mlperf_logging.package_checker {shell_path(folder)} training {RULE_SET}"
    next_step(check, "check it with MLCommons' tool: pip install mlperf-logging")


def _to_mlflow(contents: Sequence[Contents], to: str) -> None:
    from vflops.cli.terminal.console import next_step, working
    from vflops.publish.export.to_mlflow import log_run

    for run in contents:
        name = run.folder.record.id
        with working(f"writing {name} to MLflow"):
            mlflow_run = log_run(run, to)
        print(f"{printable(name)} is run {mlflow_run} of MLflow at {to}")
    if to.startswith(("http://", "https://")):
        next_step(f"open {to}", "show the runs")
    else:
        next_step(f"mlflow ui --backend-store-uri {to}", "show the runs in a browser")
