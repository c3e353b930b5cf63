"""``vflops history [DIR]``: the runs of a folder over time; exit code 1 on a regression."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from vflops.studies.history.history_data import HistoryRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(history)


def history(
    folder: Annotated[Path, typer.Argument(help="Folder that holds run folders.")] = Path("runs"),
    since: Annotated[
        str | None, typer.Option(help="Only runs from this day on, e.g. 2026-01-31.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="The smallest change that counts, in %.", min=0.0, max=100.0)
    ] = 2.0,
    page: Annotated[
        Path | None, typer.Option(help="Where the page goes; history.html in the folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and write no page.")] = False,
) -> None:
    """Show how figures changed over time. Exit code 1 where one is worse than it was."""
    from vflops.cli.terminal import console
    from vflops.errors import FolderError, UsageError
    from vflops.studies.history.past_runs import moment
    from vflops.studies.history.run_history import history as told

    try:
        from_ = moment(since) if since else None
    except FolderError as error:
        raise UsageError(f"--since {since}: {error.message}", hint=error.hint) from error
    with console.working("reading"):
        found = told(folder, since=from_, least_change=threshold / 100)
    if json:
        typer.echo(found.to_json(), nl=False)
    else:
        _show(found, folder, console.console())
        place = page or folder / "history.html"
        written = bool(found.groups) and _write(found, folder, place)
    _refuse(found, folder)
    if json:
        return
    if written:
        console.next_step(f"open {place.resolve().as_uri()}", "the charts, offline")
    elif not found.groups and found.left_out:
        why = console.shown(folder / found.left_out[-1].folder)
        console.next_step(f"vflops report {why}", "no run has come to its end, so there is no page")


def _write(found: HistoryRecord, folder: Path, place: Path) -> bool:
    """Write the page where one may: a folder that is read-only still has its exit code."""
    from vflops.cli.terminal import console
    from vflops.errors import VflopsError
    from vflops.studies.history.history_page import write_page

    try:
        with console.working("drawing"):
            write_page(found, folder.resolve().name, place)
    except VflopsError as error:
        console.say(f"no page: {error.message}")
        return False
    typer.echo(f"\npage  {console.shown(place)}")
    return True


def _show(found: HistoryRecord, folder: Path, out: Console) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell, shown
    from vflops.studies.history import history_text

    for group in found.groups:
        out.print(f"[bold]{cell(history_text.group_title(group))}[/]  {history_text.span(group)}")
        out.print(cell(group.machine), style="dim")
        if apart := history_text.apart(group):
            out.print(cell(apart), style="dim")
        table = Table(box=None, pad_edge=False)
        for number, name in enumerate(history_text.COLUMNS):
            table.add_column(
                name, justify="right" if number in (2, 3) else "left", no_wrap=number < 2
            )
        for workload, courses in history_text.by_workload(group):
            table.add_row(cell(workload), style="bold")
            for course in courses:
                name, *cells = map(cell, history_text.course_row(course, found.least_runs))
                changed = "red" if course.regression else "green" if course.changes else ""
                table.add_row(f"  {name}", *cells, style=changed)
        out.print(table)
        if broken := history_text.breaking(group, lambda name: shown(folder / name)):
            out.print(f"[yellow]not valid:[/] {cell(broken)}", soft_wrap=True)
        out.print()
    for each in found.left_out:
        out.print(f"[yellow]left out:[/] {cell(f'{each.folder}: {each.reason}')}")
    short = history_text.short(found)
    if short:
        out.print(short)
    out.print(history_text.method(found), style="dim")


def _refuse(found: HistoryRecord, folder: Path) -> None:
    """Exit code 1 where something got worse, or no longer comes to its end."""
    from vflops.cli.terminal import console
    from vflops.errors import CheckFailed
    from vflops.studies.history import history_text

    worse = found.regressions
    if found.stopped:
        first = found.stopped[0]
        place = console.shown(folder / first.unfinished[-1].folder)
        raise CheckFailed(
            f"not complete: {history_text.stopped(first)}",
            hint=f"why: vflops report {place}; a run that was ended on purpose: remove it",
        )
    if worse:
        more = f"; {len(worse) - 1} more figures got worse" if len(worse) > 1 else ""
        group, _, change = worse[0]
        places = {run.run: console.shown(folder / run.folder) for run in group.runs}
        raise CheckFailed(
            f"regression: {history_text.regression(*worse[0])}{more}",
            hint=f"what else differs: vflops compare {places[change.after]} {places[change.run]}",
        )
