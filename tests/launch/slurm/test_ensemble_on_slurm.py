"""Ensembles on a real SLURM of four nodes, to a scored ensemble, and through a site's faults."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import ensemble_runs
from tests.support.ensemble_runs import TRAIN, VALIDATION, ended, processes_of, wait_for
from tests.support.sample_parts import Vflops
from tests.support.slurm_bench import SlurmBench
from vflops.launch.submissions import Submitted
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobBegun, Staged
from vflops.record.formats.node import NodeRecord, node_file
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score


def started(place: Path, *arguments: str, epochs: int = 2) -> subprocess.Popen[str]:
    return ensemble_runs.started(place, "--on", "slurm", *arguments, epochs=epochs)


@pytest.fixture(autouse=True)
def nothing_left(slurm: SlurmBench, tmp_path: Path) -> Iterator[None]:
    """When a test has ended, no process names its runs and SLURM has no job of theirs."""
    yield
    assert processes_of(tmp_path) == []
    assert "vflops-" not in slurm.run("squeue", "-h", "-o", "%j")


def assert_whole(folder: RunFolder, models: int, epochs: int) -> None:
    """The ensemble is scored, no job is missing, every sample is accounted for, checks pass."""
    assert_scored(folder, tuple(range(1, models + 1)), epochs, partial=False)
    failed = {each.rule for each in Findings.read(folder.findings_file).failures}
    assert failed <= {"quiet"}  # other tests run beside this one


def assert_scored(folder: RunFolder, jobs: tuple[int, ...], epochs: int, partial: bool) -> None:
    """These jobs are scored together, and each saw every sample as often as it should."""
    contents = Contents(folder)
    (scored,) = score(contents).ensembles
    assert (scored.jobs, scored.partial) == (jobs, partial)
    assert scored.vflops is not None and scored.vflops > 0
    history = contents.history
    for job in jobs:
        trained = [event.data["samples"] for event in history.events("finished", job=job)]
        assert trained == [epochs * TRAIN]  # once, over all attempts
        seen = {event.data["evaluated"] for event in history.events("evaluation", job=job)}
        assert seen == {VALIDATION}


def node_python(place: Path, words: str) -> None:
    """A site whose Python is started on each node after these words of bash."""
    python = place / "python"
    python.write_text(f'#!/bin/bash\nset -- {sys.executable} "$@"\n{words}\nexec "$@"\n')
    python.chmod(0o755)
    (place / "site.toml").write_text(f'python = "{python}"\n')


def test_three_models_share_two_nodes_and_a_full_disk_is_done_without(
    slurm: SlurmBench, tmp_path: Path, small_disk: Path
) -> None:
    """Data is staged once a node; they are one machine, so each has a folder of its own."""
    (tmp_path / "n2").symlink_to(small_disk)
    (small_disk / "full").write_bytes(bytes(1 << 20))
    node_python(tmp_path, f"export VFLOPS_LOCAL_PATH={tmp_path}/$SLURMD_NODENAME")
    shared = ("--set", "launch.ranks_per_node=2")
    folder = ended(started(tmp_path, "--models", "3", *shared), tmp_path)
    assert_whole(folder, 3, epochs=2)
    history = folder.history()
    assert [event.data["launcher"] for event in history.events("job-begun")] == ["slurm"] * 3
    assert [path.name for path in folder.path.glob("**/*.sh")] == ["allocation-1.sh"]
    staged = [history.events("staged", job=job)[-1].payload(Staged) for job in (1, 2, 3)]
    assert [each.where for each in staged] == ["local", "local", "shared"]
    assert sorted(each.bytes > 0 for each in staged[:2]) == [False, True]  # by one of the two
    assert staged[0].folder.startswith(f"{tmp_path}/n1/")
    assert staged[2].bytes == 0
    assert "No space left on device" in (staged[2].reason or "")


def test_models_that_span_two_nodes_and_one_that_dies_is_tried_again_in_its_allocation(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    spans = ("--ranks", "2", "--set", "launch.ranks_per_node=1")
    process = started(tmp_path, "--models", "2", *spans, epochs=4)
    folder = wait_for(tmp_path, "checkpoint", 1)
    rank_of(folder, 1).kill()
    folder = ended(process, tmp_path)
    assert_whole(folder, 2, epochs=4)
    for job in (1, 2):
        place = folder.logged_attempts(job)[-1]
        assert (place / "claim.json").is_file()
        assert {path.name for path in place.glob("rank-*.log")} == {"rank-0.log", "rank-1.log"}
    history = folder.history()
    begun = [event.payload(JobBegun) for event in history.events("job-begun")]
    assert [(each.job, each.attempt) for each in begun] == [(1, 1), (2, 1), (1, 2)]
    (lost,) = history.events("job-lost")
    assert (lost.data["job"], lost.data["where"]) == (1, "n1, n2")
    assert ": job 1: rank " in lost.data["reason"]
    assert history.events("resumed", job=1)
    assert [path.name for path in folder.path.glob("*.sh")] == ["allocation-1.sh"]
    assert "job 1 died with code" in (folder.path / "allocation-1.log").read_text()


def rank_of(folder: RunFolder, job: int) -> psutil.Process:
    """The process that trains a job."""
    wanted = ["vflops.train.rank", str(folder.path), str(job)]
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if all(word in line for word in wanted):
            return process
    raise AssertionError(f"nobody trains job {job}")


def id_of(folder: RunFolder, job: int) -> str:
    return Submitted.read(folder.job_file(job).parent / "submitted.json").id


def last_node(folder: RunFolder, job: int) -> str:
    """Where the newest attempt at a job runs or ran."""
    return NodeRecord.read(node_file(folder.logged_attempts(job)[-1], 0)).name


APART = ("--set", "launch.start=apart", "--set", "launch.cores_per_rank=2")
"""Jobs that are submitted one by one, and have a node each."""


def test_a_bad_night(slurm: SlurmBench, tmp_path: Path) -> None:
    """A process killed, a job put back in the queue, one cancelled, slurmctld gone for a while.

    Each has a node of its own; that of the process is drained while it runs, and gets nothing more.
    """
    process = started(tmp_path, "--models", "4", *APART, epochs=8)
    folder = wait_for(tmp_path, "checkpoint", 1, 2, 3, 4)
    drained = last_node(folder, 1)
    slurm.drain(drained)
    rank_of(folder, 1).kill()
    slurm.run("scontrol", "requeue", id_of(folder, 2))
    slurm.run("scancel", id_of(folder, 4))
    slurm.restart_slurmctld()
    folder = ended(process, tmp_path)
    assert_whole(folder, 4, epochs=8)
    history = folder.history()
    lost = sorted(event.data["job"] for event in history.events("job-lost"))
    assert lost == [1, 2, 4]  # SLURM itself began the second again
    assert [len(history.jobs[job]) for job in (1, 2, 3, 4)] == [2, 2, 1, 2]
    assert drained not in [last_node(folder, job) for job in (1, 2, 4)]


def test_a_node_and_a_slurmd_die_and_then_the_controller_and_another_takes_over(
    slurm: SlurmBench, tmp_path: Path, vflops: Vflops
) -> None:
    """What a slurmd started outlives it, and no second copy that SLURM begins trains as well."""
    process = started(tmp_path, "--models", "3", *APART, epochs=8)
    folder = wait_for(tmp_path, "checkpoint", 1, 2, 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = [id_of(folder, job) for job in (1, 2, 3)]
    slurm.kill_slurmd(last_node(folder, 2), noticed=True)
    slurm.kill_node(last_node(folder, 1), noticed=True)
    again = vflops("resume", folder.path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert_whole(folder, 3, epochs=8)
    assert id_of(folder, 3) == before[2]  # it was not handed in twice
    history = folder.history()
    assert [len(history.jobs[job]) for job in (1, 3)] == [2, 1]
    assert "finished" in [event.kind for event in history.jobs[2][0].events]


def test_a_partition_that_does_not_exist_is_named(slurm: SlurmBench, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('partition = "nowhere"\n')
    process = started(tmp_path, "--models", "2")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Invalid partition name specified (nowhere)" in err
    assert "set partition in site.toml to one of: fragile, main, urgent" in err


def test_a_run_folder_that_nodes_do_not_have_ends_the_run_at_its_first_job(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "site.toml").write_text('directives = ["--nodelist=n2"]\n')
    slurm.hide("n2", tmp_path / "runs")
    try:
        process = started(tmp_path, "--models", "2", "--set", "launch.ranks_per_node=2")
        folder = ended(process, tmp_path, code=3)
    finally:
        slurm.kill_node("n2")
    (failed,) = folder.history().events("failed")
    assert f"{folder.path.name} is not visible from the nodes" in failed.data["message"]
    assert "ran on n2" in failed.data["message"]
    assert "FAILED" in failed.data["message"]
    assert [path.name for path in folder.path.glob("*.sh")] == ["allocation-1.sh"]


def test_a_job_that_always_fails_leaves_a_partial_ensemble_with_the_reason(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    """One node of two has another folder in the place of the run's."""
    (tmp_path / "runs").mkdir()
    hide = f"'mount -t tmpfs none {tmp_path}/runs && exec \"$@\"'"
    node_python(
        tmp_path,
        f'[ "$SLURMD_NODENAME" = n2 ] && set -- unshare -m bash -c {hide} - "$@"',
    )
    process = started(tmp_path, "--models", "2", "--set", "bagging.attempts=1")
    folder = ended(process, tmp_path, code=1)
    (event,) = folder.history().events("job-given-up")
    assert event.data["job"] == 2
    words = f"n2: job 2: the node does not see the run folder {folder.path.resolve()}"
    assert words in event.data["reason"]
    assert_scored(folder, (1,), epochs=2, partial=True)


