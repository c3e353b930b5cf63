"""Searches end to end: repeatable, exactly once, through deaths, limits and the end of time."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest
from automl_runs import (
    essence,
    rank_of,
    replayed,
    results,
    searched,
    started,
    wait_until,
)

from conftest import Vflops
from ensemble_runs import ended, wait_for
from vflops.automl.record import CandidateBegun, CandidateFailed, Passed
from vflops.automl.replay import SearchLedger
from vflops.automl.story import Search
from vflops.record.events import Event
from vflops.record.folder import RunFolder
from vflops.record.training import JobRecord

TWO = ("search.workers=2",)


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two workers, five rounds: the last one is tuned."""
    return searched(tmp_path_factory.mktemp("search"), *TWO, "search.candidates=5")


def test_a_search_leaves_a_ledger_and_no_weights_or_checkpoints(search: RunFolder) -> None:
    ledger = SearchLedger.find(search.path)
    assert ledger.left_out == 0 and ledger.workers == 2
    names = [each.candidate.turn.name for each in ledger.candidates]
    assert names == sorted(results(search)) and len(names) == 10
    assert not (search.path / "weights").exists()
    assert not list(search.path.glob("jobs/*/checkpoint/*"))
    assert all(each.candidate.tuned for each in ledger.candidates[8:])
    assert search.history().state.complete


def test_workers_have_a_name_each_by_construction(search: RunFolder) -> None:
    records = [JobRecord.read(search.job_file(job)) for job in (1, 2)]
    assert [each.worker.worker for each in records if each.worker] == [0, 1]
    assert {each.seed for each in records} == {1}
    for record in records:
        assert search.job_lock(record.job).exists()  # an agent holds it: a second one is refused


def test_a_slow_worker_and_a_shorter_time_change_nothing_of_what_is_searched(
    search: RunFolder, tmp_path: Path
) -> None:
    process = started(tmp_path, *TWO, "search.candidates=3")
    folder = wait_for(tmp_path, "worker", 2)
    rank = rank_of(folder, 2)
    rank.suspend()
    threading.Timer(3.0, rank.resume).start()
    short, whole = essence(ended(process, tmp_path)), essence(search)
    assert len(short) == 6
    assert short == {name: whole[name] for name in short}


def test_a_replay_with_as_many_workers_gives_the_same_accuracies_and_weights(
    search: RunFolder, tmp_path: Path
) -> None:
    folder = replayed(tmp_path, search.path)
    assert essence(folder) == essence(search)
    inherited = {name: each.inherited for name, each in results(search).items()}
    assert inherited == {name: each.inherited for name, each in results(folder).items()}
    assert any(inherited.values()) and not all(inherited.values())


def test_a_free_search_trains_each_candidate_once_and_fresh_weights_are_told(
    tmp_path: Path,
) -> None:
    settings = ("search.order=free", "search.inherit=false", "search.candidates=4")
    folder = searched(tmp_path, *TWO, *settings)
    begun = folder.history().events("candidate")
    names = [event.data["candidate"] for event in begun]
    assert len(names) == len(set(names)) == 8 == len(results(folder))
    payloads = [event.payload(CandidateBegun) for event in begun]
    assert not any(each.inherited for each in payloads)
    assert any(each.parent for each in payloads)
    assert not any(each.inherited for each in results(folder).values())


def test_a_worker_that_is_killed_resumes_its_candidate_and_changes_nothing(
    search: RunFolder, tmp_path: Path
) -> None:
    """In the middle of round 2, which has two epochs, after a checkpoint."""
    process = started(tmp_path, *TWO, "search.candidates=4", "train.checkpoint_s=0.001")
    folder = wait_for(tmp_path, "worker", 1)

    def in_the_middle(events: list[Event]) -> bool:
        kinds = [event.kind for event in events]
        return kinds.count("candidate") == 3 and kinds[-1] in ("checkpoint", "evaluation")

    events = wait_until(folder, in_the_middle, job=1)
    rank_of(folder, 1).kill()
    killed = [event for event in events if event.kind == "candidate"][-1].data["candidate"]
    short, whole = essence(ended(process, tmp_path)), essence(search)
    assert short == {name: whole[name] for name in short} and len(short) == 8
    history = folder.history()
    begun = [event.data["candidate"] for event in history.events("candidate", job=1)]
    assert begun.count(killed) == 2 and len(begun) == 5
    assert history.events("resumed", job=1)[0].data["step"] >= 1  # from its checkpoint
    stories = Search([folder.job_history(job) for job in (1, 2)]).candidates
    assert {each.turn.name: each.samples for each in stories} == {
        name: 128 * each.epochs for name, each in results(folder).items()
    }  # what was done twice is charged once
    assert len(history.events("job-lost")) == 1


def test_a_silent_workers_turns_pass_and_that_is_written_down(tmp_path: Path) -> None:
    process = started(tmp_path, *TWO, "search.candidates=4", "search.turn_s=2")
    folder = wait_for(tmp_path, "worker", 2)
    rank = rank_of(folder, 2)
    rank.suspend()
    try:
        first = wait_until(folder, lambda events: any(e.kind == "end" for e in events), job=1)
    finally:
        rank.resume()
    assert sum(event.kind == "candidate-trained" for event in first) == 4
    folder = ended(process, tmp_path)
    assert len(results(folder)) == 8  # it trained its own when it came back
    passed = folder.path / "buffer" / "r00000-w00001.passed.json"
    document = Passed.read(passed)  # on a busy machine the other one's may have passed too
    assert (document.by, document.waited_s > 2) == (0, True)


