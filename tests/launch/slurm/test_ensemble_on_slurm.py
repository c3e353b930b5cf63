"""Ensembles on a real SLURM of four nodes, up to the score, with the faults of a site."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.support import ensemble_runs
from tests.support.ensemble_runs import TRAIN, VALIDATION, ended, processes_of, wait_for
from tests.support.programs import Program
from tests.support.sample_parts import Vflops
from tests.support.slurm_bench import SlurmBench
from vflops.config.frameworks import FRAMEWORKS
from vflops.launch.hang_judge import STOPPED_S
from vflops.launch.hang_watch import STOPPED
from vflops.launch.slurm.submissions import Submitted
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobBegun, JobLost, Staged
from vflops.record.formats.node import NodeRecord, node_file
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score


def started(folder: Path, *arguments: str, epochs: int = 2) -> Program:
    return ensemble_runs.started(folder, "--on", "slurm", *arguments, epochs=epochs)


@pytest.fixture(autouse=True)
def nothing_left(slurm: SlurmBench, tmp_path: Path) -> Iterator[None]:
    """Check that a test leaves no processes of its runs and no jobs in SLURM."""
    yield
    assert processes_of(tmp_path) == []
    assert "vflops-" not in slurm.run("squeue", "-h", "-o", "%j")


def assert_complete(folder: RunFolder, models: int, epochs: int) -> None:
    """Check that all jobs are scored, every sample is accounted for and the checks pass."""
    assert_scored(folder, tuple(range(1, models + 1)), epochs, partial=False)
    failed = {failure.rule for failure in Findings.read(folder.findings_file).failures}
    assert failed <= {"quiet"}  # other tests may run at the same time


def assert_scored(folder: RunFolder, jobs: tuple[int, ...], epochs: int, partial: bool) -> None:
    """Check that these jobs are scored together, and each saw every sample once per epoch."""
    contents = Contents(folder)
    (scored,) = score(contents).ensembles
    assert (scored.jobs, scored.partial) == (jobs, partial)
    assert scored.vflops is not None and scored.vflops > 0
    assert [moment.epoch for moment in scored.moments] == [*range(1, epochs + 1)]
    history = contents.history
    for job in jobs:
        trained = [event.data["samples"] for event in history.events("finished", job=job)]
        assert trained == [epochs * TRAIN]  # once, over all attempts
        seen = {event.data["evaluated"] for event in history.events("evaluation", job=job)}
        assert seen == {VALIDATION}


def node_python(folder: Path, code: str) -> None:
    """Write a site whose Python runs this bash code first, on each node."""
    python = folder / "python"
    python.write_text(
        f'#!/bin/bash\nset -- {shlex.quote(sys.executable)} "$@"\n{code}\nexec "$@"\n'
    )
    python.chmod(0o755)
    (folder / "site.toml").write_text(f'python = "{python}"\n')


def test_three_models_share_two_nodes_and_one_has_a_full_disk(
    slurm: SlurmBench, tmp_path: Path, small_disk: Path
) -> None:
    """Each sample is staged once per node; nodes are one machine, so each gets its own folder."""
    (tmp_path / "n2").symlink_to(small_disk)
    (small_disk / "full").write_bytes(bytes(1 << 20))
    node_python(tmp_path, f"export VFLOPS_LOCAL_PATH={tmp_path}/$SLURMD_NODENAME")
    shared = ("--set", "launch.ranks_per_node=2")
    folder = ended(started(tmp_path, "--models", "3", *shared), tmp_path)
    assert_complete(folder, 3, epochs=2)
    history = folder.history()
    assert [event.data["launcher"] for event in history.events("job-begun")] == ["slurm"] * 3
    assert [path.name for path in folder.path.glob("**/*.sh")] == ["allocation-1.sh"]
    staged = [history.events("staged", job=job)[-1].payload(Staged) for job in (1, 2, 3)]
    assert [event.where for event in staged] == ["local", "local", "shared"]
    assert sorted(event.bytes > 0 for event in staged[:2]) == [
        False,
        True,
    ]  # one of the two copied it
    assert staged[0].folder.startswith(f"{tmp_path}/n1/")
    assert staged[2].bytes == 0
    assert "No space left on device" in (staged[2].reason or "")


SCRIPT = """
import json, os
import numpy as np
indices = np.load(os.environ["VFLOPS_INDICES"])
labels = np.arange(40) % 4
chosen = np.where(np.arange(40) % 5 == int(os.environ["VFLOPS_JOB"]), 0, labels)
accuracy = float((chosen == labels).mean())
print(json.dumps({"samples": 0}))
print(json.dumps({"samples": len(indices), "quality": accuracy, "evaluated": 40}))
np.savez(os.environ["VFLOPS_PREDICTIONS"], predictions=chosen, labels=labels)
"""


def test_scripts_on_three_nodes_vote(slurm: SlurmBench, vflops: Vflops, tmp_path: Path) -> None:
    """Each model is wrong about other samples, so that the majority is always right."""
    (tmp_path / "script.py").write_text(SCRIPT)
    given = [f"command.command={sys.executable} script.py", "command.samples=100"]
    given += ["command.validation=40", "command.quality=accuracy", "command.combine=vote"]
    given += ["command.target=0.8", "command.ops_forward=1000", "command.ops_total=3000"]
    words = [word for item in (*given, "micro.benchmarks=[]") for word in ("--set", item)]
    done = vflops("run", "command", "--profile", "tiny", "--models", 3, "--on", "slurm", *words)
    assert done.returncode in (0, 1), done.stderr
    (path,) = (tmp_path / "runs").glob("*-command-*")
    folder = RunFolder.open(path)
    (scored,) = score(Contents(folder)).ensembles
    assert (scored.jobs, scored.partial, scored.achieved) == ((1, 2, 3), False, 1.0)
    assert [size.models for size in scored.sizes] == [1, 2, 3]
    assert scored.sizes[0].quality == pytest.approx(0.85)
    assert scored.vflops is not None and scored.vflops > 0
    failed = {failure.rule for failure in Findings.read(folder.findings_file).failures}
    assert failed <= {"quiet"}


@pytest.mark.cluster
def test_models_span_two_nodes_and_one_that_dies_is_retried_in_its_allocation(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    """The run folder has a name that SLURM would expand."""
    place = tmp_path / "job%j-100%"
    place.mkdir()
    process = started(place, "--scale", "4", *SPANS, epochs=4)  # 2 models
    folder = wait_for(place, "checkpoint", 1)
    rank_of(folder, 1).kill()
    folder = ended(process, place)
    assert_complete(folder, 2, epochs=4)
    for job in (1, 2):
        attempt = folder.logged_attempts(job)[-1]
        assert (attempt / "claim.json").is_file()
        assert {path.name for path in attempt.glob("rank-*.log")} == {"rank-0.log", "rank-1.log"}
    history = folder.history()
    begun = [event.payload(JobBegun) for event in history.events("job-begun")]
    assert [(event.job, event.attempt) for event in begun] == [(1, 1), (2, 1), (1, 2)]
    (lost,) = history.events("job-lost")
    assert (lost.data["job"], lost.data["where"]) == (1, "n1, n2")
    assert ": job 1: rank " in lost.data["reason"]
    assert history.events("resumed", job=1)
    assert [path.name for path in folder.path.glob("*.sh")] == ["allocation-1.sh"]
    assert "job 1 died with code" in (folder.path / "allocation-1.log").read_text()


SPANS = ("--ranks", "2", "--set", "launch.ranks_per_node=1")
"""A model on two nodes."""


@pytest.mark.cluster
@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if FRAMEWORKS[name].across_nodes])
def test_a_model_of_another_framework_spans_two_nodes(
    name: str, slurm: SlurmBench, tmp_path: Path
) -> None:
    """Its ranks find each other by the names of the nodes, and train as PyTorch's do."""
    pytest.importorskip(FRAMEWORKS[name].package, reason=f"pip install 'vflops[{name}]'")
    slowly = ("--set", "train.learning_rate=0.0001")
    losses = {}
    for framework in ("pytorch", name):
        place = tmp_path / framework
        place.mkdir()
        process = started(place, *SPANS, *slowly, "--framework", framework)
        history = ended(process, place).history()
        (sent,) = history.events("exchange", job=1)
        assert (sent.data["ranks"], sent.data["near"]) == (2, 1)  # one rank per node
        (job,) = history.events("job", job=1)
        assert (job.data["framework"], job.data["ranks"]) == (framework, 2)
        losses[framework] = [event.data["loss"] for event in history.events("evaluation", job=1)]
    assert len(losses[name]) == 2
    assert losses[name] == pytest.approx(losses["pytorch"], abs=1e-4)


