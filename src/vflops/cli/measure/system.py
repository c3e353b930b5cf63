"""``vflops system``: describes this machine in nine layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(system)


def system(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    mlperf: Annotated[
        Path | None,
        typer.Option(
            help="Write an MLPerf system description to this file instead of showing tables."
        ),
    ] = None,
    submitter: Annotated[str, typer.Option(help="For MLPerf: name of the submitter.")] = "",
    division: Annotated[str, typer.Option(help="For MLPerf: open or closed.")] = "open",
    name: Annotated[str, typer.Option(help="For MLPerf: name of the system.")] = "",
) -> None:
    """Describe this system in nine layers. All facts are read from the machine."""
    from vflops.cli.terminal.console import console, next_step, shell_path, working
    from vflops.errors import unknown_name
    from vflops.machine.system.gather import gather
    from vflops.machine.system.mlperf_system import DIVISIONS, system_desc
    from vflops.machine.system.system_table import tables
    from vflops.record.files import atomic

    if division not in DIVISIONS:
        raise unknown_name("division", division, DIVISIONS)
    with working("reading the system"):
        record = gather(Path.cwd())
    if json:
        typer.echo(record.to_json(), nl=False)
    elif mlperf is None:
        for table in tables(record):
            console().print(table)
    if mlperf is not None:
        description = system_desc(record, submitter=submitter, division=division, system_name=name)
        atomic.write_json(mlperf, description)
        typer.echo(f"written: {shell_path(mlperf)}", err=True)
        for option, value in (("--submitter", submitter), ("--name", name)):
            if not value:
                typer.echo(f"{option} is not given, so its field is empty", err=True)
    if not json:
        next_step("vflops micro", "measure the ceilings of this system")
