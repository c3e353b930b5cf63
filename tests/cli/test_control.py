"""Jobs that outlive their controller: picked up again, or ended, and those of no other run."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.support.ensemble_runs import processes_of, started, wait_for
from tests.support.slurm_bench import SlurmBench
from vflops.cli.cluster.control import _agent_jobs
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, Goal, JobRecord, WorkerRecord
from vflops.record.formats.system import SystemRecord
from vflops.run import pipeline

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def other_agent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What looks like the agent of another run whose name begins alike."""
    program = "import time; time.sleep(600)"
    run = str(tmp_path / "runs" / "another")
    process = subprocess.Popen(
        [sys.executable, "-c", program, "-m", "vflops.launch.agent", run, "1"]
    )
    yield process
    process.kill()
    process.wait()


def test_attach_picks_up_running_jobs_and_nothing_else(vflops: Vflops, tmp_path: Path) -> None:
    process = started(tmp_path, "--models", "2", epochs=16)
    folder = wait_for(tmp_path, "evaluation", 1, 2)
    refused = vflops("attach", folder.path)
    assert refused.returncode == 2
    assert f"has a controller: process {process.pid}" in refused.stderr
    assert "vflops cancel" in refused.stderr
    killed(process)
    attached = vflops("attach", folder.path)
    assert attached.returncode == 0, attached.stderr
    assert "of 2 jobs, 2 are active, 0 have ended\n" in attached.stderr
    history = folder.history()
    assert [len(history.jobs[job]) for job in (1, 2)] == [1, 1]  # nothing was started twice
    assert history.state.complete and folder.report_file.is_file()
    for command, words in (("attach", "nothing to attach to"), ("cancel", "nothing to cancel")):
        again = vflops(command, folder.path)
        assert again.returncode == 2
        assert f"is complete: there is {words}" in again.stderr


def test_cancel_stops_controller_and_jobs_and_the_run_resumes(
    vflops: Vflops, tmp_path: Path, other_agent: subprocess.Popen[bytes]
) -> None:
    process = started(tmp_path, "--models", "2", epochs=16)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    cancelled = vflops("cancel", folder.path)
    assert cancelled.returncode == 0, cancelled.stderr
    assert f"ended: the controller, process {process.pid}" in cancelled.stdout
    assert "ended: 2 jobs, 2 with a checkpoint to resume from\n" in cancelled.stdout
    assert f"next: vflops resume {folder.path.relative_to(tmp_path)}" in cancelled.stderr
    assert process.wait(timeout=10) == 130
    assert processes_of(folder) == []
    assert other_agent.poll() is None
    before = folder.history()
    assert [len(before.events("stopped", job=0)), before.state.complete] == [1, False]
    assert vflops("resume", folder.path).returncode == 0
    history = folder.history()
    assert all(history.events("resumed", job=job) for job in (1, 2))
    finished = [history.events("finished", job=job)[-1].data["samples"] for job in (1, 2)]
    assert finished == [16 * 256] * 2


def test_cancel_kills_what_does_not_end_also_without_a_controller(
    vflops: Vflops, tmp_path: Path, other_agent: subprocess.Popen[bytes]
) -> None:
    process = started(tmp_path, "--models", "2", epochs=200)
    folder = wait_for(tmp_path, "evaluation", 1, 2)
    killed(process)
    deaf = int(folder.job_lock(2).read_text())
    os.kill(deaf, signal.SIGSTOP)
    cancelled = vflops("cancel", folder.path, "--limit", "5")
    assert cancelled.returncode == 0, cancelled.stderr
    assert "controller" not in cancelled.stdout
    assert "ended: 2 jobs" in cancelled.stdout
    slow = "killed, because they did not end in time: 1, 2\n" in cancelled.stdout  # a busy machine
    assert slow or "killed, because they did not end in time: 2\n" in cancelled.stdout
    assert slow or folder.history().events("stopped", job=1)  # this one was asked
    end_s = time.monotonic() + 20  # ranks see within a second that their agent is gone
    while processes_of(folder) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert processes_of(folder) == []
    assert other_agent.poll() is None
    assert folder.history().state.reason == "it was cancelled by the user"
    again = vflops("cancel", folder.path)
    assert again.returncode == 0
    assert (
        f"{folder.path.relative_to(tmp_path)} has no running jobs and no controller" in again.stdout
    )


CONTROLLER = """
import sys, time
from pathlib import Path
from vflops.record.folder import RunFolder
folder = RunFolder.open(Path(sys.argv[1]))
with folder.in_use(), folder.start_attempt(job=0) as events:
    events.write("start", workload="image-classification")
    print("held", flush=True)
    time.sleep(600)
"""