@pytest.fixture
def held(slurm: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two nodes that the user holds, as a shell of ``salloc`` sees them; the allocation's id."""
    said = slurm.run("bash", "-c", "salloc --no-shell --nodes=2 --cpus-per-task=2 2>&1")
    job = re.findall(r"Granted job allocation (\d+)", said)[0]
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    return str(job)


def test_a_held_allocation_is_used_outlives_the_controller_and_is_found_again(
    slurm: SlurmBench,
    tmp_path: Path,
    held: str,
    monkeypatch: pytest.MonkeyPatch,
    vflops: Vflops,
) -> None:
    process = started(tmp_path, "--models", "2", epochs=8)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name)  # another shell
    again = vflops("attach", folder.path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "of 2 jobs 2 go on" in again.stderr
    assert_whole(folder, 2, epochs=8)
    history = folder.history()
    begun = [event.payload(JobBegun) for event in history.events("job-begun")]
    assert [each.launcher for each in begun] == [f"held allocation {held}"] * 2
    assert [len(history.jobs[job]) for job in (1, 2)] == [1, 1]
    assert slurm.run("squeue", "-h", "-o", "%i").split() == [held]  # nothing was submitted


def test_a_run_in_a_held_allocation_is_cancelled_and_the_allocation_stays(
    slurm: SlurmBench, tmp_path: Path, held: str, vflops: Vflops
) -> None:
    other = subprocess.Popen(["srun", "-N1", "-n1", "-c1", "--overlap", "sleep", "400"])
    process = started(tmp_path, "--models", "2", epochs=100)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    done = vflops("cancel", folder.path)
    assert "ended: 2 jobs, 2 with a checkpoint" in done.stdout, done.stdout + done.stderr
    process.communicate(timeout=60)
    assert processes_of(folder) == []
    assert slurm.run("squeue", "-h", "-o", "%i").split() == [held]
    steps = slurm.run("squeue", "-hs", "-j", held, "-o", "%j").split()
    assert [step for step in steps if step not in ("extern", "interactive")] == ["sleep"]
    other.terminate()
    other.wait(timeout=30)


def test_too_small_a_held_allocation_is_refused(
    slurm: SlurmBench, tmp_path: Path, held: str
) -> None:
    process = started(tmp_path, "--models", "4")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "no room for 4 models of 1 rank (4 slots) on 2 nodes with 2 slots" in err
