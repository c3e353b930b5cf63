"""Progress of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from vflops.cli.terminal.console import (
    command_name,
    console,
    next_step,
    open_report,
    say,
    shell_path,
)
from vflops.errors import CheckFailed
from vflops.record.readout.contents import Contents
from vflops.results.check.advice import advice, with_advice
from vflops.results.check.background_load import unjudged_load
from vflops.results.roofline.run_ceilings import run_ceilings
from vflops.results.score.score_tables import absent_rows
from vflops.run.observer import RunObserver
from vflops.units import percent, quantity

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from vflops.cli.terminal.jobs_table import JobsView
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.cli.terminal.search_table import SearchView
    from vflops.cli.terminal.training_panel import TrainingView
    from vflops.launch.controller import JobProgress
    from vflops.machine.ceilings.ceiling_plan import Item, Key
    from vflops.record.folder import RunFolder
    from vflops.record.formats.job import JobRecord
    from vflops.record.formats.measurement import Measurement
    from vflops.results.check.findings import Findings


class Progress:
    """Shows the steps of a run and its highest ceilings; nothing if ``quiet``."""

    def __init__(self, *, quiet: bool, all_ceilings: bool = False) -> None:
        self._quiet = quiet
        self._all_ceilings = all_ceilings
        self._console = console()
        self._live: Live | None = None
        self._items: tuple[Item, ...] = ()
        self._folds = False
        self._done: list[Measurement] = []
        self._bar: Bar | None = None
        self._training: TrainingView | None = None
        self._ensemble: JobsView | SearchView | None = None
        self.observer = RunObserver(
            step=self._step,
            note=self._note,
            warn=self._warn,
            progress=self._progress,
            plan=self._plan,
            start=self._start,
            ceiling=self._ceiling,
            job=self._job,
            event=self._event,
            jobs=self._jobs,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_live()

    def _step(self, text: str) -> None:
        if not self._quiet:
            self._stop_live()
            print(f"{text} …", file=sys.stderr)

    def _note(self, text: str) -> None:
        if not self._quiet:
            self._stop_live()
            say(text)

    def _warn(self, text: str) -> None:
        """Print a warning, even if ``quiet``: hours of training may be in vain."""
        say(f"warning: {text}")

    def _progress(self, text: str, done: int, total: int) -> None:
        """Show the progress of preparing data."""
        if self._quiet:
            return
        if self._bar is None:
            from vflops.cli.terminal.progress_bar import Bar

            self._bar = Bar(text)
            self._bar.__enter__()
        self._bar.show(done, total)
        if done >= total:
            self._end_bar()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def _job(self, record: JobRecord, place: str, planned: int, ops_per_sample: int | None) -> None:
        self._stop_live()
        if not self._quiet:
            from vflops.cli.terminal.training_panel import TrainingView

            self._training = TrainingView(self._console, record, place, ops_per_sample)

    def _jobs(self, jobs: Sequence[JobProgress]) -> None:
        if self._quiet:
            return
        if self._ensemble is None:
            self._ensemble = self._make_view(jobs)
        self._ensemble.show(jobs)

    def _make_view(self, jobs: Sequence[JobProgress]) -> JobsView | SearchView:
        if any(job.record.worker for job in jobs):
            from vflops.cli.terminal.search_table import SearchView

            return SearchView(self._console)
        from vflops.cli.terminal.jobs_table import JobsView

        return JobsView(self._console)

    def _event(self, kind: str, data: dict[str, Any]) -> None:
        if self._training is not None:
            self._training.event(kind, data)

    def _plan(self, items: tuple[Item, ...]) -> None:
        self._items, self._done = items, []
        self._folds = bool(items) and not self._quiet and not self._all_ceilings
        if items and not self._quiet and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def _start(self, item: Item) -> None:
        if self._live is not None:
            rows = max(self._console.height - 3, 3)
            self._live.update(self._table(running=item.key, rows=rows))

    def _table(self, running: Key | None = None, rows: int | None = None) -> Table:
        from vflops.machine.ceilings.ceiling_table import table

        return table(self._items, self._done, running=running, rows=rows)

    def _ceiling(self, measurement: Measurement) -> None:
        self._done.append(measurement)
        if self._all_ceilings and not self._quiet and not self._console.is_terminal:
            name = " ".join(filter(None, measurement.key))
            value = quantity(measurement.value, measurement.unit)
            detail = measurement.reason or f"spread {percent(measurement.spread)}"
            print(f"  {name}: {value} ({detail})", file=sys.stderr)

    def _stop_live(self) -> None:
        self._end_bar()
        if self._training is not None:
            self._training.close()
            self._training = None
        if self._ensemble is not None:
            self._ensemble.close()
            self._ensemble = None
        if self._live is not None:
            self._live.stop()
            self._live = None
            if self._all_ceilings:
                self._console.print(self._table())
                for names, reason in absent_rows(self._done):
                    say(f"not measured: {names}: {reason}", indent=4, file=sys.stdout)
        if self._folds and self._done:
            self._folds = False
            self._best_ceilings()

    def _best_ceilings(self) -> None:
        """Print the highest value of each benchmark; the report has all of them."""
        from vflops.machine.ceilings.ceiling_table import best_lines

        measured = sum(item.value is not None for item in self._done)
        say(f"{measured} of {len(self._done)} ceilings measured; the highest, all in the report:")
        for line in best_lines(self._done):
            say(f"  {line}", indent=2)

    def summary(self, folder: RunFolder, findings: Findings) -> None:
        """Print the results of a run and the next step; exit with code 1 if a rule is not met."""
        from vflops.results.next_action import (
            can_replay,
            closer_target,
            next_action,
            train_longer,
        )
        from vflops.results.score.score_file import Score
        from vflops.results.score.unscored import REHEARSAL, memory_text
        from vflops.studies.audit.kept_states import kept_b

        contents, score = Contents(folder), Score.read(folder.score_file)
        if score.rehearsal:
            say(REHEARSAL, file=sys.stdout)
        _print_results(folder)
        name = shell_path(folder.path)
        print(f"\nrun     {name}")
        if kept := kept_b(folder):
            discard = f"{command_name()} audit {name} --discard"
            say(
                f"disk    {quantity(kept, 'B')} of checkpoints are kept for audits only; "
                f"to delete them: {discard}",
                indent=8,
                file=sys.stdout,
            )
        if score.rehearsal and (memory := memory_text(contents)):
            say(f"memory  {memory}", indent=8, file=sys.stdout)
        print(f"checks  {findings.tally}")
        run = folder.record
        for finding in findings.failures:
            verdict = "not met" if finding.verdict == "fail" else finding.verdict
            line = f"        {verdict}: {finding.rule}: {with_advice(finding, run)}"
            say(line, indent=8, file=sys.stdout)
        if load := unjudged_load(contents):
            say(f"warning {load} → {advice('quiet', run)}", indent=8, file=sys.stdout)
        print(f"report  {shell_path(folder.report_file)}")
        machine = run_ceilings(contents)
        longer = train_longer(folder, score)
        easy = any(finding.rule == "goal" for finding in findings.failures)
        closer = closer_target(folder, score) if easy else None
        if score.rehearsal:
            real = next_action(folder, score, findings, run=name)
            next_step(real.command, real.purpose)
        elif closer is not None:
            next_step(closer.command, closer.purpose)
        elif longer is not None:
            next_step(longer.command, longer.purpose)
        elif not score.trainings and can_replay(folder, score):
            next_step(f"vflops replay {name}", "train the same candidates as fixed work")
        elif folder.record.workload == "micro" and machine.precisions() and machine.memory:
            next_step(f"vflops roofline {name}", "show what limits a model here")
        else:
            open_report(folder)
        if not (findings.passed or score.rehearsal):  # which no rehearsal can pass
            raise typer.Exit(CheckFailed.exit_code)


@contextmanager
def with_metrics(observer: RunObserver, metrics_file: Path | None) -> Iterator[RunObserver]:
    """Yield ``observer``, which also updates the metrics file if one is given."""
    if metrics_file is None:
        yield observer
        return
    from vflops.run.metrics_file import MetricsFile

    with MetricsFile(metrics_file) as metrics:
        yield metrics.wrap(observer)


def _print_results(folder: RunFolder) -> None:
    """Print one line per training run, ensemble and search, and summaries of many trainings."""
    from vflops.cli.terminal.columns import columns, heading
    from vflops.results import many_trainings
    from vflops.results.score import figure_text
    from vflops.results.score.node_text import nodes_line
    from vflops.results.score.score_file import Score
    from vflops.results.score.score_tables import (
        ensemble_line,
        repeat_line,
        result_rows,
    )
    from vflops.results.score.search_text import aiperf_line, search_line

    score = Score.read(folder.score_file)
    if few := many_trainings.listed(score):
        print("\n" + columns(result_rows(score, few), right=(2,)))
    for trainings in many_trainings.summarised(score):
        rows = [many_trainings.DISTRIBUTION, *many_trainings.distribution_rows(trainings)]
        print("\n" + heading(many_trainings.title(trainings)))
        print(columns(rows, right=(1, 2, 3, 4, 5)))
        for line in many_trainings.outlier_lines(trainings):
            say(line, indent=4, file=sys.stdout)
    for ensemble in score.ensembles:
        say(ensemble_line(score, ensemble), file=sys.stdout)
    for repeat in score.repeats:
        say(f"{repeat.workload}: {repeat_line(repeat)}", file=sys.stdout)
    for search in score.searches:
        say(f"{search_line(search)}; {aiperf_line(search)}", file=sys.stdout)
    for task in score.tasks:
        if task.kind == "open":
            say(f"{task.workload}: {figure_text.task(task)}", file=sys.stdout)
    if nodes := nodes_line(score.node_kinds):
        say(f"nodes: {nodes}", file=sys.stdout)
