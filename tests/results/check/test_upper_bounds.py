"""No candidate and no worker of a search is faster than the measured ceiling."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sample_parts import measured
from tests.support.search_runs import (
    BATCH,
    TRAIN,
    VALIDATION,
    HandmadeSearch,
    Note,
    one_worker,
    progress,
    started,
)
from vflops.record.readout.contents import Contents
from vflops.results.check.rule import Outcome
from vflops.results.check.upper_bounds import check_upper_bounds
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.search_events import Turn

SECOND = Turn(round=1, worker=0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    return HandmadeSearch(tmp_path, monkeypatch)


def executed(network: Architecture, samples: int, evaluated: int) -> int:
    """The operations that torch executes for so many samples."""
    ops = architecture_cost.ops(network, "executed", BATCH)
    return (ops.total * samples + ops.forward * evaluated) // BATCH


def judged(run: HandmadeSearch, notes: list[Note], ceiling: float, **facts: str) -> Outcome:
    """The rule on a search with a ceiling of its matrix product."""
    run.worker(0, notes)
    with run.folder.start_attempt(job=0) as log:
        item = measured("gemm", "peak", "fp32", ceiling, **facts)
        log.write("measurement", **item.model_dump(mode="json"))
    return Outcome(*check_upper_bounds(Contents(run.folder)))


def fastest(run: HandmadeSearch) -> float:
    """The FLOPS of the second candidate of ``one_worker``: two epochs in 40 s."""
    return executed(run.network(SECOND.name), 2 * TRAIN, 2 * VALIDATION) / 40


def test_a_candidate_above_its_ceiling_is_found(run: HandmadeSearch) -> None:
    notes = one_worker(run)
    verdict, text, where = judged(run, notes, fastest(run) / 1.06)
    assert verdict == "fail"
    assert text.startswith(f"candidate {SECOND.name} executed ")
    assert where is not None
    assert "jobs/1/0/events.jsonl:" in where


def test_a_candidate_within_the_noise_of_its_ceiling_passes(run: HandmadeSearch) -> None:
    notes = one_worker(run)
    verdict, text, _ = judged(run, notes, fastest(run) / 1.04)
    assert (verdict, text) == ("pass", "at most 104.0 % of the measured ceiling was reached")


def test_a_ceiling_in_doubt_proves_nothing(run: HandmadeSearch) -> None:
    verdict, text, _ = judged(run, one_worker(run), 1.0, caveat="other programs were busy")
    assert verdict == "cannot tell"
    assert "which is in doubt: other programs were busy" in text


def test_candidates_at_the_same_time_are_bounded_together(run: HandmadeSearch) -> None:
    """Both take 40 s, the same 40 s."""
    first = run.propose(Turn(round=0, worker=0))
    second = run.propose(SECOND, first.turn.name)
    notes: list[Note] = [
        (0.0, "job", started()),
        (0.0, "candidate", run.begun(first)),
        (0.0, "candidate", run.begun(second)),
        (40.0, "progress", progress(1)),
        (40.0, "candidate", run.begun(first)),
        (40.0, "progress", progress(1)),
    ]
    each = executed(run.first, TRAIN, 0) / 40
    verdict, text, _ = judged(run, notes, 1.2 * each)
    assert verdict == "fail", text
    assert text.startswith("worker 0 (job 1) executed ")


def test_a_search_without_a_ceiling_is_not_judged(run: HandmadeSearch) -> None:
    run.worker(0, one_worker(run))
    outcome = Outcome(*check_upper_bounds(Contents(run.folder)))
    evidence = "no job has both counted operations and a ceiling"
    assert outcome == Outcome("not applicable", evidence)
