"""``vflops accept``: judges a machine by a reference, and writes references."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vflops.cli import options
from vflops.errors import UsageError

if TYPE_CHECKING:
    from vflops.studies.accept.acceptance import Acceptance
    from vflops.studies.accept.reference import Reference
    from vflops.studies.accept.runs_under_test import RunUnderTest

_STYLES = {"accepted": "green", "rejected": "red", "undecided": "yellow", "missing": "yellow"}
_COLUMNS = ("limit", "measured", "bounds", "n", "verdict")
"""The columns of the table after the name; the page has all of them."""
_DROPPED_FIRST = ("n", "bounds")
"""The columns that a narrow terminal leaves out, so that names stay whole."""
_MAX_NAMED = 5
"""The largest number of figures that a warning names."""
_MAX_ROWS, _MAX_REMARKS = 60, 12
"""The largest numbers of figures and of remarks that are printed."""
_DEFAULT_TOLERANCE = 0.05
_MIN_NAME = 20
"""The smallest width of a name, in columns."""


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
    from vflops.studies.accept.judging import judge
    from vflops.studies.accept.outcome_files import earlier_outcome
    from vflops.studies.accept.runs_under_test import read_runs

    if (against is None) == (write is None):
        raise UsageError(
            "vflops accept needs either --against or --write",
            hint="judge: vflops accept --against REF.toml RUN; write: vflops accept --write"
            " REF.toml RUN",
        )
    given = read_runs(runs or [])
    promises = _Promises(name, contract, _tolerances(tolerance or []), only or ["*"])
    if write is not None:
        _write(write, given, promises, max_repeats)
        return
    assert against is not None
    reference = _reference(against, promises, max_repeats)
    folder = out or Path("runs") / f"accept-{_slug(reference.name)}"
    earlier = earlier_outcome(folder, reference)
    if given:
        acceptance = judge(reference, given)
    else:
        acceptance = _run(folder, reference, on, container, data, quiet)
        _explain_stop(acceptance)
    file = against if against.is_file() else None
    _report(acceptance, folder, reference=file, pdf=pdf, lines=lines)
    if earlier is not None:
        _say_replaced(earlier, folder)
    if not lines:
        options_given = {
            "--out": out,
            "--on": on,
            "--container": container,
            "--data": data,
            "--name": name,
            "--tolerance": tolerance,
            "--only": only,
        }
        words = ["vflops", "accept", "--against", str(against), *_words(options_given)]
        _next(acceptance, folder, shlex.join(words), shlex.join(runs or []))
    raise typer.Exit(EXIT_CODES[acceptance.verdict])


class _Promises(NamedTuple):
    """The options of a reference that is made from runs."""

    name: str | None
    contract: str
    tolerances: dict[str, float]
    only: list[str]

    def require_none_for(self, path: Path) -> None:
        """Raise ``UsageError`` if an option is given, and the reference in ``path`` is a file."""
        options = {
            "--name": self.name,
            "--contract": self.contract,
            "--tolerance": self.tolerances,
            "--only": self.only != ["*"],
        }
        given = [option for option, value in options.items() if value]
        if given and path.is_file():
            raise UsageError(
                f"{given[0]} is for a reference that is made from runs, and {path} is a file",
                hint=f"change {path} instead, and leave {', '.join(given)} out",
            )

    def reference_from(self, runs: list[RunUnderTest], default_name: str) -> Reference:
        """Return the reference."""
        from vflops.studies.accept.reference_writer import reference_from

        return reference_from(
            runs,
            name=self.name or default_name,
            contract=self.contract,
            tolerances={"*": _DEFAULT_TOLERANCE, **self.tolerances},
            only=self.only,
        )


def _write(path: Path, runs: list[RunUnderTest], promises: _Promises, cap: int | None) -> None:
    from vflops.cli.terminal import console
    from vflops.studies.accept.reference import with_max_repeats
    from vflops.studies.accept.reference_writer import write_reference

    if not runs:
        raise UsageError(
            f"--write {path} needs good runs", hint=f"vflops accept --write {path} RUN …"
        )
    reference = promises.reference_from(runs, path.stem)
    if cap is not None:
        reference = with_max_repeats(reference, cap)
    write_reference(path, reference, runs)
    typer.echo(f"reference  {console.shell_path(path)}")
    typer.echo(f"figures    {len(reference.figure)}")
    if len(runs) == 1:
        console.say(
            "The values are those of one run: their variation between runs is not known. Give"
            " several runs to have the needed number of repeats in the comments."
        )
    _warn_of_undecidable(reference, runs)
    console.next_step(
        f"vflops accept --against {console.shell_path(path)}", "after you have edited the promises"
    )


def _warn_of_undecidable(reference: Reference, runs: list[RunUnderTest]) -> None:
    """Warn of figures that even a machine like this one cannot meet within ``max_repeats``."""
    from vflops.cli.terminal.console import say
    from vflops.studies.accept.accept_text import count_text
    from vflops.studies.accept.reference_writer import too_many_repeats

    needed = too_many_repeats(reference, runs)
    if not needed:
        return
    named = [f"{name} ({number or 'over 10,000'})" for name, number in needed.items()]
    rest = [f"{len(named) - _MAX_NAMED} more"] if len(named) > _MAX_NAMED else []
    verb = "needs" if len(needed) == 1 else "need"
    say(
        f"warning: {count_text(len(needed), 'figure')} {verb} more repeats than max_repeats ="
        f" {reference.judgement.max_repeats}, so that the test would end undecided:"
        f" {', '.join([*named[:_MAX_NAMED], *rest])}. Raise max_repeats or their tolerance, or"
        " remove them from the file.",
        indent=9,
    )


def _reference(path: Path, promises: _Promises, cap: int | None) -> Reference:
    """Return the reference in a file, or one that is made from a run folder."""
    from vflops.studies.accept.reference import read_reference, with_max_repeats
    from vflops.studies.accept.runs_under_test import read_runs

    promises.require_none_for(path)
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
                f"stopped at a run that does not count: find the cause, move"
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


def _say_replaced(earlier: Acceptance, folder: Path) -> None:
    """Print that an outcome was replaced, and what it was."""
    from vflops.cli.terminal.console import say, shell_path
    from vflops.studies.accept.accept_text import count_text

    say(
        f"replaced the former outcome in {shell_path(folder)}: {earlier.verdict}, by"
        f" {count_text(len(earlier.runs), 'run')}"
    )


def _words(given: dict[str, Path | str | list[str] | None]) -> list[str]:
    """Return options as the words of a command line."""
    words = []
    for option, value in given.items():
        for item in value if isinstance(value, list) else [value]:
            words += [] if item is None else [option, str(item)]
    return words


def _next(acceptance: Acceptance, folder: Path, command: str, runs: str) -> None:
    """Print what to do with the outcome: sign it, or the command that decides it.

    ``command`` runs the test; with ``runs``, those that were given, it judges them.
    """
    from vflops.cli.terminal import console

    if acceptance.is_decided:
        console.open_page(folder / "acceptance.html", "the two pages to print and sign")
        return
    judge = f"{command} {runs}".rstrip()
    broken = next((run for run in acceptance.runs if run.faults), None)
    needed = acceptance.needed_repeats
    if broken is not None and not broken.is_valid:
        path = console.shell_path(Path(broken.path))
        console.next_step(f"vflops check {path}", "what is wrong with the run, and what to do")
    elif broken is not None:
        console.next_step(command, "runs the task of the reference, and judges it")
    elif acceptance.faults:
        console.next_step(f"{judge} NODE=RUN …", "with runs of all promised nodes")
    elif acceptance.with_verdict("missing"):
        console.next_step(judge, "after the missing figures are removed from the reference")
    elif needed is None:
        console.next_step(judge, "after raising a tolerance, or removing the undecided figures")
    else:
        limit = max(needed, acceptance.reference.judgement.max_repeats)
        console.next_step(
            f"{command} --max-repeats {limit}", f"runs the task up to {limit} times to decide"
        )


def _show(acceptance: Acceptance) -> None:
    from rich.table import Table

    from vflops.cli.terminal.console import cell, console, say
    from vflops.studies.accept import accept_text

    out = console()
    places = Counter(figure.name for figure in acceptance.figures)
    figures = accept_text.in_order(acceptance.figures)
    rows = []
    for figure in figures[:_MAX_ROWS]:
        cells = dict(zip(accept_text.COLUMNS, accept_text.row(figure), strict=True))
        cells["figure"] = figure.title if places[figure.name] > 1 else figure.name
        rows.append(cells)
    columns, name_width = _fitting_columns(rows, out.width)
    table = Table(box=None, pad_edge=False)
    for column in columns:
        text = column in ("figure", "verdict")
        table.add_column(column, justify="left" if text else "right", no_wrap=not text)
    for figure, cells in zip(figures, rows, strict=False):
        cells["figure"] = _folded(cells["figure"], name_width)
        table.add_row(*(_cell(cells[column]) for column in columns), style=_STYLES[figure.verdict])
    out.print(table)
    if left_out := accept_text.left_out(figures[_MAX_ROWS:]):
        out.print(f"… and {left_out}", style="dim")
    out.print()
    for remark in accept_text.cut(list(accept_text.remarks(acceptance)), _MAX_REMARKS):
        say(f"- {remark}", indent=2, file=sys.stdout)
    out.print(cell(accept_text.sentence(acceptance)), style="bold")


def _fitting_columns(rows: list[dict[str, str]], width: int) -> tuple[list[str], int]:
    """Return the columns that fit into ``width``, and the width that is left for the names."""
    columns = ["figure", *_COLUMNS]
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in columns}
    for dropped in _DROPPED_FIRST:
        if _table_width(columns, widths) > width:
            columns.remove(dropped)
    return columns, max(width - _table_width(columns[1:], widths) - 2, _MIN_NAME)


def _table_width(columns: list[str], widths: dict[str, int]) -> int:
    return sum(widths[name] + 2 for name in columns) - 2


def _folded(name: str, width: int) -> str:
    """Return a name in lines of at most ``width``, which break after its dots and dashes."""
    from vflops.studies.accept.accept_text import name_parts

    lines = [""]
    for part in name_parts(name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Return a cell for rich, with its line breaks."""
    from vflops.cli.terminal.console import cell

    return "\n".join(map(cell, text.split("\n")))


def _tolerances(given: list[str]) -> dict[str, float]:
    """Return the tolerance by pattern; a plain number applies to all figures."""
    tolerances: dict[str, float] = {}
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
