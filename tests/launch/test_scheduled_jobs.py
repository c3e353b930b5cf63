"""Jobs in the hands of a scheduler that a test plays: nodes, exclusions, silence."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.launch import scheduled_jobs
from vflops.launch.job_script import Request
from vflops.launch.scheduled_jobs import ScheduledJobs, SeparateJobs
from vflops.launch.scheduler import JobStatus, Scheduler
from vflops.launch.site import SiteSettings
from vflops.launch.slurm import sbatch_script
from vflops.launch.slurm.gang_scheduled_jobs import GangScheduledJobs
from vflops.launch.submissions import Intent, intents, submitted
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobLost


class Queue:
    """A scheduler of which a test says what it sees; it has four nodes."""

    name = label = "slurm"
    interval_s = 0.0
    job_script = staticmethod(sbatch_script.job_script)

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.seen = JobStatus("running", ("n1", "n2", "n3", "n4"), None)
        self.stopped: list[str] = []

    def find(self, name: str, intent: Path) -> str | None:
        names = [each.name for each in self.requests]
        return str(names.index(name) + 1) if name in names else None

    def submit(self, request: Request) -> str:
        if 4 - len(request.exclude) < request.nodes:
            raise UsageError("Requested node configuration is not available")
        self.requests.append(request)
        return str(len(self.requests))

    def look(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        return dict.fromkeys(ids, self.seen)

    def stop(self, ids: Sequence[str]) -> None:
        self.stopped = list(ids)


def jobs_of(place: Path, kind: type[ScheduledJobs], queue: Queue, jobs: int = 4) -> ScheduledJobs:
    folder = RunFolder.create(place, "image-classification", tiny())
    for job in range(1, jobs + 1):
        folder.job_file(job).parent.mkdir(parents=True)
    return again(folder, kind, queue, jobs)


def again(
    folder: RunFolder, kind: type[ScheduledJobs], queue: Queue, jobs: int = 4
) -> ScheduledJobs:
    """Another controller's jobs of the same run."""
    ranks = dict.fromkeys(range(1, jobs + 1), 1)
    return kind(folder, cast(Scheduler, queue), SiteSettings(), LaunchSettings(on="slurm"), ranks)


def folder_of(jobs: ScheduledJobs) -> RunFolder:
    return jobs._folder


def test_a_job_of_an_allocation_has_its_own_nodes_also_when_one_is_gone(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, GangScheduledJobs, queue)
    assert jobs.start({1: 3, 2: 3, 3: 3, 4: 3}) and not jobs.start({1: 3})
    assert set(jobs.active_jobs()) == {1, 2, 3, 4}
    assert [jobs.location(job) for job in (1, 2, 3, 4)] == ["n1", "n2", "n3", "n4"]
    queue.seen = JobStatus("running", ("n1", "n3", "n4"), None)
    jobs.active_jobs()
    assert [jobs.location(job) for job in (2, 3)] == ["n2", "n3"]
    kept = submitted(folder_of(jobs), 3)
    assert kept is not None
    assert (kept.script, kept.first_node, kept.nodes) == ("allocation-1.sh", 2, 1)


def test_a_node_that_lost_two_is_excluded_while_enough_others_are_left(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, GangScheduledJobs, queue)
    jobs.start(dict.fromkeys((1, 2, 3, 4), 3))
    jobs.active_jobs()
    assert [*jobs.suspects(2)] == ["n2"]
    with folder_of(jobs).start_attempt(job=0) as events:
        for node in ("n2", "n2", "n3"):
            lost = JobLost(job=2, reason="", where=node, suspects=(node,))
            events.write("job-lost", **lost.model_dump(mode="json"))
    jobs = again(folder_of(jobs), GangScheduledJobs, queue)  # whoever is the controller now
    queue.seen = JobStatus("ended", queue.seen.nodes, "FAILED")
    jobs.start({2: 1})
    assert "#SBATCH --exclude=n2\n" in queue.requests[-1].script.read_text()
    jobs.start(dict.fromkeys((1, 2, 3, 4), 1))  # all four nodes are needed
    assert not queue.requests[-1].exclude
    assert "--exclude" not in queue.requests[-1].script.read_text()


def test_a_stop_also_reaches_a_script_that_pauses(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, GangScheduledJobs, queue)
    jobs.start({1: 3})
    jobs.stop()
    assert queue.stopped == ["1"]
    assert (folder_of(jobs).path / "allocation-1.stop").is_file()


class Died(BaseException):
    """The controller is killed."""


@pytest.mark.parametrize("kind", [SeparateJobs, GangScheduledJobs])
def test_what_was_handed_in_by_a_controller_that_died_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[ScheduledJobs]
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, kind, queue)
    folder = folder_of(jobs)

    def died(*arguments: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Intent, "settle", died)
        with pytest.raises(Died):
            jobs.start({1: 3})
    (intent,) = intents(folder)
    assert folder.record.id.rpartition("-")[2] in intent.name
    assert f"#SBATCH --job-name={intent.name}\n" in queue.requests[0].script.read_text()
    assert submitted(folder, 1) is None
    adopted = again(folder, kind, queue)
    assert [*adopted.active_jobs()] == [1] and not intents(folder)
    known = submitted(folder, 1)
    assert known is not None and (known.id, known.attempt) == ("1", 1)
    queue.seen = JobStatus("ended", (), "FAILED")
    adopted.active_jobs()
    adopted.start({1: 2})
    assert queue.requests[1].name != queue.requests[0].name


