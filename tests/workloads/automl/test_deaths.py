"""Workers that die, come late, have no time, or find nothing: each candidate is trained once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.automl_runs import essence, results, wait_until
from tests.support.automl_workers import begun, concluded, planned, planned_replay, worked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.log.events import Event
from vflops.run.jobs import _early_ends
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import (
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    TurnPassed,
)
from vflops.workloads.automl.search_history import SearchHistory

THREE = ("search.candidates=3", "train.epochs=4", "train.checkpoint_s=0.001")
TWO = ("search.workers=2",)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """One worker, three rounds; the third candidate is a child of the first."""
    return concluded(worked(planned(tmp_path_factory.mktemp("calm"), *THREE)))


def samples(folder: RunFolder, *jobs: int) -> dict[str, int]:
    """What each candidate was charged with."""
    stories = SearchHistory([folder.job_history(job) for job in jobs]).candidates
    return {history.turn.name: history.samples for history in stories}


def kinds(folder: RunFolder) -> list[str]:
    """Of the events of the first worker's newest attempt."""
    return [event.kind for event in folder.job_history(1)[-1].events]


def test_a_worker_that_is_killed_at_any_moment_resumes_and_changes_nothing(
    calm: RunFolder, tmp_path: Path
) -> None:
    folder = planned(tmp_path, *THREE)
    moments = ("claim", "candidate", "checkpoint", "finished", "candidate-trained", "evaluation")
    for moment in moments:
        worked(folder, die=moment, code=-9)
        assert moment == "claim" or kinds(folder)[-1] == moment
    concluded(worked(folder))
    assert essence(folder) == essence(calm)
    tries = [event.data["candidate"] for event in folder.history().events("candidate")]
    # The claim was never begun; what died after it was begun three times, and once trained.
    assert [tries.count(f"r0000{n}-w00000") for n in range(3)] == [4, 2, 1]
    assert folder.history().events("resumed")[0].data["step"] >= 1  # from its checkpoint
    charged = {name: 128 * result.epochs for name, result in results(calm).items()}
    assert samples(folder, 1) == samples(calm, 1) == charged  # what was done twice counts once


def test_a_replay_gives_the_same_accuracies_and_weights(calm: RunFolder, tmp_path: Path) -> None:
    folder = concluded(worked(planned_replay(tmp_path, calm.path)))
    assert essence(folder) == essence(calm)
    inherited = {name: result.inherited for name, result in results(calm).items()}
    assert inherited == {name: result.inherited for name, result in results(folder).items()}
    assert any(inherited.values()) and not all(inherited.values())


def test_a_worker_whose_second_rank_is_killed_resumes_its_candidate(tmp_path: Path) -> None:
    long = ("train.epochs=24", "train.checkpoint_s=0.001", "search.candidates=1")
    folder = planned(tmp_path, "train.ranks=2", *long)
    first, second = begun(folder)

    def trains(events: list[Event]) -> bool:
        return [event.kind for event in events].count("checkpoint") >= 1

    wait_until(folder, trains, job=1)
    second.kill()  # the first one waits for it in a step, until its launcher ends it
    assert second.wait(timeout=20) == -9
    first.kill()
    first.wait(timeout=20)
    assert "end" not in kinds(folder)
    worked(folder)
    assert kinds(folder)[-1] == "end" and "resumed" in kinds(folder)
    assert list(results(folder)) == ["r00000-w00000"]
    assert samples(folder, 1) == {n: 128 * result.epochs for n, result in results(folder).items()}


def leave(folder: RunFolder, left_s: float) -> None:
    """Give the worker, which has begun, this much of its time from now on."""
    record = JobRecord.read(folder.job_file(1))
    spent_s = time.time() - folder.history().events("worker")[0].utc_s
    search = {**record.settings["search"], "duration_s": spent_s + left_s}
    changed = {"settings": {**record.settings, "search": search}}
    record.model_copy(update=changed).write(folder.job_file(1))