def test_cancel_asks_the_jobs_of_a_controller_that_ends_before_it_could(
    vflops: Vflops, tmp_path: Path
) -> None:
    process = started(tmp_path, "--models", "2", epochs=200)
    folder = wait_for(tmp_path, "evaluation", 1, 2)
    killed(process)
    command = [sys.executable, "-c", CONTROLLER, str(folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as early:
        assert early.stdout is not None and early.stdout.readline() == b"held\n"
        cancelled = vflops("cancel", folder.path, "--limit", "60")
    assert cancelled.returncode == 0, cancelled.stderr
    assert "ended: 2 jobs, 2 with a checkpoint to resume from\n" in cancelled.stdout
    assert all(folder.history().events("stopped", job=job) for job in (1, 2))
    assert processes_of(folder) == []


def test_a_process_whose_number_stands_in_an_old_lock_is_left_alone(
    vflops: Vflops, tmp_path: Path, other_agent: subprocess.Popen[bytes]
) -> None:
    folder = RunFolder.create(tmp_path / "runs", "suite", tiny())
    lock = folder.path / ".lock"
    lock.write_text(str(other_agent.pid))
    assert "has no running jobs" in vflops("cancel", folder.path).stdout
    lock.write_text(str(other_agent.pid))
    with lock.open("r") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as another process would, perhaps on another machine
        refused = vflops("cancel", folder.path)
    assert refused.returncode == 2
    assert f"held by process {other_agent.pid}, which is not visible from here" in refused.stderr
    assert other_agent.poll() is None


@pytest.mark.parametrize(
    ("on", "worker", "known"),
    [("slurm", False, True), ("local", True, True), ("local", False, False)],
)
def test_every_job_of_an_agent_is_known(
    tmp_path: Path, on: Literal["slurm", "local"], worker: bool, known: bool
) -> None:
    settings = tiny().model_copy(update={"launch": LaunchSettings(on=on)})
    folder = RunFolder.create(tmp_path / "runs", "image-classification", settings)
    folder.job_file(1).parent.mkdir(parents=True)
    JobRecord(
        job=1,
        workload="image-classification",
        repeat=0,
        seed=1,
        ranks=1,
        goal=Goal(quality="accuracy", better="higher", target=0.7, exponent=1),
        settings={},
        data=DataFacts(path="", synthetic=True, fingerprint="", train=1, validation=1),
        worker=WorkerRecord(worker=0, workers=1) if worker else None,
    ).write(folder.job_file(1))
    with folder.start_attempt(job=0) as events:
        events.write("job-planned", job=1, sha256="")
    assert [record.job for record in _agent_jobs(folder)] == ([1] if known else [])


@pytest.mark.parametrize("on", ["slurm", "local"])
def test_another_login_node_may_go_on_with_jobs_of_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: Literal["slurm", "local"]
) -> None:
    """The nodes measure and train, so it does not matter where the command runs."""
    settings = tiny().model_copy(update={"launch": LaunchSettings(on=on)})
    folder = RunFolder.create(tmp_path, "suite", settings)
    with folder.start_attempt(job=0) as events:
        pipeline._describe(folder, events, [])
        monkeypatch.setattr(SystemRecord, "machine", property(lambda self: (str(id(self)),)))
        if on == "slurm":
            pipeline._describe(folder, events, [])
        else:
            with pytest.raises(UsageError, match="started on another machine"):
                pipeline._describe(folder, events, [])


def test_attach_needs_an_ensemble(vflops: Vflops, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "suite", tiny())
    refused = vflops("attach", folder.path)
    assert refused.returncode == 2
    assert "none of its jobs outlives the command" in refused.stderr
    assert "vflops resume" in refused.stderr


def test_cancel_ends_the_jobs_of_a_scheduler_and_no_other(
    slurm: SlurmBench, vflops: Vflops, tmp_path: Path
) -> None:
    other = slurm.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 300").strip()
    process = started(tmp_path, "--models", "2", "--on", "slurm", epochs=500)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    killed(process)
    assert not is_locked(folder.path / ".lock")
    cancelled = vflops("cancel", folder.path)
    assert cancelled.returncode == 0, cancelled.stderr
    assert "ended: 2 jobs, 2 with a checkpoint to resume from\n" in cancelled.stdout
    assert [line.split()[0] for line in slurm.run("squeue", "-h").splitlines()] == [other]
    history = folder.history()
    assert [history.jobs[job][-1].events[-1].kind for job in (1, 2)] == ["stopped"] * 2
