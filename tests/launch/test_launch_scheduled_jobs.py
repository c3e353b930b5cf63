"""Jobs in the hands of a scheduler that a test plays: nodes, exclusions, silence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.launch import scheduled_jobs as module
from vflops.launch.scheduled_jobs import JobsApart, JobsTogether, ScheduledJobs, submitted
from vflops.launch.scheduler import Scheduler, Seen
from vflops.launch.script import Request
from vflops.launch.site import SiteSettings
from vflops.record.folder import RunFolder


class Queue:
    """A scheduler of which a test says what it sees; it has four nodes."""

    name = label = "slurm"
    interval_s = 0.0

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.seen = Seen("running", ("n1", "n2", "n3", "n4"), None)
        self.stopped: list[str] = []

    def submit(self, request: Request) -> str:
        if 4 - len(request.exclude) < request.nodes:
            raise UsageError("Requested node configuration is not available")
        self.requests.append(request)
        return str(len(self.requests))

    def look(self, ids: Sequence[str]) -> dict[str, Seen]:
        return dict.fromkeys(ids, self.seen)

    def stop(self, ids: Sequence[str]) -> None:
        self.stopped = list(ids)


def jobs_of(place: Path, kind: type[ScheduledJobs], queue: Queue, jobs: int = 4) -> ScheduledJobs:
    folder = RunFolder.create(place, "image-classification", tiny())
    for job in range(1, jobs + 1):
        folder.job_file(job).parent.mkdir(parents=True)
    ranks = dict.fromkeys(range(1, jobs + 1), 1)
    return kind(folder, cast(Scheduler, queue), SiteSettings(), LaunchSettings(on="slurm"), ranks)


def folder_of(jobs: ScheduledJobs) -> RunFolder:
    return jobs._folder


def test_a_job_of_an_allocation_has_its_own_nodes_also_when_one_is_gone(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, JobsTogether, queue)
    assert jobs.start({1: 3, 2: 3, 3: 3, 4: 3}) and not jobs.start({1: 3})
    assert set(jobs.alive()) == {1, 2, 3, 4}
    assert [jobs.where(job) for job in (1, 2, 3, 4)] == ["n1", "n2", "n3", "n4"]
    queue.seen = Seen("running", ("n1", "n3", "n4"), None)
    jobs.alive()
    assert [jobs.where(job) for job in (2, 3)] == ["n2", "n3"]
    kept = submitted(folder_of(jobs), 3)
    assert kept is not None
    assert (kept.script, kept.first_node, kept.nodes) == ("allocation-1.sh", 2, 1)


def test_a_node_that_lost_two_is_excluded_while_enough_others_are_left(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, JobsTogether, queue)
    jobs.start(dict.fromkeys((1, 2, 3, 4), 3))
    jobs.alive()
    for job in (2, 2, 3):
        jobs.lost(job)
    queue.seen = Seen("ended", queue.seen.nodes, "FAILED")
    jobs.start({2: 1})
    assert "#SBATCH --exclude=n2\n" in queue.requests[-1].script.read_text()
    jobs.start(dict.fromkeys((1, 2, 3, 4), 1))  # all four nodes are needed
    assert not queue.requests[-1].exclude
    assert "--exclude" not in queue.requests[-1].script.read_text()


def test_a_stop_also_reaches_a_script_that_pauses(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, JobsTogether, queue)
    jobs.start({1: 3})
    jobs.stop()
    assert queue.stopped == ["1"]
    assert (folder_of(jobs).path / "allocation-1.stop").is_file()


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
    monkeypatch.setattr(module, "_LATE_S", 0.0)
    queue = Queue()
    jobs = jobs_of(tmp_path, JobsApart, queue)
    jobs.start({1: 3})
    queue.seen = Seen(state, ("n3",), reason)  # type: ignore[arg-type]
    jobs.alive()
    why = jobs.unseen(1)
    assert (why is not None) == unseen
    assert why is None or ("n3" in why and str(reason) in why)
    folder_of(jobs).job_file(1).with_name("job-1.log").write_text("a word\n")
    assert jobs.unseen(1) is None


def test_a_job_that_runs_long_in_silence_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SILENT_S", 0.0)
    jobs = jobs_of(tmp_path, JobsApart, Queue())
    jobs.start({1: 3})
    jobs.alive()
    assert "running for 0 s" in (jobs.unseen(1) or "")


def test_the_last_words_of_an_agent_are_the_reason(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, JobsTogether, queue)
    jobs.start({1: 3, 2: 3})
    jobs.alive()
    assert jobs.ending(1) is None
    log = folder_of(jobs).path / "allocation-1.log"
    log.write_text(
        "n1: job 1: an earlier fault\nn1: job 1: the disk is full\nn2: job 2: other\n"
        "n1: job 11: not ours\nn1: job 1 was stopped by SIGTERM\n"
    )
    assert jobs.ending(1) == "n1: job 1: the disk is full"
    queue.seen = Seen("ended", (), "TIMEOUT")
    jobs.alive()
    assert jobs.ending(2) == "slurm: TIMEOUT; n2: job 2: other"
