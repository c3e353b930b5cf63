"""``vflops accept``: judges a machine by a reference, and writes references."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.studies.accept.acceptance import Acceptance
    from vflops.studies.accept.judging import RunUnderTest
    from vflops.studies.accept.reference import Reference

_STYLES = {"accepted": "green", "rejected": "red", "undecided": "yellow", "missing": "yellow"}
_COLUMNS = ("promised", "measured", "bounds", "n", "verdict")
"""The columns of the table after the name; the page has all of them."""
_MAX_ROWS, _MAX_REMARKS = 60, 12
"""The largest numbers of figures and of remarks that are printed."""
_DEFAULT_TOLERANCE = 0.05


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(accept)


def accept(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Runs to judge, as RUN or NODE=RUN; without any, the task of the reference is run."
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="The reference: a TOML file, or the folder of a good run.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write a reference from good runs to this TOML file.")
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            help="Tolerance of a reference made from runs: a share such as 0.05 (default), or"
            " PATTERN=SHARE; repeatable."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Promise only figures with this name or pattern, e.g. 'gemm.*'; repeatable."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the written reference.")] = None,
    contract: Annotated[
        str, typer.Option(help="Number or text of the contract, for the written reference.")
    ] = "",
    max_repeats: Annotated[
        int | None, typer.Option(help="Largest number of runs; by default that of the reference.")
    ] = None,
    on: options.On = None,
    container: options.Container = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data, if the reference was measured with it.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the outcome and new runs; by default runs/accept-NAME."),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Print the page to PDF with Chromium.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Print one line `name: value unit` per figure.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Accept or reject a machine by promised figures. Exit code 0, 1, or 4 if undecided."""
    from vflops.studies.accept.accept_text import EXIT_CODES
    from vflops.studies.accept.judging import judge, read_runs

    if (against is None) == (write is None):
        raise UsageError(
            "vflops accept needs either --against or --write",
            hint="judge: vflops accept --against REF.toml RUN; write: vflops accept --write"
            " REF.toml RUN",
        )
    given = read_runs(runs or [])
    tolerances = _tolerances(tolerance or [])
    if write is not None:
        _write(write, given, _Promises(name, contract, tolerances, only or ["*"]))
        return
    assert against is not None
    promises = _Promises(name, contract, tolerances, only or ["*"])
    reference = _reference(against, promises, max_repeats)
    folder = out or Path("runs") / f"accept-{_slug(reference.name)}"
    if given:
        acceptance = judge(reference, given)
    else:
        acceptance = _run(folder, reference, on, container, data, quiet)
        _explain_stop(acceptance)
    file = against if against.is_file() else None
    _report(acceptance, folder, reference=file, pdf=pdf, lines=lines)
    raise typer.Exit(EXIT_CODES[acceptance.verdict])


class _Promises(NamedTuple):
    """The options of a reference that is made from runs."""

    name: str | None
    contract: str
    tolerances: dict[str, float]
    only: list[str]

    def reference_from(self, runs: list[RunUnderTest], default_name: str) -> Reference:
        """Return the reference."""
        from vflops.studies.accept.reference_writer import reference_from

        return reference_from(
            runs,
            name=self.name or default_name,
            contract=self.contract,
            tolerances=self.tolerances,
            only=self.only,
        )


def _write(path: Path, runs: list[RunUnderTest], promises: _Promises) -> None:
    from vflops.cli.terminal import console
    from vflops.studies.accept.reference_writer import write_reference

    if not runs:
        raise UsageError(
            f"--write {path} needs good runs", hint=f"vflops accept --write {path} RUN …"
        )
    reference = promises.reference_from(runs, path.stem)
    write_reference(path, reference, runs)
    typer.echo(f"reference  {console.shell_path(path)}")
    typer.echo(f"figures    {len(reference.figure)}")
    if len(runs) == 1:
        console.say(
            "The values are those of one run: their variation between runs is not known. Give"
            " several runs to have the needed number of repeats in the comments."
        )
    console.next_step(
        f"vflops accept --against {console.shell_path(path)}", "after you have edited the promises"
    )


