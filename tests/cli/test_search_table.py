"""A search in a terminal: while it runs, its score, and what is said after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tests.support.sample_parts import write_system
from tests.support.search_runs import HandmadeSearch, Note, evaluated, one_worker
from vflops.cli.results import score as command
from vflops.cli.terminal.run_display import Progress
from vflops.cli.terminal.search_table import SearchView
from vflops.launch.controller import JobProgress
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score
from vflops.workloads.automl.worker_progress import WorkerProgress, observer


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch)
    write_system(made.folder)
    return made


def followed(run: HandmadeSearch, notes: list[Note]) -> JobProgress:
    """Return a worker that runs, as far as its log goes."""
    standing = JobProgress(
        run.records[0], state="running", location="2 cores", observer=observer(run.records[0])
    )
    standing.take("worker", {"worker": 0, "left_s": 100.0, "clock": None})
    for at_s, kind, data in notes:
        phases = {"start-up": 7.0, "training": at_s - 5}
        standing.take(kind, {**data, "phases": phases} if "samples" in data else data)
    return standing


def test_a_line_without_a_terminal_says_how_the_search_stands(
    run: HandmadeSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = followed(run, one_worker(run)[:7])  # up to the second one's first epoch
    SearchView(Console(force_terminal=False)).show([standing])
    # Two epochs and evaluations, 32,000 operations each, in 58 s; 0.7 is the best so far.
    assert capsys.readouterr().err.strip() == (
        "1 of 1 worker running, 1 candidate trained, best accuracy 0.7 (r00001-w00000), "
        "1.10 kOPS, regulated 1.33 kOPS, 42 s left"
    )


def test_the_table_names_each_workers_candidate(run: HandmadeSearch) -> None:
    notes = one_worker(run)
    view = SearchView(Console(width=140, force_terminal=False))
    for upto, wanted in ((7, ("r00001-w00000", "1.00", "0.7")), (5, ("waiting", "0.6"))):
        standing = followed(run, notes[:upto])
        view.show([standing])
        with view._console.capture() as shown:
            view._console.print(view._table(5))
        for text in wanted:
            assert text in shown.get()


def test_samples_of_a_resumed_candidate_are_charged_once(run: HandmadeSearch) -> None:
    notes = one_worker(run)[:3]  # the first candidate and its evaluation
    standing = followed(run, notes)
    assert isinstance(standing.observer, WorkerProgress)
    before = standing.observer.ops
    standing.take("worker", {"worker": 0, "left_s": 60.0, "clock": None})
    for _, kind, data in notes[1:]:
        phases = {"start-up": 7.0, "training": 1.0}
        standing.take(kind, {**data, "phases": phases} if "samples" in data else data)
    assert standing.observer.ops == before == 32_000
    assert standing.observer.elapsed_s == pytest.approx(40 + 6)


def test_a_line_that_cannot_be_read_is_passed_over(run: HandmadeSearch) -> None:
    standing = followed(run, one_worker(run)[:3])
    assert isinstance(standing.observer, WorkerProgress)
    standing.observer("evaluation", evaluated(2, 0.9))  # without its phases
    assert standing.observer.best == 0.6


def test_the_score_says_it_in_words_and_names_the_best(
    run: HandmadeSearch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    run.worker(0, one_worker(run))
    run.end()
    command.score(run.folder.path)
    output = capsys.readouterr().out
    assert output.startswith(
        "searched 2 architectures (3 candidates, 2 trained to the end) in 1 min 40 s with 1 worker"
    )
    table = output[output.index("the best of 3 candidates") :].splitlines()
    assert table[2].startswith("r00001-w00000") and "0.8" in table[2]
    assert "target" not in output


def test_the_summary_ends_with_a_replay(
    run: HandmadeSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.true_ops = True
    run.worker(0, one_worker(run))
    folder = run.end()
    score(Contents(folder)).write(folder.score_file)
    Progress(quiet=True).summary(folder, check(Contents(folder)))
    output = capsys.readouterr()
    text = output.out + output.err
    assert "searched 2 architectures" in text
    assert "replay" in text.splitlines()[-1]
    assert "not reached" not in text
