"""``vflops score``: computes the figures of a run from its folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.cli.terminal.columns import columns, heading
from vflops.errors import UsageError
from vflops.text import printable

if TYPE_CHECKING:
    from vflops.record.files.document import Document
    from vflops.record.readout.contents import Contents
    from vflops.results.score.score_file import Score

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(score)


def write_result(document: Document, path: Path, contents: Contents) -> None:
    """Write ``document`` if possible; a read-only run can still be scored and checked.

    Results of a run in progress are not written, since they would soon be outdated.
    """
    from vflops.cli.terminal.console import say

    if contents.in_progress:
        return
    try:
        document.write(path)
    except UsageError as error:
        say(f"not written: {error.message}")


def score(run: options.Run = None, json: Json = False) -> None:
    """Compute the score of a run. Writes score.json, with the same bytes every time."""
    from vflops.cli.terminal import console
    from vflops.results.score.scoring import score as compute_score
    from vflops.results.score.scoring import with_trained_bounds

    contents = console.read_run(run)
    result = compute_score(contents)
    write_result(result, contents.folder.score_file, contents)
    if json:
        typer.echo(result.to_json(), nl=False)
        return
    from vflops.results.roofline.run_ceilings import measured_where
    from vflops.results.score import lost_attempts, node_text, score_tables

    for line in _result_texts(result):
        print(line)
    for line in score_tables.task_lines(result):
        console.say(line, file=sys.stdout)
    if lost := lost_attempts.lost_rows(contents):
        print(heading(f"\n{lost_attempts.lost_line(contents)}"))
        for when, job, nodes, reason, costs in lost:
            text = f"{when}: job {job} on {nodes}, which costs {costs}: {reason}"
            console.say(text, indent=4, file=sys.stdout)
    if result.node_kinds:
        print(heading("\nnodes, measured at the same time"))
        rows = node_text.node_rows(result.node_kinds)
        print(columns([node_text.COLUMNS, *rows], right=(3, 4, 5, 6)))
        for line in node_text.node_lines(result.node_kinds):
            console.say(line, indent=4, file=sys.stdout)
    if result.ceilings:
        where = measured_where(contents)
        name = f"ceilings, {where}" if where else "ceilings"
        print(heading(f"\n{name}" if result.tasks else name))
        print(columns([score_tables.CEILINGS, *score_tables.ceiling_rows(result)], right=(3, 4)))
        for names, reason in score_tables.absent_rows(result.ceilings):
            console.say(f"not measured: {names}: {reason}", indent=4, file=sys.stdout)
    if result.models:
        print(heading("\nmodels, operations of one sample"))
        rows = score_tables.model_rows(with_trained_bounds(result, contents))
        print(columns([score_tables.MODELS, *rows], right=(2, 3)))
    if not contents.in_progress:
        if contents.folder.findings_file.is_file():
            console.open_report(contents.folder)
        else:
            name = console.shell_path(contents.folder.path)
            console.next_step(f"vflops check {name}", "check it by the rules")


def _result_texts(result: Score) -> Iterator[str]:
    """Yield the tables of all ensembles, searches, repeats and training runs, with titles."""
    from vflops.results import many_trainings
    from vflops.results.score import score_tables, search_text
    from vflops.units import count

    for ensemble in result.ensembles:
        yield heading(score_tables.ensemble_title(result, ensemble))
        yield columns(score_tables.ensemble_rows(ensemble)) + "\n"
    for search in result.searches:
        yield printable(search_text.search_line(search))
        yield columns(search_text.search_rows(search)) + "\n"
        best = [
            search_text.candidate_row(candidate) for candidate in search_text.by_accuracy(search)
        ]
        if best:
            yield heading(f"the best of {count(len(search.candidates), 'candidate')}")
            rows = [search_text.CANDIDATES, *best[: search_text.MAX_CANDIDATES]]
            yield columns(rows, right=(1, 2, 3, 4, 5, 6)) + "\n"
    for repeat in result.repeats:
        yield heading(score_tables.repeat_title(repeat))
        yield (
            columns([score_tables.REPEATS, *score_tables.repeat_rows(repeat)], right=(1, 2)) + "\n"
        )
    for trainings in many_trainings.summarised(result):
        yield heading(many_trainings.title(trainings))
        rows = [many_trainings.DISTRIBUTION, *many_trainings.distribution_rows(trainings)]
        yield columns(rows, right=(1, 2, 3, 4, 5))
        yield "".join(f"{line}\n" for line in many_trainings.outlier_lines(trainings))
    firsts = [trainings[0] for trainings in many_trainings.summarised(result)]
    for training in (*firsts, *many_trainings.listed(result)):
        yield heading(score_tables.training_title(result, training))
        yield columns(score_tables.training_rows(training)) + "\n"
