"""A search that ends once its score has converged: who decides, and when the others follow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.sample_parts import write_system
from tests.support.search_runs import ZERO_S, HandmadeSearch, Note, progress, started
from vflops.workloads.automl import convergence
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.convergence import Convergence
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.settings import AutomlSettings

LAST_S = 100.0
STEADY = tuple(range(2, 101))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch, 2, end="converged", least_s=90.0)
    clock = SimpleNamespace(time=lambda: ZERO_S + LAST_S, monotonic=made.monotonic)
    monkeypatch.setattr(convergence, "time", clock)
    return made


def steps(run: HandmadeSearch, worker: int, *at_s: float, began_s: float = 0.0) -> list[Note]:
    """A candidate that has done another hundredth of an epoch at each of these times."""
    begun = run.begun(run.propose(Turn(round=0, worker=worker)))
    notes: list[Note] = [(began_s, "job", started()), (began_s, "candidate", begun)]
    return notes + [(s, "progress", progress(n / 100)) for n, s in enumerate(at_s, start=1)]


def watch(run: HandmadeSearch, worker: int, due_s: float = 0.0) -> Convergence:
    settings = AutomlSettings.model_validate(run.records[0].settings)
    buffer = CandidateBuffer(run.folder.path)
    return Convergence(run.folder, {0: 1, 1: 2}, worker, buffer, settings, due_s)


def test_the_first_worker_that_finds_it_converged_ends_the_search_of_all(
    run: HandmadeSearch,
) -> None:
    for worker in (0, 1):
        run.worker(worker, steps(run, worker, *STEADY))
    run.now_s = 0.0
    first, second = watch(run, 0), watch(run, 1)
    assert second.end is None
    first.decide()
    assert first.end is not None and first.end.worker == 0
    assert first.end.duration_s == pytest.approx(LAST_S) and first.end.variation < 0.01
    run.now_s = 1.0
    assert second.end is None  # it does not look all the time
    run.now_s = 2.5
    assert second.end == first.end
    second.decide()
    assert CandidateBuffer(run.folder.path).search_end() == first.end
    assert watch(run, 1).end == first.end  # of a worker that resumes


@pytest.mark.parametrize(
    ("at_s", "due_s", "began_s"),
    [
        (STEADY, 500.0, 0.0),  # this worker has not searched for long enough
        (STEADY, 0.0, 20.0),  # the other one has not
        ((2, 3, 4, 5, 99, 100), 0.0, 0.0),  # the score still changes
        (STEADY, 0.0, None),  # the other one has not begun
    ],
)
def test_a_search_goes_on_until_every_worker_and_the_score_have_what_they_need(
    run: HandmadeSearch, at_s: tuple[float, ...], due_s: float, began_s: float | None
) -> None:
    run.worker(0, steps(run, 0, *at_s))
    if began_s is not None:
        run.worker(1, steps(run, 1, began_s=began_s), began_s=began_s)
    run.now_s = 0.0
    deciding = watch(run, 0, due_s)
    deciding.decide()
    assert deciding.end is None


def test_a_replay_of_such_a_search_does_all_of_its_work(run: HandmadeSearch) -> None:
    write_system(run.folder)
    for worker in (0, 1):
        candidate = run.propose(Turn(round=1, worker=worker))
        run.worker(worker, [*run.trained(candidate, 10.0, 0.5, 0.6), (LAST_S, "end", {})])
    ledger = SearchLedger.find(run.end().path)
    replay = ledger.replay_settings(run.folder.path, {}, ()).workloads["automl"]["search"]
    assert (replay["end"], replay["candidates"]) == ("time", None)