def test_an_intent_that_came_to_nothing_is_forgotten_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue()
    folder = folder_of(jobs_of(tmp_path, GangScheduledJobs, queue))
    monkeypatch.setattr(scheduled_jobs, "_IN_FLIGHT_S", 0.0)
    Intent(name="x", scheduler="slurm", script="allocation-1.sh", jobs={}).write_beside(folder)
    again(folder, GangScheduledJobs, queue)
    assert len(intents(folder)) == 1
    monkeypatch.setattr(scheduled_jobs, "_STALE_S", 0.0)
    assert not again(folder, GangScheduledJobs, queue).active_jobs() and not intents(folder)


def test_a_signal_waits_until_what_is_handed_in_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, GangScheduledJobs, queue)
    submit = queue.submit

    def interrupted(request: Request) -> str:
        signal.raise_signal(signal.SIGINT)
        return submit(request)

    monkeypatch.setattr(queue, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.start({1: 3})
    assert submitted(folder_of(jobs), 1) is not None and not intents(folder_of(jobs))


@pytest.mark.parametrize(
    ("reason", "words", "suspect"),
    [
        ("NODE_FAIL", "", True),
        ("FAILED: NonZeroExitCode, exit code 1", "", True),
        ("FAILED", "rank 0 was killed by SIGKILL", True),
        ("FAILED", "the node does not see the run folder /x", True),
        ("FAILED", "the loss is not a number", False),
        ("FAILED", "another agent is running it: /x is in use by process 5", False),
        ("CANCELLED by 0", "", False),
        ("PREEMPTED", "", False),
        ("TIMEOUT", "", False),
    ],
)
def test_a_node_is_suspected_only_of_what_can_be_its_fault(
    tmp_path: Path, reason: str, words: str, suspect: bool
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, SeparateJobs, queue)
    log = folder_of(jobs).job_file(1).with_name("job-1.log")
    log.write_text("n1: job 1: what an earlier one said\n")
    jobs.start({1: 3})
    jobs.active_jobs()
    assert not jobs.suspects(1)  # it lives: it was put back in the queue
    with log.open("a") as file:
        file.write(f"n1: job 1: {words}\n" if words else "")
    queue.seen = JobStatus("ended", ("n1",), reason)
    jobs.active_jobs()
    assert [*jobs.suspects(1)] == (["n1"] if suspect else [])
    assert (jobs.running_elsewhere(1) is not None) == ("another agent" in words)


@pytest.mark.parametrize(
    ("state", "reason", "unseen"),
    [
        ("ended", "FAILED: NonZeroExitCode, signal 53", True),
        ("ended", "COMPLETED", True),
        ("ended", "CANCELLED", False),
        ("ended", "NODE_FAIL", False),
        ("waiting", "PENDING: Priority", False),
        ("running", None, False),  # it has just begun
    ],
)
def test_a_job_that_ran_and_left_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, reason: str | None, unseen: bool
) -> None:
    monkeypatch.setattr(scheduled_jobs, "_LATE_S", 0.0)
    queue = Queue()
    jobs = jobs_of(tmp_path, SeparateJobs, queue)
    jobs.start({1: 3})
    queue.seen = JobStatus(state, ("n3",), reason)  # type: ignore[arg-type]
    jobs.active_jobs()
    why = jobs.invisible_reason(1)
    assert (why is not None) == unseen
    assert why is None or ("n3" in why and str(reason) in why)
    folder_of(jobs).job_file(1).with_name("job-1.log").write_text("a word\n")
    assert jobs.invisible_reason(1) is None


def test_a_job_that_runs_long_in_silence_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled_jobs, "_SILENT_S", 0.0)
    jobs = jobs_of(tmp_path, SeparateJobs, Queue())
    jobs.start({1: 3})
    jobs.active_jobs()
    assert "running for 0 s" in (jobs.invisible_reason(1) or "")


def test_the_last_words_of_an_agent_are_the_reason(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, GangScheduledJobs, queue)
    jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    assert jobs.exit_reason(1) is None
    log = folder_of(jobs).path / "allocation-1.log"
    log.write_text(
        "n1: job 1: an earlier fault\nn1: job 1: the disk is full\nn2: job 2: other\n"
        "n1: job 11: not ours\nn1: job 1 was stopped by SIGTERM\n"
    )
    assert jobs.exit_reason(1) == "n1: job 1: the disk is full"
    queue.seen = JobStatus("ended", (), "TIMEOUT")
    jobs.active_jobs()
    assert jobs.exit_reason(2) == "slurm: TIMEOUT; n2: job 2: other"
