"""``vflops compare A B …``: compares runs, and says which differences are significant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from vflops.studies.compare.comparison import Comparison, Differing

_STYLES = {"better": "green", "worse": "red", "not significant": "", "absent": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders; with several repeats per side: A1 A2 A3 vs B1 B2 B3."),
    ],
    page: Annotated[Path, typer.Option(help="HTML page to write.")] = Path("compare.html"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON and write no page.")] = False,
) -> None:
    """Compare runs with confidence intervals. Figures, systems, settings and versions."""
    from vflops.cli.terminal import console
    from vflops.studies.compare.comparing import compare as compare_sides
    from vflops.studies.compare.comparing import read_sides

    run_sides = read_sides(runs)
    comparison = compare_sides(run_sides)
    if json:
        typer.echo(comparison.to_json(), nl=False)
        return
    from vflops.studies.compare.compare_page import write_page

    _show(comparison, console.console())
    with console.working("drawing"):
        write_page(comparison, run_sides, page)
    typer.echo(f"\npage  {console.shell_path(page)}")
    console.next_step(f"open {page.resolve().as_uri()}", "the comparison with curves")


def _show(comparison: Comparison, out: Console) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell
    from vflops.studies.compare import compare_text

    for side in comparison.sides:
        failed = "  [red]some rules are not met[/]" if side.failed else ""
        out.print(f"[bold]{side.name}[/]  {cell(compare_text.runs(side))}{failed}")
    for warning in comparison.warnings:
        out.print(f"[yellow]warning:[/] {cell(warning)}")
    for side in comparison.sides[1:]:
        table = Table(box=None, pad_edge=False)
        for number, name in enumerate(compare_text.figure_columns(side.name)):
            is_number = 0 < number < 5
            no_wrap = number not in (1, 2, 4)  # values may be wrapped before their unit
            table.add_column(name, justify="right" if is_number else "left", no_wrap=no_wrap)
        for workload, figures in compare_text.by_workload(comparison.figures, side.name):
            single_side = compare_text.alone(figures)
            table.add_row(
                cell(workload), *[""] * 4, single_side, style="dim" if single_side else "bold"
            )
            for figure in () if single_side else figures:
                name, *cells = map(cell, compare_text.figure_row(figure))
                table.add_row(f"  {name}", *cells, style=_STYLES.get(figure.verdict, ""))
        out.print(f"\n[bold]{side.name} compared with A[/]")
        out.print(table)
        for reason in compare_text.reasons(comparison.figures, side.name):
            out.print(cell(reason), style="dim")
        out.print(cell(compare_text.sentence(comparison, side)), style="bold")
    for title, rows in (
        ("systems", comparison.system),
        ("settings", comparison.settings),
        ("versions", comparison.versions),
    ):
        _differences(title, rows, comparison, out)
    if comparison.equal_layers:
        out.print(
            f"\nequal layers of the system: {', '.join(comparison.equal_layers)}", style="dim"
        )
    for note in comparison.notes:
        out.print(cell(note), style="dim")


def _differences(
    title: str, rows: tuple[Differing, ...], comparison: Comparison, out: Console
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
    for row in rows:
        table.add_row(*map(cell, compare_text.differing_row(row)))
    out.print(f"\n[bold]differences between the {title}[/]")
    out.print(table)
