"""Candidates that do not fit into the memory of a rank of a worker with several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import short_of_memory
from tests.support.automl_runs import results, searched
from vflops.errors import RestartNeeded
from vflops.record.formats.job_events import JobBegun, JobLost
from vflops.workloads.automl.failed_candidates import read_failed_candidates
from vflops.workloads.automl.search_events import CandidateFailed

SHORT = Path(short_of_memory.__path__[0])


def test_candidates_that_run_out_of_memory_on_another_rank_are_skipped_and_cost_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SHORT))
    monkeypatch.setenv("SHORT_OF_MEMORY", "r00001-w00000,r00002-w00000")
    words = ("--workers", "1", "--ranks", "2")
    folder = searched(tmp_path, "search.candidates=4", "bagging.attempts=1", words=words)
    assert sorted(results(folder)) == ["r00000-w00000", "r00003-w00000"]
    told = folder.history().events("candidate-failed")
    failed = [event.payload(CandidateFailed) for event in told]
    assert [item.candidate for item in failed] == ["r00001-w00000", "r00002-w00000"]
    assert all(item.out_of_memory and "rank 1: " in item.message for item in failed)
    assert [item.candidate for item in read_failed_candidates(folder.path / "jobs" / "1")] == [
        item.candidate for item in failed
    ]
    lost = [event.payload(JobLost) for event in folder.history(0).events("job-lost")]
    assert [(item.excused, item.suspects) for item in lost] == [(True, ())] * 2
    begun = [event.payload(JobBegun) for event in folder.history(0).events("job-begun")]
    assert [item.attempt for item in begun] == [1, 1, 1]
    report = (folder.path / "jobs" / "1" / "agent.log").read_text()
    assert report.count("r00001-w00000 cannot be trained") == 1
    tries = [event.data["candidate"] for event in folder.history().events("candidate")]
    assert tries.count("r00001-w00000") == tries.count("r00002-w00000") == 1
    assert RestartNeeded.exit_code not in (0, 1, 2, 3, 4)
