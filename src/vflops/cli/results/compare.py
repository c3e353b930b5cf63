"""``vflops compare A B …``: compares runs, and says which differences are significant."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from vflops.studies.compare.comparison import Comparison, Differing

_MAX_FIGURES, _MIN_FIGURES = 24, 4
"""How many figures are shown in all, and at least for each side, without ``--all``."""
_MAX_ROWS = 10
"""How many warnings, and how many differences of a kind, are shown without ``--all``."""
_STYLES = {"better": "green", "worse": "red", "not significant": "", "absent": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders; with several repeats per side: A1 A2 A3 vs B1 B2 B3."),
    ],
    page: Annotated[
        Path | None, typer.Option(help="HTML page to write, with the curves of the trainings.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Print all lines of long tables.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and write no page.")] = False,
) -> None:
    """Compare runs with confidence intervals. Figures, systems, settings and versions."""
    from vflops.cli.terminal import console
    from vflops.studies.compare.comparing import compare as compare_sides
    from vflops.studies.compare.comparing import read_sides, skip_other_files

    kept, notes = skip_other_files(runs)
    for note in notes:
        console.say(note)
    run_sides = read_sides(kept)
    comparison = compare_sides(run_sides)
    if json:
        typer.echo(comparison.to_json(), nl=False)
        return
    _show(comparison, console.console(), every_line=all_)
    if page is None:
        console.next_step(
            f"vflops compare {shlex.join(kept)} --page compare.html", "draw the curves"
        )
        return
    from vflops.studies.compare.compare_page import write_page

    with console.working("drawing"):
        write_page(comparison, run_sides, page)
    typer.echo(f"\npage  {console.shell_path(page)}")
    console.open_page(page, "the comparison with its curves")


def _show(comparison: Comparison, out: Console, *, every_line: bool) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell
    from vflops.studies.compare import compare_text

    for side in comparison.sides:
        failed = "  [red]some rules are not met[/]" if side.failed else ""
        out.print(f"[bold]{side.name}[/]  {cell(compare_text.runs(side))}{failed}")
    warnings = comparison.warnings if every_line else comparison.warnings[:_MAX_ROWS]
    for warning in warnings:
        out.print(f"[yellow]warning:[/] {cell(warning)}")
    _left_out(len(comparison.warnings) - len(warnings), out)
    rows_per_side = max(_MAX_FIGURES // (len(comparison.sides) - 1), _MIN_FIGURES)
    for side in comparison.sides[1:]:
        of_side = [figure for figure in comparison.figures if figure.side == side.name]
        shown = compare_text.most_important(of_side, len(of_side) if every_line else rows_per_side)
        table = Table(box=None, pad_edge=False)
        for number, name in enumerate(compare_text.figure_columns(side.name)):
            is_number = 0 < number < 5
            no_wrap = number not in (1, 2, 4)  # values may be wrapped before their unit
            table.add_column(name, justify="right" if is_number else "left", no_wrap=no_wrap)
        for workload, figures in compare_text.by_workload(shown, side.name):
            single_side = compare_text.alone(figures)
            table.add_row(
                cell(workload), *[""] * 4, single_side, style="dim" if single_side else "bold"
            )
            for figure in () if single_side else figures:
                name, *cells = map(cell, compare_text.figure_row(figure))
                table.add_row(f"  {name}", *cells, style=_STYLES.get(figure.verdict, ""))
        out.print(f"\n[bold]{side.name} compared with A[/]")
        out.print(table)
        _left_out(len(of_side) - len(shown), out)
        for reason in compare_text.reasons(comparison.figures, side.name):
            out.print(cell(reason), style="dim")
        out.print(cell(compare_text.sentence(comparison, side)), style="bold")
    for title, rows in (
        ("systems", comparison.system),
        ("settings", comparison.settings),
        ("versions", comparison.versions),
    ):
        _differences(title, rows, comparison, out, every_line=every_line)
    if comparison.equal_layers:
        out.print(
            f"\nequal layers of the system: {', '.join(comparison.equal_layers)}", style="dim"
        )
    for note in comparison.notes:
        out.print(cell(note), style="dim")


def _differences(
    title: str,
    rows: tuple[Differing, ...],
    comparison: Comparison,
    out: Console,
    *,
    every_line: bool,
) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell
    from vflops.studies.compare import compare_text

    if not rows:
        out.print(f"\nthe {title} do not differ")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("", "", *(side.name for side in comparison.sides)):
        table.add_column(name, overflow="fold")
    shown = rows if every_line else rows[:_MAX_ROWS]
    for row in shown:
        table.add_row(*map(cell, compare_text.differing_row(row)))
    out.print(f"\n[bold]differences between the {title}[/]")
    out.print(table)
    _left_out(len(rows) - len(shown), out)


def _left_out(number: int, out: Console) -> None:
    if number:
        out.print(f"… and {number} more: --all", style="dim")
