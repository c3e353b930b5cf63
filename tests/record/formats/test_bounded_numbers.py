"""Numbers in records that size work have limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.accept_runs import record_host
from tests.support.ranking_runs import submit
from vflops.config.divisors import divisors
from vflops.config.training import TrainSettings
from vflops.errors import FolderError
from vflops.record.formats.bounded_numbers import MAX_PROCESSES
from vflops.record.formats.job import BagRecord, WorkerRecord
from vflops.record.formats.job_events import JobPlanned, JobRearranged
from vflops.record.formats.node import NodeRecord, node_file
from vflops.record.log.events import Counted
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Timeline
from vflops.results.check.job_rules import check_jobs
from vflops.results.score.scoring import score
from vflops.workloads.automl.search_events import Turn

HUGE = 10**9


def change(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_a_claimed_number_of_nodes_costs_nothing(tmp_path: Path) -> None:
    run = record_host(submit(tmp_path), "node0")
    path = node_file(run.attempt_folder(1, 0), 0)
    change(path, nodes=MAX_PROCESSES)
    contents = Contents(run)
    timeline = Timeline(contents.training_jobs)
    parts = timeline.parts_of(1, run.attempt_folder(1, 0), (0.0, 1.0))
    assert (parts[0].host, len(parts)) == ("node0", 257)
    assert score(contents)
    change(path, nodes=HUGE)
    with pytest.raises(FolderError, match="nodes: input should be less than or equal to 65536"):
        score(Contents(run))


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (NodeRecord, {"node": HUGE}),
        (BagRecord, {"model": 0, "models": HUGE, "bootstrap": "x", "seed": 1}),
        (WorkerRecord, {"worker": 0, "workers": HUGE}),
        (JobRearranged, {"job": 1, "ranks": HUGE, "settings": {}, "changes": []}),
        (JobPlanned, {"job": 10**400, "sha256": ""}),
        (JobPlanned, {"job": -1, "sha256": ""}),
        (Counted, {"model": "m", "batch": 10**400, "sha256": ""}),
        (Turn, {"round": 10**9, "worker": 0}),
        (TrainSettings, {"batch": 10**12}),
    ],
)
def test_a_huge_number_is_refused(kind: Any, facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"less than|greater than"):
        kind.model_validate(facts)


@pytest.mark.parametrize("number", [1, 2, 12, 13, 36, 97, 360])
def test_divisors(number: int) -> None:
    assert divisors(number) == [n for n in range(1, number + 1) if number % n == 0]


def test_advice_on_a_large_batch_comes_at_once() -> None:
    batch = 2**31 - 1  # a prime
    with pytest.raises(ValueError, match="accumulate"):
        TrainSettings(batch=batch, accumulate=2)


@pytest.mark.parametrize("models", [HUGE, MAX_PROCESSES, "x", [1], True])
def test_a_run_that_requests_many_jobs_is_judged_at_once(tmp_path: Path, models: object) -> None:
    run = submit(tmp_path)
    data = json.loads((run.path / "run.json").read_text())
    data["settings"]["repeat"] = 1000
    for settings in data["settings"]["workloads"].values():
        settings["models"] = models
    (run.path / "run.json").write_text(json.dumps(data))
    contents = Contents(type(run).open(run.path))
    if models == MAX_PROCESSES:
        found = check_jobs(contents)
        assert (found.verdict, "number 1 is missing" in found.evidence) == ("fail", True)
    else:
        with pytest.raises(FolderError, match="expected 1 to 65536"):
            check_jobs(contents)