def test_a_worker_without_time_ends_in_the_middle_and_builds_nothing_when_it_comes_back(
    tmp_path: Path,
) -> None:
    folder = planned(tmp_path, "train.epochs=4000", "train.checkpoint_s=0.001")
    worked(folder, die="evaluation", code=-9)
    leave(folder, 0)
    done = samples(folder, 1)["r00000-w00000"]
    worked(folder, die="candidate-cut", code=-9)
    assert kinds(folder) == ["worker", "candidate-cut"]
    (cut,) = folder.history().events("candidate-cut")
    assert cut.payload(CandidateCut).samples == samples(folder, 1)["r00000-w00000"] == done
    assert not (folder.attempt_folder(1, 1) / "search.log").exists()
    leave(folder, 25)
    worked(folder)  # the next candidate, up to the end of the time
    assert [kind for kind in kinds(folder) if kind != "data-read"][-2:] == ["candidate-cut", "end"]
    assert 0 < folder.history().events("worker")[-1].data["left_s"] <= 25
    cut = folder.history().events("candidate-cut")[-1]
    assert cut.payload(CandidateCut).samples == samples(folder, 1)["r00001-w00000"] > 0
    assert not list(folder.path.glob("jobs/1/checkpoint/*"))
    concluded(folder)
    assert SearchLedger.find(folder.path).left_out == 2


def test_a_free_search_trains_each_candidate_once_and_fresh_weights_are_told(
    tmp_path: Path,
) -> None:
    free = ("search.order=free", "search.inherit=false", "search.candidates=3")
    folder = worked(planned(tmp_path, *TWO, *free), 1, 2)
    told = folder.history().events("candidate")
    names = [event.data["candidate"] for event in told]
    assert len(names) == len(set(names)) == 6 == len(results(folder))
    payloads = [event.payload(CandidateBegun) for event in told]
    assert not any(payload.inherited for payload in payloads)
    assert not any(result.inherited for result in results(folder).values())


def test_a_worker_that_comes_late_is_not_waited_for_and_trains_its_own(tmp_path: Path) -> None:
    folder = planned(tmp_path, *TWO, "search.candidates=2", "search.turn_s=2")
    worked(folder, 1)
    assert sorted(results(folder)) == ["r00000-w00000", "r00001-w00000"]
    passed = TurnPassed.read(folder.path / "buffer" / "r00000-w00001.passed.json")
    assert (passed.by, passed.waited_s > 2) == (0, True)
    worked(folder, 2)
    late = [name for name in results(folder) if name.endswith("w00001")]
    assert len(late) == 2 and "r00000-w00001" not in late


def test_a_candidate_that_diverges_is_written_down_and_the_search_goes_on(tmp_path: Path) -> None:
    """A learning rate beyond all reason: the loss is no number in the first epoch."""
    folder = planned(tmp_path, "search.candidates=2", "train.learning_rate=1e20")
    concluded(worked(folder))
    failed = [e.payload(CandidateFailed) for e in folder.history().events("candidate-failed")]
    assert [item.candidate for item in failed] == ["r00000-w00000", "r00001-w00000"]
    assert "the loss is" in failed[0].message
    assert failed[0].samples >= 32  # its steps up to then are told, and count
    ledger = SearchLedger.find(folder.path)
    assert (ledger.left_out, ledger.candidates) == (2, ())


def test_limits_that_leave_one_network_end_the_search_with_the_reason(tmp_path: Path) -> None:
    folder = worked(planned(tmp_path, *TWO, "search.limits.parameters=32844"), 1, 2)
    assert list(results(folder)) == ["r00000-w00000"]
    ends = folder.history().events("search-ended")
    assert [event.data["worker"] for event in ends] == [0, 1]
    records = [JobRecord.read(folder.job_file(job)) for job in (1, 2)]
    (told,) = _early_ends(folder, records)
    assert "no new architecture within" in told