@pytest.mark.cluster
def test_a_rank_that_hangs_is_noticed_and_its_job_resumes_on_another_node(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    """A job that SLURM suspends for a while is not taken for one that hangs."""
    # Epochs enough that it still trains when SLURM suspends it, which may take seconds.
    process = started(tmp_path, *SPANS, "--set", "launch.hang_s=30", epochs=60)
    folder = wait_for(tmp_path, "checkpoint", 1)
    rank = rank_of(folder, 1, rank=1)
    slurm.run("scontrol", "suspend", id_of(folder, 1))
    slurm.wait(lambda: rank.status() == psutil.STATUS_STOPPED, "suspended rank")
    time.sleep(STOPPED_S + 1)
    slurm.run("scontrol", "resume", id_of(folder, 1))
    slurm.wait(lambda: rank.status() != psutil.STATUS_STOPPED, "resumed rank")
    rank.suspend()
    folder = ended(process, tmp_path, 1)
    failed = {failure.rule for failure in Findings.read(folder.findings_file).failures}
    assert {"telemetry"} <= failed <= {"telemetry", "quiet"}  # it was suspended too
    history = folder.history()
    assert [event.data["samples"] for event in history.events("finished")] == [60 * TRAIN]
    (lost,) = [event.payload(JobLost) for event in history.events("job-lost")]
    assert "rank 1 on n2 hangs: no progress for" in lost.reason
    assert STOPPED in lost.reason
    assert (lost.suspects, lost.hung) == (("n2",), True)
    nodes = {NodeRecord.read(node_file(folder.logged_attempts(1)[-1], n)).name for n in (0, 1)}
    assert "n2" not in nodes
    assert history.events("resumed", job=1)


def test_a_job_is_given_up_with_the_last_words_of_the_rank_that_failed(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    """The first rank loses its connection, and says so in the job's log."""
    (tmp_path / "sitecustomize.py").write_text(_DIES_AT_A_STEP)
    path = f"{tmp_path}:{os.environ['PYTHONPATH']}"
    (tmp_path / "site.toml").write_text(f'[environment]\nPYTHONPATH = "{path}"\n')
    process = started(tmp_path, *SPANS, "--set", "bagging.attempts=1")
    folder = ended(process, tmp_path, 3)
    (given_up,) = folder.history().events("job-given-up")
    assert "rank 1 on n2 was killed by SIGABRT" in given_up.data["reason"]
    assert "| step 8 is cursed" in given_up.data["reason"]
    assert "Connection" not in given_up.data["reason"]


_DIES_AT_A_STEP = """\
import os, sys
if os.environ.get("RANK") == "1":
    from vflops.train.phase_clock import Clock
    enter, steps = Clock.enter, []
    def deadly(self, phase):
        steps.append(phase)
        if steps.count("data") == 8:
            print("step 8 is cursed", file=sys.stderr, flush=True)
            os.abort()
        return enter(self, phase)
    Clock.enter = deadly
"""


def rank_of(folder: RunFolder, job: int, rank: int | None = None) -> psutil.Process:
    """Return a process that trains a job, or the one with a number."""
    wanted = ["vflops.train.rank", str(folder.path), str(job)]
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if all(word in line for word in wanted) and (
            rank is None or process.environ().get("RANK") == str(rank)
        ):
            return process
    raise AssertionError(f"no process trains job {job}")


def id_of(folder: RunFolder, job: int) -> str:
    return Submitted.read(folder.job_file(job).parent / "submitted.json").id


def last_node(folder: RunFolder, job: int) -> str:
    """Return the node of the newest attempt at a job."""
    return NodeRecord.read(node_file(folder.logged_attempts(job)[-1], 0)).name


LONG = 40
"""Epochs, of a quarter of a second, so that jobs still train when a test does something to them."""


def started_apart(folder: Path, models: int) -> subprocess.Popen[str]:
    """Start jobs that are submitted separately; each takes a node, but computes with one core."""
    (folder / "site.toml").write_text('directives = ["--exclusive"]\n')
    apart = ("--models", str(models), "--set", "launch.start=apart")
    return started(folder, *apart, epochs=LONG)


@pytest.mark.cluster
def test_several_faults_at_once(slurm: SlurmBench, tmp_path: Path) -> None:
    """A rank is killed, a job requeued, another cancelled, and slurmctld restarted.

    Each job has its own node; that of the killed rank is drained before and gets no other job. The
    cancelled job is not submitted again.
    """
    process = started_apart(tmp_path, 4)
    folder = wait_for(tmp_path, "checkpoint", 1, 2, 3, 4)
    drained = last_node(folder, 1)
    slurm.drain(drained)
    rank_of(folder, 1).kill()
    slurm.run("scontrol", "requeue", id_of(folder, 2))
    slurm.run("scancel", id_of(folder, 4))
    slurm.restart_slurmctld()
    folder = ended(process, tmp_path, 1)
    assert_scored(folder, (1, 2, 3), epochs=LONG, partial=True)
    history = folder.history()
    lost = [event.payload(JobLost) for event in history.events("job-lost")]
    # SLURM itself restarted the second.
    assert sorted((loss.job, loss.excused) for loss in lost) == [(1, False), (2, True), (4, False)]
    assert [len(history.jobs[job]) for job in (1, 2, 3, 4)] == [2, 2, 1, 1]
    assert drained not in [last_node(folder, job) for job in (1, 2)]
    (given_up,) = history.events("job-given-up")
    assert given_up.data["reason"].startswith("it was cancelled; slurm: CANCELLED")


@pytest.mark.cluster
def test_a_job_stopped_before_its_limit_loses_no_attempt_and_one_that_is_told_to_end_does(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    """SLURM's warning before a limit is SIGUSR1; scancel of a step leaves SIGTERM."""
    process = started_apart(tmp_path, 2)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    slurm.run("scancel", "--signal=USR1", id_of(folder, 1))
    slurm.run("scancel", "--signal=TERM", id_of(folder, 2))
    assert_scored(ended(process, tmp_path, 0, 1), (1, 2), epochs=LONG, partial=False)
    lost = [event.payload(JobLost) for event in folder.history().events("job-lost")]
    assert sorted((loss.job, loss.excused) for loss in lost) == [(1, True), (2, False)]
    assert [loss.suspects for loss in lost] == [(), ()]


@pytest.mark.cluster
def test_a_step_that_dies_on_a_draining_node_restarts_elsewhere_while_the_other_trains(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    process = started(tmp_path, "--models", "2", epochs=100_000)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    drained = last_node(folder, 1)
    slurm.drain(drained)
    rank_of(folder, 1).kill()
    slurm.wait(lambda: bool(folder.history().events("resumed", job=1)), "restart", limit_s=60)
    process.send_signal(signal.SIGINT)
    ended(process, tmp_path, 130)
    (lost,) = [event.payload(JobLost) for event in folder.history().events("job-lost")]
    assert (lost.job, lost.excused) == (1, False)
    # Job 1 was not retried on the same node, and job 2 trained until the end.
    assert [len(folder.logged_attempts(job)) for job in (1, 2)] == [2, 1]
    assert last_node(folder, 1) != drained
    scripts = sorted(path.name for path in folder.path.glob("*.sh"))
    assert scripts == ["allocation-1.sh", "allocation-2.sh"]
    assert "gets other nodes" in (folder.path / "allocation-1.log").read_text()


def test_outages_of_slurmctld_at_the_submission_and_at_the_end_are_waited_for(
    slurm: SlurmBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script is submitted when slurmctld is back, and Ctrl-C asks the job when it is."""
    wrapper, path = tmp_path / "bin" / "sbatch", os.environ["PATH"]
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"#!/bin/bash\ntouch {tmp_path}/submitting\n"
        f'until [ -e {tmp_path}/down ]; do sleep 0.05; done\nPATH={path} exec sbatch "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{path}")
    process = started(tmp_path, epochs=200)
    slurm.wait((tmp_path / "submitting").exists, "submission")
    slurm.stop_slurmctld()
    (tmp_path / "down").touch()
    slurm.wait(lambda: read_waits(process) == 1, "message about the outage")
    slurm.start_slurmctld()
    folder = wait_for(tmp_path, "checkpoint", 1)
    rank = rank_of(folder, 1)
    rank.suspend()  # other tests may use its core meanwhile
    slurm.stop_slurmctld()
    os.kill(process.pid, signal.SIGINT)
    slurm.wait(lambda: read_waits(process) == 2, "message about the second outage")
    slurm.start_slurmctld()
    rank.resume()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "does not answer (sbatch: Unable to contact slurm controller" in err
    assert err.count("slurm answers again, after") == 2
    history = folder.history()
    assert not history.events("failed")
    (stopped,) = history.events("stopped", job=0)
    assert "its jobs were asked to write checkpoints" in stopped.data["message"]
    assert [len(history.jobs[1]), history.jobs[1][0].events[-1].kind] == [1, "stopped"]


def read_waits(process: Program) -> int:
    """Return how many times the command has said that it waits for SLURM for the first time."""
    return process.said().count(b"next try in 2 s")


@pytest.mark.cluster
def test_another_controller_takes_over_after_a_node_and_a_slurmd_died(
    slurm: SlurmBench, tmp_path: Path, vflops: Vflops
) -> None:
    """A job outlives its slurmd, and the copy that SLURM starts does not train as well."""
    process = started_apart(tmp_path, 3)
    folder = wait_for(tmp_path, "checkpoint", 1, 2, 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = [id_of(folder, job) for job in (1, 2, 3)]
    slurm.kill_slurmd(last_node(folder, 2), noticed=True)
    slurm.kill_node(last_node(folder, 1), noticed=True)
    again = vflops("resume", folder.path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert_complete(folder, 3, epochs=LONG)
    assert id_of(folder, 3) == before[2]  # it was not submitted twice
    history = folder.history()
    assert [len(history.jobs[job]) for job in (1, 3)] == [2, 1]
    assert "finished" in [event.kind for event in history.jobs[2][0].events]


def test_a_partition_that_does_not_exist_is_named(slurm: SlurmBench, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('partition = "nowhere"\n')
    process = started(tmp_path, "--models", "2")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Invalid partition name specified (nowhere)" in err
    assert "set partition in site.toml to one of: brief, fragile, gpu, main, typed, urgent" in err


def seconds_to_the_error(slurm: SlurmBench, folder: RunFolder) -> float:
    """The time from SLURM's start of the run's only job to the error of the run."""
    text = (folder.path / "allocation-1.sh").read_text()
    (name,) = re.findall(r"--job-name=(\S+)", text.split("\n\n")[0])
    start = slurm.run("squeue", "-h", "--states=all", f"--name={name}", "-o", "%S").strip()
    (failed,) = folder.history().events("failed")
    error = datetime.fromisoformat(failed.utc)
    return (error - datetime.fromisoformat(start).astimezone()).total_seconds()


def test_a_run_folder_that_nodes_do_not_see_ends_the_run_at_its_first_job(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "site.toml").write_text('directives = ["--nodelist=n2"]\n')
    slurm.hide("n2", tmp_path / "runs")
    try:
        process = started(tmp_path, "--models", "2", "--set", "launch.ranks_per_node=2")
        folder = ended(process, tmp_path, 3)
    finally:
        slurm.kill_node("n2")
    (failed,) = folder.history().events("failed")
    assert f"{folder.path.name} is not visible from the nodes" in failed.data["message"]
    assert "ran on n2" in failed.data["message"]
    assert "FAILED" in failed.data["message"]
    assert seconds_to_the_error(slurm, folder) < 15
    assert [path.name for path in folder.path.glob("*.sh")] == ["allocation-1.sh"]


@pytest.mark.parametrize("benchmarks", ['["gemm"]', "[]"])
def test_one_of_two_nodes_that_does_not_see_the_run_folder_ends_the_start(
    slurm: SlurmBench, tmp_path: Path, benchmarks: str
) -> None:
    """The other node waits for it neither to measure ceilings nor to train."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "site.toml").write_text('directives = ["--nodelist=n[1-2]"]\n')
    slurm.hide("n2", tmp_path / "runs")
    try:
        measure = ("--set", f"micro.benchmarks={benchmarks}", "--set", "launch.ranks_per_node=1")
        folder = ended(started(tmp_path, "--models", "2", "--ranks", "1", *measure), tmp_path, 3)
    finally:
        slurm.kill_node("n2")
    (failed,) = folder.history().events("failed")
    words = f"n2: the node does not see the run folder {folder.path.resolve()}"
    assert failed.data["message"].endswith(f"is not visible from the nodes: {words}")
    assert seconds_to_the_error(slurm, folder) < 15
    assert not (folder.path / "nodes").exists() and not folder.logged_attempts(1)
    assert [path.name for path in folder.path.glob("*.sh")] == ["allocation-1.sh"]


def test_a_job_that_always_fails_leaves_a_partial_ensemble_with_the_reason(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    """One of two nodes sees another folder instead of the run's."""
    (tmp_path / "runs").mkdir()
    hide = f"'mount -t tmpfs none {tmp_path}/runs && exec \"$@\"'"
    node_python(
        tmp_path,
        f'[ "$SLURMD_NODENAME" = n2 ] && set -- unshare -m bash -c {hide} - "$@"',
    )
    process = started(tmp_path, "--models", "2", "--set", "bagging.attempts=1")
    folder = ended(process, tmp_path, 1)
    (event,) = folder.history().events("job-given-up")
    assert event.data["job"] == 2
    words = f"n2: job 2: the node does not see the run folder {folder.path.resolve()}"
    assert words in event.data["reason"]
    assert_scored(folder, (1,), epochs=2, partial=True)


@pytest.fixture
def allocation(slurm: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of an allocation of two nodes, with the environment of ``salloc``."""
    output = slurm.run("bash", "-c", "salloc --no-shell --nodes=2 --cpus-per-task=2 2>&1")
    job = re.findall(r"Granted job allocation (\d+)", output)[0]
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    return str(job)


def test_jobs_in_an_allocation_outlive_the_controller_and_are_found_again(
    slurm: SlurmBench,
    tmp_path: Path,
    allocation: str,
    monkeypatch: pytest.MonkeyPatch,
    vflops: Vflops,
) -> None:
    process = started(tmp_path, "--models", "2", epochs=LONG)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name)  # another shell
    again = vflops("attach", folder.path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "of 2 jobs, 2 are active" in again.stderr
    assert_complete(folder, 2, epochs=LONG)
    history = folder.history()
    begun = [event.payload(JobBegun) for event in history.events("job-begun")]
    assert [event.launcher for event in begun] == [f"held allocation {allocation}"] * 2
    assert [len(history.jobs[job]) for job in (1, 2)] == [1, 1]
    assert slurm.run("squeue", "-h", "-o", "%i").split() == [allocation]  # nothing was submitted


def test_cancelling_a_run_in_an_allocation_keeps_the_allocation(
    slurm: SlurmBench, tmp_path: Path, allocation: str, vflops: Vflops
) -> None:
    other = subprocess.Popen(["srun", "-N1", "-n1", "-c1", "--overlap", "sleep", "400"])
    process = started(tmp_path, "--models", "2", epochs=100)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    done = vflops("cancel", folder.path)
    assert "ended: 2 jobs, 2 with a checkpoint" in done.stdout, done.stdout + done.stderr
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert processes_of(folder) == []
    assert slurm.run("squeue", "-h", "-o", "%i").split() == [allocation]
    steps = slurm.run("squeue", "-hs", "-j", allocation, "-o", "%j").split()
    assert [step for step in steps if step not in ("extern", "interactive")] == ["sleep"]
    other.terminate()
    other.wait(timeout=30)


@pytest.mark.cluster
def test_the_jobs_of_a_cancelled_allocation_are_given_up(
    slurm: SlurmBench, tmp_path: Path, allocation: str
) -> None:
    process = started(tmp_path, "--models", "2", epochs=100)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    slurm.run("scancel", allocation)
    ended(process, tmp_path, 3)
    given_up = folder.history().events("job-given-up")
    assert [event.data["job"] for event in given_up] == [1, 2]
    words = f"it was cancelled; held allocation {allocation}: CANCELLED"
    assert all(event.data["reason"].startswith(words) for event in given_up)


def test_an_allocation_that_is_too_small_is_refused(
    slurm: SlurmBench, tmp_path: Path, allocation: str
) -> None:
    process = started(tmp_path, "--models", "6")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "no room for 6 models of 1 rank (6 slots) on 2 nodes with 4 slots" in err


@pytest.mark.cluster
def test_the_job_of_a_lost_node_restarts_elsewhere_while_the_others_train(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    process = started(tmp_path, "--models", "2", epochs=400)
    folder = wait_for(tmp_path, "progress", 1, 2)
    slurm.kill_node("n2", noticed=True)
    noticed_s = time.monotonic()
    slurm.wait(lambda: bool(folder.history().events("job-lost")), "lost job", limit_s=60)
    assert time.monotonic() - noticed_s < 30
    (lost,) = [event.payload(JobLost) for event in folder.history().events("job-lost")]
    assert (lost.job, lost.suspects) == (2, ("n2",))
    assert "node n2 is down: test" in lost.reason
    assert folder.history().events("end", job=1) == []  # it trains on
    assert_scored(ended(process, tmp_path, 0, 1), (1, 2), epochs=400, partial=False)
    assert NodeRecord.read(node_file(folder.logged_attempts(2)[-1], 0)).name in ("n3", "n4")


@pytest.mark.cluster
def test_the_job_of_a_lost_node_restarts_on_the_free_node_of_a_held_allocation(
    slurm: SlurmBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "salloc --no-shell --no-kill --nodes=3 --cpus-per-task=2 2>&1"
    output = slurm.run("bash", "-c", command)
    job = output.split("job allocation ")[1].split()[0]
    monkeypatch.setenv("SLURM_JOB_ID", job)
    nodes = slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    process = started(tmp_path, "--models", "2", epochs=400)
    folder = wait_for(tmp_path, "progress", 1, 2)
    where = [NodeRecord.read(node_file(folder.logged_attempts(k)[-1], 0)).name for k in (1, 2)]
    slurm.kill_node(where[1], noticed=True)
    slurm.wait(lambda: len(folder.logged_attempts(2)) == 2, "second attempt", limit_s=90)
    again = NodeRecord.read(node_file(folder.logged_attempts(2)[-1], 0)).name
    assert again not in where and folder.history().events("end", job=1) == []
    assert_scored(ended(process, tmp_path, 0, 1), (1, 2), epochs=400, partial=False)


@pytest.mark.cluster
def test_the_time_limit_of_a_partition_costs_no_attempt(slurm: SlurmBench, tmp_path: Path) -> None:
    """It is a minute; SLURM warns the job twenty to fifty seconds after its start."""
    (tmp_path / "site.toml").write_text('partition = "main"\ndirectives = ["-p brief"]\n')
    process = started(tmp_path, "--set", "bagging.attempts=1", epochs=100_000)
    folder = wait_for(tmp_path, "job-lost", 0)
    (lost,) = [event.payload(JobLost) for event in folder.history().events("job-lost")]
    assert lost.excused and not lost.suspects, lost
    assert "--signal=USR1@10\n" in (folder.path / "allocation-1.sh").read_text()
    folder = wait_for(tmp_path, "resumed", 1)
    (resumed,) = folder.history().events("resumed", job=1)
    assert resumed.data["samples"] > 0
    assert not folder.history().events("job-given-up")
    process.send_signal(signal.SIGINT)
    ended(process, tmp_path, 130)


@pytest.mark.cluster
def test_a_requeue_costs_no_attempt(slurm: SlurmBench, tmp_path: Path) -> None:
    process = started(tmp_path, "--models", "2", "--set", "bagging.attempts=1", epochs=400)
    folder = wait_for(tmp_path, "progress", 1, 2)
    slurm.run("scontrol", "requeue", slurm.run("squeue", "-h", "-o", "%i").split()[0])
    assert_scored(ended(process, tmp_path, 0, 1), (1, 2), epochs=400, partial=False)
    lost = [event.payload(JobLost) for event in folder.history().events("job-lost")]
    assert [item.excused for item in lost] == [True, True]