def test_a_claim_without_a_beginning_is_taken_up_after_a_death(tmp_path: Path) -> None:
    """The moment between the claim and the first word of the candidate."""
    process = started(tmp_path, "search.candidates=2", "search.inherit=false")
    folder = wait_for(tmp_path, "worker", 1)
    claim = folder.path / "claims" / "r00000-w00000.json"
    rank = _at_the_claim(folder, claim)
    assert not folder.history().events("candidate", job=1)
    rank.kill()
    folder = ended(process, tmp_path)
    assert sorted(results(folder)) == ["r00000-w00000", "r00001-w00000"]


def _at_the_claim(folder: RunFolder, claim: Path) -> psutil.Process:
    """The rank, stopped as soon as its claim is there: building takes longer than seeing it."""
    rank = rank_of(folder, 1)
    while not claim.exists():
        pass
    rank.suspend()
    return rank


def test_a_candidate_that_diverges_is_written_down_and_the_search_goes_on(tmp_path: Path) -> None:
    """A learning rate beyond all reason: the loss is no number in the first epoch."""
    folder = searched(tmp_path, "search.candidates=2", "train.learning_rate=1e20")
    failed = [e.payload(CandidateFailed) for e in folder.history().events("candidate-failed")]
    assert [each.candidate for each in failed] == ["r00000-w00000", "r00001-w00000"]
    assert "the loss is" in failed[0].message
    assert SearchLedger.find(folder.path).left_out == 2
    again = folder.path
    with pytest.raises(AssertionError, match="holds no candidate that was trained"):
        replayed(tmp_path, again)


def test_the_time_ends_in_the_middle_of_a_candidate_and_the_run_is_complete(tmp_path: Path) -> None:
    folder = searched(tmp_path, "train.epochs=2000", "search.duration_s=4")
    history = folder.history()
    (cut,) = history.events("candidate-cut")
    assert cut.data["samples"] > 0 and history.state.complete
    assert SearchLedger.find(folder.path).left_out == 1


def test_limits_that_leave_one_network_end_the_search_with_the_reason(tmp_path: Path) -> None:
    process = started(tmp_path, *TWO, "search.limits.parameters=32844")
    out, err = process.communicate(timeout=120)
    folder = ended(process, tmp_path)
    assert list(results(folder)) == ["r00000-w00000"]
    ends = folder.history().events("search-ended")
    assert [event.data["worker"] for event in ends] == [0, 1]
    assert "no new architecture within" in ends[0].data["message"]
    assert "no new architecture within" in out + err
    assert not folder.history().events("job-lost")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "0"), "search.workers = 0"),
        (("--workers", "-1"), "search.workers = -1"),
        (("--workers", "4096"), "4096 workers"),
        (("--for", "soon"), "'soon' is no length of time"),
        (("--for", "0s"), "'0s' is no length of time"),
        (("--for", "999d"), "search.duration_s"),
        (("--models", "2"), "take --workers 2"),
        (("--repeat", "2"), "a run holds one"),
        (("--set", "target=1.5"), "target = 1.5"),
        (("--set", "search.error=1"), "search.error = 1"),
        (("--set", "search.searcher=baysian"), "'bayesian', 'evolution' or 'random'"),
        (("--set", "search.kernels=[3,3]"), "each once"),
        (("--set", "search.batches=[7]", "--ranks", "2"), "search.batches holds 7"),
        (("--set", "search.limits.parameters=100"), "32,844 is more than 100"),
        (("--set", "search.limits.depth=1", "--set", "search.limits.parameters=9"), "depth: "),
    ],
)
def test_what_cannot_be_searched_is_refused_before_there_is_a_folder(
    vflops: Vflops, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = vflops("run", "automl", "--profile", "tiny", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("workload", [("image-classification",), ()])
def test_flags_of_a_search_are_refused_elsewhere(vflops: Vflops, workload: tuple[str, ...]) -> None:
    done = vflops("run", *workload, "--profile", "tiny", "--workers", "2", "--for", "1h30m")
    assert done.returncode == 2
    assert "--workers 2 --for 1h30m is for a search" in done.stderr
    assert "run automl --workers 2 --for 1h30m" in done.stderr


def test_a_plan_of_a_search_places_workers_and_promises_no_operations(vflops: Vflops) -> None:
    there = ("--nodes", "2", "--slots", "2")
    done = vflops("plan", "automl", "--profile", "tiny", "--workers", "2", "--ranks", "2", *there)
    assert done.returncode == 0, done.stderr
    assert "2 workers of 2 ranks" in done.stdout
    assert "operations              not known before" in done.stdout
    done = vflops("plan", "automl", "--profile", "tiny", "--workers", "5", *there)
    assert done.returncode == 2 and "4 do: --workers 4" in done.stderr