def _reference(path: Path, promises: _Promises, cap: int | None) -> Reference:
    """Return the reference in a file, or one that is made from a run folder."""
    from vflops.studies.accept.judging import read_runs
    from vflops.studies.accept.reference import read_reference, with_max_repeats

    if path.is_dir():
        reference = promises.reference_from(read_runs([str(path)]), path.resolve().name)
    else:
        reference = read_reference(path)
    return reference if cap is None else with_max_repeats(reference, cap)


def _run(
    folder: Path,
    reference: Reference,
    on: str | None,
    container: str | None,
    data: Path | None,
    quiet: bool,
) -> Acceptance:
    from vflops.cli.terminal.console import say
    from vflops.cli.terminal.run_display import Progress
    from vflops.studies.accept.repeating import RepeatedTask

    judgement = reference.judgement
    if not quiet:
        say(
            f"{judgement.repeats} repeats first; more are computed from their spread and their"
            f" distance to the limits, up to {judgement.max_repeats}"
        )
    task = RepeatedTask.create(folder, reference, on=on, container=container, data=data)
    with Progress(quiet=quiet) as progress:
        return task.run(progress.observer)


def _explain_stop(acceptance: Acceptance) -> None:
    """Print how to continue a test that stopped at a run that is not valid."""
    from vflops.cli.terminal.console import say, shell_path

    for run in acceptance.runs:
        if run.faults:
            say(
                f"stopped at a run that is no evidence: find the cause, move"
                f" {shell_path(Path(run.path))} away, and run the same command again"
            )


def _report(
    acceptance: Acceptance, folder: Path, *, reference: Path | None, pdf: bool, lines: bool
) -> None:
    """Write the outcome as files, and print it."""
    from vflops.cli.terminal import console
    from vflops.studies.accept import accept_text
    from vflops.studies.accept.outcome_files import write_outcome

    with console.working("writing the outcome"):
        files = write_outcome(acceptance, folder, reference=reference, pdf=pdf)
    if lines:
        for line in accept_text.lines(acceptance):
            typer.echo(line)
        return
    _show(acceptance)
    for file in files:
        typer.echo(f"{file.suffix[1:]:5} {console.shell_path(file)}")
    page = next(file for file in files if file.suffix == ".html")
    console.next_step(f"open {page.resolve().as_uri()}", "two pages to print and sign")


def _show(acceptance: Acceptance) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell, console, say
    from vflops.studies.accept import accept_text

    out = console()
    table = Table(box=None, pad_edge=False)
    for name in ("figure", *_COLUMNS):
        text = name in ("figure", "verdict")
        table.add_column(name, justify="left" if text else "right", overflow="fold")
    places = Counter(figure.name for figure in acceptance.figures)
    figures = accept_text.in_order(acceptance.figures)
    for figure in figures[:_MAX_ROWS]:
        name = figure.title if places[figure.name] > 1 else figure.name
        cells = dict(zip(accept_text.COLUMNS, accept_text.row(figure), strict=True))
        shown = [name, *(cells[column] for column in _COLUMNS)]
        table.add_row(*map(cell, shown), style=_STYLES[figure.verdict])
    out.print(table)
    if left_out := accept_text.left_out(figures[_MAX_ROWS:]):
        out.print(f"… and {left_out}", style="dim")
    out.print()
    for remark in accept_text.cut(list(accept_text.remarks(acceptance)), _MAX_REMARKS):
        say(f"- {remark}", indent=2, file=sys.stdout)
    out.print(cell(accept_text.sentence(acceptance)), style="bold")


def _tolerances(given: list[str]) -> dict[str, float]:
    """Return the tolerance by pattern; a plain number applies to all figures."""
    tolerances = {"*": _DEFAULT_TOLERANCE}
    for text in given:
        pattern, separator, share = text.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1:
            raise UsageError(
                f"--tolerance {text}: {share!r} is not a share of at least 0 and below 1",
                hint="for example --tolerance 0.05, or --tolerance 'storage.*=0.3'",
            )
        tolerances[pattern if separator else "*"] = value
    return tolerances


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.").lower() or "machine"
