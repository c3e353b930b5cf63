"""Jobs on a fake scheduler: nodes, exclusions, missing output."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import pytest

from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import RunFailed, UsageError
from vflops.launch.agent_report import AgentReport, Outcome
from vflops.launch.job_script import Request, step_log, steps_folder
from vflops.launch.launcher import Ending, How
from vflops.launch.scheduler import EndedBy, JobStatus, SchedulerUnavailable, Unreachable
from vflops.launch.slurm import (
    node_silence,
    outage,
    slurm_launcher,
    slurm_resources,
    step_ends,
    time_limits,
)
from vflops.launch.slurm import submissions as records_of_submissions
from vflops.launch.slurm.slurm_launcher import SlurmLauncher
from vflops.launch.slurm.slurm_nodes import SlurmNode
from vflops.launch.slurm.slurm_scheduler import _ENDED_BY
from vflops.launch.slurm.step_ends import StepEnd
from vflops.launch.slurm.submissions import Intent, read_intents, read_submission
from vflops.launch.waiting import refresh_listing
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobLost
from vflops.record.formats.node import Clock, NodeRecord, node_file, telemetry_file

Start = Literal["together", "apart"]


class Queue:
    """A scheduler of four nodes that reports the status that a test sets, for all or for one."""

    name = label = "slurm"
    interval_s = 0.0
    allocation = None

    def unreachable_nodes(self, nodes: Collection[str]) -> dict[str, Unreachable]:
        return {node: found for node, found in self.unreachable.items() if node in nodes}

    def __init__(self) -> None:
        self.unreachable: dict[str, Unreachable] = {}
        self.requests: list[Request] = []
        self.status = JobStatus("running", ("n1", "n2", "n3", "n4"), None)
        self.stopped: list[str] = []
        self.statuses: dict[str, JobStatus] = {}

    def find(self, name: str, intent: Path) -> str | None:
        names = [request.name for request in self.requests]
        return str(names.index(name) + 1) if name in names else None

    def submit(self, request: Request) -> str:
        if 4 - len(request.exclude) < request.nodes:
            raise UsageError("Requested node configuration is not available")
        self.requests.append(request)
        return str(len(self.requests))

    def expect_change(self) -> None:
        pass

    def look(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        return {job: self.statuses.get(job, self.status) for job in ids}

    def stop(self, ids: Sequence[str]) -> None:
        self.stopped = list(ids)


class Nodes:
    """The partition, as SLURM lists it, and the queries for its nodes and its time limit."""

    def __init__(self) -> None:
        self.gpus = {"n1": 0, "n2": 0, "n3": 0, "n4": 0}
        self.down: set[str] = set()
        self.queries: list[str] = []

    def listed(self, partition: str | None) -> list[SlurmNode]:
        self.queries.append("nodes")
        return [
            SlurmNode(
                name=name,
                cpus=96,
                memory_mb=1_000_000,
                resources=f"gpu:h100:{gpus}" if gpus else "(null)",
                state="down" if name in self.down else "idle",
                reason="none",
                in_default=True,
            )
            for name, gpus in self.gpus.items()
        ]

    def limit_s(self, partition: str | None) -> float | None:
        self.queries.append("limit")
        return None


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    found = Nodes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(slurm_resources, "list_nodes", found.listed)
    monkeypatch.setattr(time_limits, "default_limit_s", found.limit_s)
    return found


def jobs_of(
    parent: Path, start: Start, queue: Queue, jobs: int = 4, **launch: int
) -> SlurmLauncher:
    chosen = LaunchSettings.model_validate({"on": "slurm", "start": start, **launch})
    settings = tiny().model_copy(update={"launch": chosen})
    folder = RunFolder.create(parent, "image-classification", settings)
    for job in range(1, jobs + 1):
        folder.job_file(job).parent.mkdir(parents=True)
    return jobs_again(folder, queue, jobs)


def _record(job: int) -> JobRecord:
    settings = {"train": {"device": "auto"}}
    return cast(JobRecord, SimpleNamespace(job=job, ranks=1, settings=settings))


def jobs_again(folder: RunFolder, queue: Queue, jobs: int = 4) -> SlurmLauncher:
    """Return the jobs of the same run, as another controller sees them."""
    records = [_record(job) for job in range(1, jobs + 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm_launcher, "scheduler_of_run", lambda folder, jobs: queue)
        return SlurmLauncher(folder, records)


def report(job: int, message: str, outcome: Outcome = "failed") -> str:
    """Return the line that an agent on n1 writes."""
    line = AgentReport(node="n1", job=job, outcome=outcome, message=message)
    return line.model_dump_json() + "\n"


def folder_of(jobs: SlurmLauncher) -> RunFolder:
    return jobs._folder


def test_a_job_keeps_its_nodes_after_one_of_the_allocation_is_lost(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    assert jobs.start({1: 3, 2: 3, 3: 3, 4: 3}) and not jobs.start({1: 3})
    assert set(jobs.active_jobs()) == {1, 2, 3, 4}
    assert [jobs.location(job) for job in (1, 2, 3, 4)] == ["n1", "n2", "n3", "n4"]
    queue.status = JobStatus("running", ("n1", "n3", "n4"), None)
    jobs.active_jobs()
    assert [jobs.location(job) for job in (2, 3)] == ["n2", "n3"]
    record = read_submission(folder_of(jobs), 3)
    assert record is not None
    assert (record.script, record.first_node, record.nodes) == ("allocation-1.sh", 2, 1)


def test_a_node_that_lost_two_jobs_is_excluded_if_enough_others_are_left(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    jobs.start(dict.fromkeys((1, 2, 3, 4), 3))
    jobs.active_jobs()
    assert [*jobs.ending(2).suspects] == ["n2"]
    with folder_of(jobs).start_attempt(job=0) as events:
        for node in ("n2", "n2", "n3"):
            lost = JobLost(job=2, reason="", where=node, suspects=(node,))
            events.write("job-lost", **lost.model_dump(mode="json"))
    jobs = jobs_again(folder_of(jobs), queue)  # as a new controller
    queue.status = JobStatus("ended", queue.status.nodes, "FAILED")
    jobs.start({2: 1})
    assert "#SBATCH --exclude=n2\n" in queue.requests[-1].script.read_text()
    jobs.start(dict.fromkeys((1, 2, 3, 4), 1))  # all four nodes are needed
    assert not queue.requests[-1].exclude
    assert "--exclude" not in queue.requests[-1].script.read_text()


def test_a_node_where_a_rank_hung_is_excluded_at_once(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "apart", queue)
    with folder_of(jobs).start_attempt(job=0) as events:
        for node, hung in (("n3", True), ("n1", False)):
            lost = JobLost(job=2, reason="", where=node, suspects=(node,), hung=hung)
            events.write("job-lost", **lost.model_dump(mode="json"))
        lost = JobLost(job=2, reason="", where="n2, n4", suspects=("n2", "n4"), hung=True)
        events.write("job-lost", **lost.model_dump(mode="json"))
    jobs.start({2: 1})
    assert queue.requests[-1].exclude == ("n3",)  # only one of n2 and n4 is at fault


def telemetry_of(folder: RunFolder, job: int, node: str) -> Path:
    """Start an attempt at the job on a node, and return the telemetry of its agent."""
    with folder.start_attempt(job=job) as events:
        events.write("begun")
    attempt = folder.logged_attempts(job)[-1]
    NodeRecord(
        node=0,
        nodes=1,
        host=node,
        name=node,
        reference=None,
        clock=Clock(offset_s=0.0, uncertainty_s=0.0),
        facts=(),
    ).write(node_file(attempt, 0))
    path = telemetry_file(attempt, 0)
    path.write_text("a sample\n")
    return path


def test_a_node_that_slurm_does_not_reach_is_lost_once_its_jobs_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(node_silence, "monotonic", lambda: now_s)
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    jobs.start(dict.fromkeys((1, 2, 3, 4), 3))
    assert [*jobs.active_jobs()] == [1, 2, 3, 4]
    busy, silent = (telemetry_of(folder_of(jobs), job, f"n{job}") for job in (1, 2))
    queue.unreachable = {
        **{f"n{k}": Unreachable(f"n{k} does not respond", is_down=False) for k in (1, 2, 3)},
        "n4": Unreachable("n4 is down: board", is_down=True),
    }
    for step in range(3):  # NFS may hide for over 60 s that a file has grown
        now_s += 40
        jobs.expect_end()
        assert [*jobs.active_jobs()] == [1, 2, 3], step
        with busy.open("a") as file:
            file.write("another sample\n")
    now_s += 10
    jobs.expect_end()
    assert [*jobs.active_jobs()] == [1, 3]  # job 3 has not begun to write
    words = "node n2 does not respond, and its jobs have written nothing for 90 s"
    assert words in str(jobs.ending(2).reason)
    assert [*jobs.ending(2).suspects] == ["n2"]
    assert "node n4 is down: board" in str(jobs.ending(4).reason)
    with silent.open("a") as file:  # it was cut off, and is back
        file.write("another sample\n")
    now_s += 10
    jobs.expect_end()
    assert [*jobs.active_jobs()] == [1, 2, 3]


def test_a_stop_also_reaches_a_script_that_waits_to_retry(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    jobs.start({1: 3})
    jobs.stop()
    assert queue.stopped == ["1"]
    assert (folder_of(jobs).path / "allocation-1.stop").is_file()


class Died(BaseException):
    """The controller is killed."""


@pytest.mark.parametrize("start", ["apart", "together"])
def test_a_submission_of_a_controller_that_died_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, start, queue)
    folder = folder_of(jobs)

    def die(*arguments: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Intent, "settle", die)
        with pytest.raises(Died):
            jobs.start({1: 3})
    (intent,) = read_intents(folder)
    assert folder.record.id.rpartition("-")[2] in intent.name
    assert f"#SBATCH --job-name={intent.name}\n" in queue.requests[0].script.read_text()
    assert read_submission(folder, 1) is None
    adopted = jobs_again(folder, queue)
    assert [*adopted.active_jobs()] == [1] and not read_intents(folder)
    record = read_submission(folder, 1)
    assert record is not None and (record.id, record.attempt) == ("1", 1)
    queue.status = JobStatus("ended", (), "FAILED")
    adopted.active_jobs()
    adopted.start({1: 2})
    assert queue.requests[1].name != queue.requests[0].name


class Absent(Queue):
    """A scheduler that does not answer some of its requests."""

    def __init__(self, *submissions: str) -> None:
        """``submissions`` says for each whether it is accepted, refused or lost on its way."""
        super().__init__()
        self.submissions = list(submissions)

    def submit(self, request: Request) -> str:
        outcome = self.submissions.pop(0) if len(self.submissions) > 1 else self.submissions[0]
        if outcome == "no connection":
            raise SchedulerUnavailable("no connection", may_have_succeeded=False)
        native = super().submit(request) if outcome != "lost" else ""
        if outcome != "accepted":
            raise SchedulerUnavailable("timed out", may_have_succeeded=True)
        return native


@pytest.mark.parametrize(
    ("submissions", "accepted"),
    [
        (("no connection", "no connection", "accepted"), 1),
        (("lost", "accepted"), 1),
        (("accepted without an answer", "accepted"), 1),
    ],
)
def test_a_scheduler_that_does_not_answer_is_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    submissions: tuple[str, ...],
    accepted: int,
) -> None:
    monkeypatch.setattr(outage, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(records_of_submissions, "_IN_FLIGHT_S", 0.0)
    queue = Absent(*submissions)
    jobs = jobs_of(tmp_path, "together", queue)
    assert jobs.start({1: 1})
    assert len(queue.requests) == accepted  # never twice
    record = read_submission(folder_of(jobs), 1)
    assert record is not None and record.id == "1" and not read_intents(folder_of(jobs))
    said = capsys.readouterr().err
    assert "slurm does not answer (" in said and "slurm answers again, after 0 s" in said


def test_a_scheduler_that_never_answers_is_given_up_and_the_run_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outage, "LIMIT_S", 0.01)
    monkeypatch.setattr(records_of_submissions, "_IN_FLIGHT_S", 0.0)
    jobs = jobs_of(tmp_path, "together", Absent("no connection"))
    with pytest.raises(RunFailed, match="slurm did not answer for 0 s: no connection") as error:
        jobs.start({1: 1})
    assert f"vflops resume {folder_of(jobs).path}" in (error.value.hint or "")
    queue = Queue()
    jobs_again(folder_of(jobs), queue).start({1: 1})
    assert len(queue.requests) == 1


def test_an_intent_without_a_submission_is_removed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue()
    folder = folder_of(jobs_of(tmp_path, "together", queue))
    monkeypatch.setattr(records_of_submissions, "_IN_FLIGHT_S", 0.0)
    Intent(name="x", scheduler="slurm", script="allocation-1.sh", jobs={}).write_beside(folder)
    jobs_again(folder, queue)
    assert len(read_intents(folder)) == 1
    monkeypatch.setattr(records_of_submissions, "_STALE_S", 0.0)
    assert not jobs_again(folder, queue).active_jobs() and not read_intents(folder)


def test_a_signal_is_deferred_until_the_submission_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    submit = queue.submit

    def interrupted(request: Request) -> str:
        signal.raise_signal(signal.SIGINT)
        return submit(request)

    monkeypatch.setattr(queue, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.start({1: 3})
    assert read_submission(folder_of(jobs), 1) is not None and not read_intents(folder_of(jobs))


@pytest.mark.parametrize(
    ("reason", "outcome", "suspect"),
    [
        ("NODE_FAIL", None, True),
        ("FAILED: NonZeroExitCode, exit code 1", None, True),
        ("FAILED", "killed", True),
        ("FAILED", "hung", True),
        ("FAILED", "unseen", True),
        ("FAILED", "failed", False),
        ("FAILED", "elsewhere", False),
        ("CANCELLED by 0", None, False),
        ("PREEMPTED", None, False),
        ("TIMEOUT", None, False),
    ],
)
def test_a_node_is_suspected_only_if_it_can_be_at_fault(
    tmp_path: Path, reason: str, outcome: Outcome | None, suspect: bool
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "apart", queue)
    log = folder_of(jobs).job_file(1).with_name("job-1.log")
    log.write_text(report(1, "a message of an earlier agent"))
    jobs.start({1: 3})
    jobs.active_jobs()
    assert not jobs.ending(1).suspects  # it is active: it was requeued
    with log.open("a") as file:
        file.write(report(1, "its end", outcome) if outcome else "")
    ended_by = _ENDED_BY.get(reason.split()[0])
    queue.status = JobStatus("ended", ("n1",), "some words", ended_by=ended_by)
    jobs.active_jobs()
    assert [*jobs.ending(1).suspects] == (["n1"] if suspect else [])
    assert (jobs.ending(1).how == "elsewhere") == (outcome == "elsewhere")


@pytest.mark.parametrize(
    ("state", "reason", "unseen"),
    [
        ("ended", "FAILED: NonZeroExitCode, signal 53", True),
        ("ended", "COMPLETED", True),
        ("ended", "CANCELLED", False),
        ("ended", "NODE_FAIL", False),
        ("waiting", "PENDING: Priority", False),
        ("running", None, False),  # it has just started
    ],
)
def test_a_job_that_ran_without_output_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, reason: str | None, unseen: bool
) -> None:
    monkeypatch.setattr(slurm_launcher, "_LATE_S", 0.0)
    queue = Queue()
    jobs = jobs_of(tmp_path, "apart", queue)
    jobs.start({1: 3})
    ended_by = _ENDED_BY.get((reason or "").split(":")[0])
    queue.status = JobStatus(state, ("n3",), reason, ended_by=ended_by)  # type: ignore[arg-type]
    jobs.active_jobs()
    reason_given = jobs.invisible_reason(1)
    assert (reason_given is not None) == unseen
    assert reason_given is None or ("n3" in reason_given and str(reason) in reason_given)
    folder_of(jobs).job_file(1).with_name("job-1.log").write_text("a word\n")
    assert jobs.invisible_reason(1) is None


def test_a_job_that_runs_long_without_output_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_launcher, "_SILENT_S", 0.0)
    jobs = jobs_of(tmp_path, "apart", Queue())
    jobs.start({1: 3})
    jobs.active_jobs()
    assert "running for 0 s" in (jobs.invisible_reason(1) or "")


def test_slurm_is_asked_more_often_while_the_output_of_a_job_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    asked: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(slurm_launcher, "time", clock)
    queue = Queue()
    queue.interval_s = 30.0
    jobs = jobs_of(tmp_path, "together", queue)
    jobs.start({1: 3, 2: 3})
    look = queue.look

    def noted(ids: Sequence[str]) -> dict[str, JobStatus]:
        asked.append(now_s)
        return look(ids)

    monkeypatch.setattr(queue, "look", noted)
    for number in range(24):
        jobs.active_jobs()
        now_s += 1
        if number == 11:
            (folder_of(jobs).path / "allocation-1.log").touch()
    assert asked == [1000, 1005, 1010, 1020]


def test_looking_for_late_output_changes_the_folder_and_leaves_nothing_there(
    tmp_path: Path,
) -> None:
    before = tmp_path.stat().st_mtime_ns
    refresh_listing(tmp_path)
    assert tmp_path.stat().st_mtime_ns > before
    assert not list(tmp_path.iterdir())
    refresh_listing(tmp_path / "absent")


def test_the_last_report_of_a_jobs_own_agents_is_known(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    assert jobs.ending(1) == Ending(suspects=("n1",))
    script = folder_of(jobs).path / "allocation-1.sh"
    write_steps(script, 1, report(1, "an earlier fault"), report(1, "the disk is full") + "{}\n")
    write_steps(script, 2, report(2, "other").replace("n1", "n2"))
    write_steps(script, 11, report(11, "not ours"))
    found = jobs.ending(1).report
    assert found is not None and found.text == "n1: job 1: the disk is full"
    queue.status = JobStatus("ended", (), "TIMEOUT")
    jobs.active_jobs()
    ended = jobs.ending(2)
    assert (ended.reason, ended.report and ended.report.text) == (
        "slurm: TIMEOUT",
        "n2: job 2: other",
    )


def write_steps(script: Path, job: int, *outputs: str) -> None:
    steps_folder(script).mkdir(exist_ok=True)
    for number, output in enumerate(outputs, 1):
        step_log(script, job, number).write_text(output)


def test_an_error_of_srun_is_that_of_the_jobs_own_newest_step(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "together", Queue())
    jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    script = folder_of(jobs).path / "allocation-1.sh"
    script.with_suffix(".log").write_text("srun: error: of all jobs\n")
    assert jobs.ending(1).reason == "srun: error: of all jobs"  # it had no step yet
    write_steps(script, 1, "srun: error: old\n", "a\nsrun: error: first\nsrun: error: second\n")
    write_steps(script, 2, "a word\n")
    assert jobs.ending(1).reason == "srun: error: first"
    assert jobs.ending(2).reason is None


@pytest.mark.parametrize(
    ("ended_by", "outcome", "how"),
    [
        ("time limit", None, "limit"),
        ("failure", "limit", "limit"),  # the agents stopped when SLURM warned them
        ("failure", "stopped", "fault"),  # someone has signalled or cancelled the step
        ("cancellation", "stopped", "cancelled"),
        ("cancellation", None, "cancelled"),
        ("preemption", "stopped", "requeue"),
        ("failure", "failed", "fault"),
        ("failure", "elsewhere", "elsewhere"),
        ("time limit", "killed", "fault"),  # the limit came later
        ("time limit", "hung", "fault"),
        ("time limit", "failed", "fault"),
        ("time limit", "stopped", "limit"),
        ("preemption", "killed", "requeue"),
        ("cancellation", "killed", "cancelled"),
    ],
)
def test_how_a_job_ended(
    tmp_path: Path, ended_by: EndedBy, outcome: Outcome | None, how: How
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "apart", queue)
    jobs.start({1: 3})
    log = folder_of(jobs).job_file(1).with_name("job-1.log")
    log.write_text(report(1, "its end", outcome) if outcome else "")
    queue.status = JobStatus("ended", ("n1",), "some words", ended_by=ended_by)
    jobs.active_jobs()
    assert jobs.ending(1).how == how


def test_lost_nodes_are_looked_for_every_ten_seconds_and_not_blamed_for_later_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, asked, now_s = Queue(), list[list[str]](), 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)

    def unreachable_nodes(nodes: Collection[str]) -> dict[str, Unreachable]:
        asked.append(list(nodes))
        return {"n2": Unreachable("n2 is down", is_down=True)}

    monkeypatch.setattr(queue, "unreachable_nodes", unreachable_nodes)
    monkeypatch.setattr(queue, "interval_s", 7.0)
    jobs = jobs_of(tmp_path, "together", queue, jobs=2)
    jobs.start({1: 3, 2: 3})
    for _ in range(21):
        assert [*jobs.active_jobs()] == [1]
        now_s += 1
    assert asked == [["n1", "n2"]] * 3
    assert jobs.ending(2) == Ending(reason="slurm: node n2 is down", suspects=["n2"])
    queue.status = JobStatus("ended", queue.status.nodes, "FAILED")
    now_s += 7
    jobs.active_jobs()
    jobs.start({1: 2, 2: 2})
    queue.status = JobStatus("running", queue.status.nodes, None)
    assert [*jobs.active_jobs()] == [1, 2]  # the node may be back: it was not asked about since
    assert len(asked) == 3
    now_s += 10
    assert [*jobs.active_jobs()] == [1]


GPUS = "#SBATCH --gres=gpu:h100:1\n"


def first_try(parent: Path, start: Start, queue: Queue, nodes: Nodes) -> SlurmLauncher:
    """Start two jobs on GPU nodes, which then end."""
    nodes.gpus = {"n1": 8, "n2": 8, "n3": 2, "n4": 0}
    jobs = jobs_of(parent, start, queue, jobs=2, nodes=2)
    assert jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    queue.status = JobStatus("ended", (), "NODE_FAIL")
    jobs.active_jobs()
    return jobs


@pytest.mark.parametrize("start", ["together", "apart"])
@pytest.mark.parametrize("down", [{"n1"}, {"n1", "n2", "n3"}, {"n1", "n2", "n3", "n4"}])
@pytest.mark.parametrize("attached", [False, True])
def test_a_retry_asks_for_the_same_whatever_nodes_are_down(
    tmp_path: Path, nodes: Nodes, start: Start, down: set[str], attached: bool
) -> None:
    queue = Queue()
    jobs = first_try(tmp_path, start, queue, nodes)
    first = queue.requests[0]
    nodes.down, nodes.queries = down, []
    if attached:
        jobs = jobs_again(folder_of(jobs), queue, jobs=2)
    assert [*jobs.start({1: 2})] == [1]
    again = queue.requests[-1]
    assert GPUS in first.script.read_text() and GPUS in again.script.read_text()
    assert (again.cores_per_task, again.gpus_per_task, again.gpu_type) == (12, 1, "h100")
    assert again.memory_mb_per_task == first.memory_mb_per_task == 118_750
    assert "nodes" not in nodes.queries


@pytest.mark.parametrize("down", [{"n1"}, {"n1", "n2"}, {"n1", "n2", "n3"}])
def test_nodes_that_go_down_between_the_validation_and_the_first_submission_are_waited_for(
    tmp_path: Path, nodes: Nodes, down: set[str]
) -> None:
    """Neither the nodes with two GPUs nor those without are asked for the work of the others."""
    nodes.gpus, nodes.down = {"n1": 8, "n2": 8, "n3": 2, "n4": 0}, down
    queue = Queue()
    jobs_of(tmp_path, "together", queue, jobs=2, nodes=2, ranks_per_node=8).start({1: 3, 2: 3})
    assert "#SBATCH --gres=gpu:h100:8\n" in queue.requests[0].script.read_text()


def test_a_run_whose_nodes_are_gone_for_good_does_not_train_on_something_else(
    tmp_path: Path, nodes: Nodes
) -> None:
    nodes.gpus = {"n3": 2, "n4": 0}
    jobs = jobs_of(tmp_path, "together", Queue(), jobs=1, ranks_per_node=8)
    with pytest.raises(UsageError, match="no node of the default partition has room for 8 ranks"):
        jobs.start({1: 3})


def test_slurm_is_asked_once_for_a_start_of_many_separate_jobs(
    tmp_path: Path, nodes: Nodes
) -> None:
    queue = Queue()
    jobs_of(tmp_path, "apart", queue, jobs=20).start(dict.fromkeys(range(1, 21), 3))
    assert len(queue.requests) == 20
    assert sorted(nodes.queries) == ["limit", "nodes"]


class FakeClock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    found = FakeClock()
    for module in (time, node_silence, step_ends):
        monkeypatch.setattr(module, "monotonic", found.monotonic)
    return found


def give_up(folder: RunFolder, job: int, script: str = "allocation-1.sh", code: int = 7) -> None:
    """Write what the script of an allocation writes."""
    path = steps_folder(folder.path / script)
    path.mkdir(exist_ok=True)
    StepEnd(job=job, code=code).write(path / f"{job}{step_ends.SUFFIX}")


def test_a_job_that_its_allocation_gives_up_restarts_while_the_others_train(
    tmp_path: Path, clock: FakeClock
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue)
    jobs.start(dict.fromkeys((1, 2, 3, 4), 3))
    assert [*jobs.active_jobs()] == [1, 2, 3, 4]
    give_up(folder_of(jobs), 2)
    assert [*jobs.active_jobs()] == [1, 2, 3, 4]  # the allocation may be ending
    clock.now_s += 3
    assert [*jobs.active_jobs()] == [1, 3, 4]
    ending = jobs.ending(2)
    assert (ending.how, ending.reason) == ("fault", "its step ended with exit code 7")
    assert [*ending.suspects] == ["n2"]
    assert [*jobs.start({2: 1})] == [2]
    assert [*jobs.active_jobs()] == [1, 2, 3, 4]
    queue.statuses["1"] = JobStatus("ended", (), "TIMEOUT", ended_by="time limit")
    clock.now_s += 10
    assert [*jobs.active_jobs()] == [2]
    assert [*jobs.start({1: 3, 3: 3, 4: 3})] == [1, 3, 4]  # without waiting for job 2
    scripts = [request.script.name for request in queue.requests]
    assert scripts == [f"allocation-{number}.sh" for number in (1, 2, 3)]
    again = jobs_again(folder_of(jobs), queue)
    clock.now_s += 10
    assert [*again.active_jobs()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "status",
    [
        JobStatus("running", ("n1", "n2"), "COMPLETING"),  # it ends, or SLURM requeues it
        JobStatus("waiting", (), "PENDING: BeginTime", restarts=1),
    ],
)
def test_a_step_that_ends_with_its_allocation_waits_for_what_slurm_says(
    tmp_path: Path, clock: FakeClock, status: JobStatus
) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue, jobs=2)
    jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    give_up(folder_of(jobs), 2, code=1)
    queue.status = status
    for _ in range(60):
        clock.now_s += 1
        assert [*jobs.active_jobs()] == [1, 2]


def test_jobs_that_are_stopped_before_a_limit_share_the_next_allocation(
    tmp_path: Path, clock: FakeClock
) -> None:
    jobs = jobs_of(tmp_path, "together", Queue(), jobs=2)
    jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    write_steps(folder_of(jobs).path / "allocation-1.sh", 2, report(2, "its end", "limit"))
    give_up(folder_of(jobs), 2, code=1)
    for _ in range(30):
        assert [*jobs.active_jobs()] == [1, 2]
        clock.now_s += 10
    assert [*jobs.active_jobs()] == [1]  # someone has warned this step alone
    assert jobs.ending(2).how == "limit"


def test_a_step_without_a_report_is_not_judged_by_that_of_an_earlier_step(tmp_path: Path) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, "together", queue, jobs=2)
    jobs.start({1: 3, 2: 3})
    jobs.active_jobs()
    script = folder_of(jobs).path / "allocation-1.sh"
    write_steps(script, 1, report(1, "its end", "killed"), "")
    write_steps(script, 2, "", report(2, "its end", "killed"))
    assert jobs.ending(1).report  # the second step may be a retry that has just begun
    queue.status = JobStatus("ended", (), "TIMEOUT", ended_by="time limit")
    jobs.active_jobs()
    assert [jobs.ending(job).how for job in (1, 2)] == ["limit", "fault"]


@pytest.mark.parametrize("start", ["together", "apart"])
def test_a_requeue_is_free_once_also_for_the_next_controller(tmp_path: Path, start: Start) -> None:
    queue = Queue()
    jobs = jobs_of(tmp_path, start, queue, jobs=2)
    jobs.start({1: 3, 2: 3})
    queue.status = JobStatus("running", ("n3", "n4"), None, restarts=1)
    jobs.active_jobs()
    assert jobs.ending(1) == Ending("requeue")  # nobody knows which nodes it had
    jobs = jobs_again(folder_of(jobs), queue, jobs=2)
    jobs.active_jobs()
    assert [jobs.ending(job).how for job in (1, 2)] == ["fault", "requeue"]
    queue.status = JobStatus("ended", ("n3", "n4"), "FAILED", restarts=2, ended_by="failure")
    jobs.active_jobs()
    assert [jobs.ending(1).how, jobs.ending(1).how] == ["requeue", "fault"]


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (JobStatus("waiting", (), "PENDING: Priority"), [1000, 1010, 1020]),
        (JobStatus("running", ("n1",), None), [1000, 1005, 1010, 1015, 1020]),
    ],
)
def test_slurm_is_asked_for_queued_jobs_every_ten_seconds(
    tmp_path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    status: JobStatus,
    asked: list[float],
) -> None:
    queue, times = Queue(), list[float]()
    queue.interval_s, queue.status = 30.0, status
    jobs = jobs_of(tmp_path, "apart", queue, jobs=2)
    jobs.start({1: 3, 2: 3})
    look = queue.look

    def noted(ids: Sequence[str]) -> dict[str, JobStatus]:
        times.append(clock.now_s)
        return look(ids)

    monkeypatch.setattr(queue, "look", noted)
    for _ in range(21):
        jobs.active_jobs()
        clock.now_s += 1
    assert times == asked
