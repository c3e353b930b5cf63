"""A worker: available candidates, the end of its time, and candidates that fail."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.automl_parts import (
    DATA,
    candidate,
    new_run,
    settings,
    trained,
    turn,
    write_event,
)
from tests.support.never_stopped import NeverStopped
from vflops.errors import FolderError, Interrupted, RestartNeeded, RunFailed
from vflops.record.formats.job import Goal, JobRecord, WorkerRecord
from vflops.train.phase_clock import Clock
from vflops.workloads.automl.candidate import Deadline, candidate_record
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.candidate_source import ReplaySource, SearchSource
from vflops.workloads.automl.claiming import ClaimedCandidate
from vflops.workloads.automl.failed_candidates import read_failed_candidates
from vflops.workloads.automl.proposer_process import ProposerLoop
from vflops.workloads.automl.search_events import Turn, WorkerBegun
from vflops.workloads.automl.shared_results import SharedResults
from vflops.workloads.automl.worker import Worker
from vflops.workloads.automl.worker_history import UnfinishedCandidate


@dataclass
class FakeSearch:
    """Replaces the proposer process."""

    on: bool = True
    last_line: str = "nothing within the limits"

    def is_running(self) -> bool:
        return self.on

    def close(self) -> None:
        self.on = False


def test_ordered_offers_are_the_workers_own_turn_and_free_ones_everything(tmp_path: Path) -> None:
    buffer, search = CandidateBuffer(tmp_path), FakeSearch()
    for at in (turn(0, 0), turn(0, 1), turn(1, 1)):
        buffer.put(candidate(at))
    buffer.put(candidate(turn(2, 1)))
    own = SearchSource(search, buffer, 1)  # type: ignore[arg-type]
    free = SearchSource(search, buffer, None)  # type: ignore[arg-type]
    assert own.available() == (turn(0, 1),)
    assert free.available() == (turn(0, 0), turn(0, 1), turn(1, 1), turn(2, 1))
    buffer.claim(turn(0, 1), 1, 2)
    assert own.available() == (turn(1, 1),)
    for at in (turn(1, 1), turn(2, 1)):
        buffer.claim(at, 1, 2)
    assert own.available() == () and free.available() == (turn(0, 0),)


def record_of(worker: int) -> JobRecord:
    """One of two workers."""
    return JobRecord(
        job=1 + worker,
        workload="automl",
        repeat=0,
        seed=1,
        worker=WorkerRecord(worker=worker, workers=2),
        ranks=1,
        goal=Goal(quality="accuracy", better="higher", exponent=1.0, target=0.5),
        settings=settings(workers=2).model_dump(mode="json"),
        data=DATA,
    )


def test_all_ranks_read_the_past_before_the_first_one_writes_on(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    with folder.start_attempt(job=1) as log:
        write_event(log, "worker", WorkerBegun(worker=0, left_s=100.0))
    CandidateBuffer(folder.path).claim(turn(0, 0), 0, 1)
    log = folder.start_attempt(job=1)

    def barrier() -> None:  # what the first rank writes as soon as it may
        write_event(log, "worker", WorkerBegun(worker=0, left_s=90.0))

    context: Any = FakeContext(NeverStopped())
    context.record, context.attempt = record_of(0), folder.attempt_folder(1, 1)
    context.local_ranks = 2
    plan: Any = SimpleNamespace(ranks=2, leads=False, has_whole_model=True, barrier=barrier)
    other = Worker(context, settings(), plan, None, torch.device("cpu"), 1)  # type: ignore[arg-type]
    assert other.claimer.unfinished == [UnfinishedCandidate(turn(0, 0), tries=1)]
    assert [kind for kind, _ in context.events] == ["worker"]
    assert [event.kind for event in folder.job_history(1)[1].events] == ["worker"]
    log.__exit__()


def test_a_worker_that_comes_late_joins_the_others_where_they_are(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    buffer, record = CandidateBuffer(folder.path), record_of(1)

    def begins_at() -> Turn:
        return ProposerLoop(folder, record)._turn

    assert begins_at() == turn(0, 1)
    buffer.put(candidate(turn(0, 1)))
    assert begins_at() == turn(1, 1)
    for n in (1, 2, 3):
        buffer.give_up(turn(n, 1), 0, 300.0)
    assert begins_at() == turn(4, 1)
    buffer.end_turns(turn(4, 1))  # an earlier attempt found nothing there: this one finds out again
    assert begins_at() == turn(4, 1)


def test_offers_end_when_nothing_waits_and_the_search_has_ended(tmp_path: Path) -> None:
    buffer, search = CandidateBuffer(tmp_path), FakeSearch()
    source = SearchSource(search, buffer, None)  # type: ignore[arg-type]
    buffer.put(candidate(turn(0, 0)))
    source.close()
    assert source.available() == (turn(0, 0),)  # what it left is trained
    buffer.claim(turn(0, 0), 0, 1)
    assert source.available() is None and source.end_reason == "nothing within the limits"


def test_a_replay_offers_parents_before_children_and_orphans_when_nobody_comes(
    tmp_path: Path,
) -> None:
    folder = new_run(tmp_path)
    buffer, shared = CandidateBuffer(folder.path), SharedResults(folder, {0: 1, 1: 2})
    one, two, three = turn(0, 0), turn(2, 1), turn(4, 0)
    for at, parent in ((one, None), (two, one.name), (three, two.name)):
        buffer.put(candidate(at, parent=parent))
    source = ReplaySource(buffer, shared, patience_s=60)
    assert source.available() == [one]
    buffer.claim(one, 0, 1)
    assert source.available() == []
    with folder.start_attempt(job=1) as log:
        write_event(log, "candidate-trained", trained(one.name, 0.5))
    assert source.available() == [two]
    buffer.claim(two, 1, 2)
    assert source.available() == []
    shared._heard_s[1] = time.monotonic() - 61  # its worker died for good
    assert source.available() == [three]
    shared._heard_s[1] = time.monotonic()
    assert source.available() == []
    with folder.start_attempt(job=2) as log:
        for name in (two.name, "r00009-w00001"):  # it went on: the line between was damaged
            log.write("candidate", candidate=name)
    assert source.available() == [three]
    buffer.claim(three, 0, 1)
    assert source.available() is None and source.end_reason is None
    buffer.put(candidate(turn(6, 0), parent="r00005-w00000"))  # of a parent that nobody can train
    assert source.available() == [turn(6, 0)]


@dataclass
class FakeContext:
    stop: Any
    attempt: Path = Path()
    rank: int = 0
    events: list[tuple[str, Any]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def write_event(self, kind: str, payload: Any) -> None:
        self.events.append((kind, payload))


def worker(ranks: int = 1, agreed: int = 0, attempt: Path = Path(), rank: int = 0) -> Any:
    """A worker without a device; ``agreed``: what another rank wants more than this one."""
    made = object.__new__(Worker)
    made.context = FakeContext(NeverStopped(), attempt, rank)  # type: ignore[assignment]
    made.plan = SimpleNamespace(  # type: ignore[assignment]
        ranks=ranks, leads=True, agree=lambda wish: max(wish, agreed)
    )
    made._ahead = None
    made._clean = lambda name: None  # type: ignore[method-assign]
    made.builder = SimpleNamespace(  # type: ignore[assignment]
        candidate=candidate, inherits=lambda _: False
    )
    return made


def failing(made: Any, error: Exception) -> Any:
    def attempt(*_: object) -> None:
        raise error

    made._attempt = attempt
    return made


@pytest.mark.parametrize(
    "error",
    [
        RunFailed("the loss is nan at step 3"),
        FolderError("weights are not what was written"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nand so on"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_candidate_that_cannot_be_trained_is_written_down(
    error: Exception, tmp_path: Path
) -> None:
    alone = failing(worker(), error)
    alone._train(ClaimedCandidate(turn(0, 0)))
    ((kind, failed),) = alone.context.events
    assert kind == "candidate-failed" and failed.candidate == "r00000-w00000"
    assert failed.message == str(error).splitlines()[0]
    several = failing(worker(ranks=2, attempt=tmp_path / "0", rank=1), error)
    several.context.attempt.mkdir()
    with pytest.raises(RestartNeeded):
        several._train(ClaimedCandidate(turn(0, 0)))  # the other rank waits in the middle of a step
    (left,) = read_failed_candidates(tmp_path)
    assert left.message == f"rank 1: {failed.message}"
    assert left.out_of_memory == isinstance(error, RuntimeError)


@pytest.mark.parametrize("error", [RuntimeError("a fault of ours"), Interrupted("stopped")])
def test_what_is_no_fault_of_the_candidate_ends_the_attempt(error: Exception) -> None:
    made = failing(worker(), error)
    with pytest.raises(type(error)):
        made._train(ClaimedCandidate(turn(0, 0)))
    assert made.context.events == []


def test_a_candidate_that_kills_its_worker_again_and_again_is_left_out() -> None:
    made = failing(worker(), AssertionError("it is tried once more"))
    made._train(
        ClaimedCandidate(turn(0, 0), UnfinishedCandidate(turn(0, 0), tries=2), hopeless=True)
    )
    ((kind, failed),) = made.context.events
    assert (
        kind == "candidate-failed"
        and "2 attempts of the worker died while training it" in failed.message
    )
    with pytest.raises(AssertionError, match="once more"):
        made._train(ClaimedCandidate(turn(0, 0), UnfinishedCandidate(turn(0, 0), tries=1)))


def test_what_no_rank_can_build_is_written_down_without_beginning_anew() -> None:
    def damaged(_: Any) -> None:
        raise FolderError("weights are not what was written")

    for builds, agreed, message in (
        (damaged, 0, "weights are not what was written"),
        (lambda at: candidate(at), 1, "another rank cannot build it"),
    ):
        made = worker(ranks=2, agreed=agreed)
        made.builder = SimpleNamespace(candidate=builds)
        made._train(ClaimedCandidate(turn(0, 0)))
        ((kind, failed),) = made.context.events
        assert (kind, failed.message) == ("candidate-failed", message)


def test_the_first_rank_says_whether_training_had_come_to_its_end() -> None:
    unfinished: Any = SimpleNamespace(finished=SimpleNamespace(step=7))
    assert worker()._finished_step(unfinished) == 7 and worker()._finished_step(None) is None
    for agreed, step in ((0, None), (8, 7)):
        other = worker(ranks=2, agreed=agreed)
        other.plan.leads = False
        assert other._finished_step(unfinished) == other._finished_step(None) == step


def test_a_deadline_is_a_wish_to_stop_and_a_signal_comes_first() -> None:
    quiet, told = SimpleNamespace(signal=None), SimpleNamespace(signal="SIGTERM")
    now_s = time.monotonic()
    assert Deadline(quiet, now_s + 60).signal is None
    assert Deadline(quiet, now_s - 1).signal == "the end of its search"
    assert Deadline(told, now_s - 1).signal == "SIGTERM"


def test_the_epochs_of_a_result_are_those_that_were_trained_not_the_evaluations() -> None:
    made = worker()
    made.weights = SimpleNamespace(save=lambda name, weights: "hash")
    made._predicted = lambda at, evaluations: None
    evaluations = [SimpleNamespace(quality=quality, step=1) for quality in (0.3, 0.7, 0.5)]
    ended = SimpleNamespace(epoch=6.0625, reason="patience")
    context = SimpleNamespace(evaluations=evaluations, finished_events=[ended])
    engine = SimpleNamespace(backend=SimpleNamespace(weights=dict))
    made._trained(candidate(turn(0, 0)), context, engine)
    ((kind, found),) = made.context.events
    assert (kind, found.epochs, found.accuracy) == ("candidate-trained", 6, 0.7)
    assert (found.reason, found.weights_sha256) == ("patience", "hash")


def test_a_replay_does_not_stop_at_the_target() -> None:
    own = settings()
    train = own.train.model_copy(update={"stop_at_target": True})
    record: Any = SimpleNamespace(
        seed=1,
        settings=own.model_copy(update={"train": train}).model_dump(mode="json"),
        model_copy=lambda update: update["settings"]["train"],
    )
    assert candidate_record(record, candidate(turn(0, 0)))["stop_at_target"]  # type: ignore[index]
    fixed: Any = candidate_record(record, candidate(turn(0, 0), end_epoch=3))
    assert (fixed["stop_at_target"], fixed["end_epoch"]) == (False, 3)
