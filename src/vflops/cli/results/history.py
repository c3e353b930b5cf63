"""``vflops history [DIR]``: the figures of the runs in a folder over time."""

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
    folder: Annotated[Path, typer.Argument(help="Folder with run folders.")] = Path("runs"),
    since: Annotated[
        str | None, typer.Option(help="Only runs from this day on, e.g. 2026-01-31.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Smallest change that counts, in %.", min=0.0, max=100.0)
    ] = 2.0,
    page: Annotated[
        Path | None, typer.Option(help="HTML page to write; by default history.html in the folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and write no page.")] = False,
) -> None:
    """Show how figures changed over time. Exit code 1 if one got worse."""
    from vflops.cli.terminal import console
    from vflops.errors import FolderError, UsageError
    from vflops.studies.history.past_runs import parse_time
    from vflops.studies.history.run_history import history as read_history

    try:
        since_time = parse_time(since) if since else None
    except FolderError as error:
        raise UsageError(f"--since {since}: {error.message}", hint=error.hint) from error
    with console.working("reading"):
        record = read_history(folder, since=since_time, least_change=threshold / 100)
    if json:
        typer.echo(record.to_json(), nl=False)
    else:
        _show(record, folder, console.console())
        path = page or folder / "history.html"
        written = bool(record.groups) and _write(record, folder, path)
    _raise_if_worse(record, folder)
    if json:
        return
    if written:
        console.open_page(path, "the charts")
    elif not record.groups and record.left_out:
        unfinished = console.shell_path(folder / record.left_out[-1].folder)
        console.next_step(
            f"vflops report {unfinished}", "see why no run finished: there is no page yet"
        )


def _write(record: HistoryRecord, folder: Path, path: Path) -> bool:
    """Write the page if possible, and return whether it was written.

    The exit code does not depend on it, so that a read-only folder can be checked.
    """
    from vflops.cli.terminal import console
    from vflops.errors import VflopsError
    from vflops.studies.history.history_page import write_page

    try:
        with console.working("drawing"):
            write_page(record, folder.resolve().name, path)
    except VflopsError as error:
        console.say(f"the page cannot be written: {error.message}")
        return False
    typer.echo(f"\npage  {console.shell_path(path)}")
    return True


def _show(record: HistoryRecord, folder: Path, out: Console) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell, shell_path
    from vflops.studies.history import history_text

    for group in record.groups:
        out.print(f"[bold]{cell(history_text.group_title(group))}[/]  {history_text.span(group)}")
        out.print(cell(group.machine), style="dim")
        if distinction := history_text.apart(group):
            out.print(cell(distinction), style="dim")
        table = Table(box=None, pad_edge=False)
        for number, name in enumerate(history_text.COLUMNS):
            table.add_column(
                name, justify="right" if number in (2, 3) else "left", no_wrap=number < 2
            )
        for workload, courses in history_text.by_workload(group):
            table.add_row(cell(workload), style="bold")
            for course in courses:
                name, *cells = map(cell, history_text.course_row(course, record.least_runs))
                changed = "red" if course.regression else "green" if course.changes else ""
                table.add_row(f"  {name}", *cells, style=changed)
        out.print(table)
        if broken_rules := history_text.breaking(group, lambda name: shell_path(folder / name)):
            out.print(f"[yellow]not valid:[/] {cell(broken_rules)}", soft_wrap=True)
        out.print()
    for run in record.left_out:
        out.print(f"[yellow]left out:[/] {cell(f'{run.folder}: {run.reason}')}")
    short = history_text.short(record)
    if short:
        out.print(short)
    out.print(history_text.method(record), style="dim")


def _raise_if_worse(record: HistoryRecord, folder: Path) -> None:
    """Raise if a figure got worse, or runs no longer finish."""
    from vflops.cli.terminal import console
    from vflops.errors import CheckFailed, Hint
    from vflops.studies.history import history_text

    worse = record.regressions
    if record.stopped:
        first = record.stopped[0]
        run = console.shell_path(folder / first.unfinished[-1].folder)
        raise CheckFailed(
            f"not complete: {history_text.stopped(first)}",
            hint=f"see why: vflops report {run}; remove a run that was stopped on purpose",
        )
    if worse:
        others = len(worse) - 1
        more = f"; {others} more figure{'s' * (others > 1)} got worse" if others else ""
        group, _, change = worse[0]
        paths = {run.run: console.shell_path(folder / run.folder) for run in group.runs}
        raise CheckFailed(
            f"regression: {history_text.regression(*worse[0])}{more}",
            hint=Hint(
                "see what else differs", f"vflops compare {paths[change.after]} {paths[change.run]}"
            ),
        )
