"""A search on a real SLURM: four workers on four nodes, one of them killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.automl_runs import rank_of, results, started, wait_until
from tests.support.ensemble_runs import ended, wait_for
from tests.support.slurm_bench import NODES, SlurmBench
from vflops.record.log.events import Event
from vflops.workloads.automl.replay import SearchLedger

pytestmark = pytest.mark.cluster


def test_four_workers_on_four_nodes_and_one_killed_train_every_candidate_once(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    words = ("--on", "slurm", "--workers", "4")
    process = started(tmp_path, "search.candidates=3", words=words)
    folder = wait_for(tmp_path, "candidate", 3)

    def trains(events: list[Event]) -> bool:
        return bool(events) and events[-1].kind in ("candidate", "checkpoint", "evaluation")

    wait_until(folder, trains, job=3)
    rank_of(folder, 3).kill()
    folder = ended(process, tmp_path)
    expected = [f"r{n:05d}-w{worker:05d}" for n in range(3) for worker in range(4)]
    assert sorted(results(folder)) == expected
    ledger = SearchLedger.find(folder.path)
    assert [candidate.candidate.turn.name for candidate in ledger.candidates] == expected
    history = folder.history()
    assert history.state.complete
    (lost,) = history.events("job-lost")
    assert (lost.data["job"], lost.data["where"] in NODES) == (3, True)
    assert [event.data["launcher"] for event in history.events("job-begun")] == ["slurm"] * 5
    assert slurm.run("squeue", "-h") == ""
