"""Ensembles on a real SLURM of four nodes, to a scored ensemble, and through a site's faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

import ensemble_runs
from ensemble_runs import ended, wait_for
from slurm_bench import SlurmBench
from vflops.launch.scheduled_jobs import Submitted
from vflops.record.folder import RunFolder
from vflops.record.training import Ensembled
from vflops.score.contents import Contents
from vflops.score.score import score


def started(place: Path, *arguments: str, epochs: int = 2) -> subprocess.Popen[str]:
    return ensemble_runs.started(place, "--on", "slurm", *arguments, epochs=epochs)


def assert_whole(folder: RunFolder, models: int, samples: int) -> None:
    """The ensemble is complete and every sample is accounted for."""
    history = folder.history()
    found = history.events("ensemble")[-1].payload(Ensembled)
    assert found.jobs == tuple(range(1, models + 1))
    for job in found.jobs:
        assert history.events("finished", job=job)[-1].data["samples"] == samples
    (scored,) = score(Contents(folder)).ensembles
    assert not scored.partial
    assert scored.vflops is not None and scored.vflops > 0


def test_four_models_on_four_nodes(slurm: SlurmBench, tmp_path: Path) -> None:
    process = started(tmp_path, "--models", "4")
    folder = ended(process, tmp_path)
    assert_whole(folder, 4, 512)
    begun = folder.history().events("job-begun")
    assert [event.data["launcher"] for event in begun] == ["slurm"] * 4
    assert [path.name for path in folder.path.glob("**/*.sh")] == ["allocation-1.sh"]
    assert slurm.run("squeue", "-h") == ""


def test_two_models_of_two_ranks_span_two_nodes_each(slurm: SlurmBench, tmp_path: Path) -> None:
    process = started(tmp_path, "--models", "2", "--ranks", "2", "--set", "launch.ranks_per_node=1")
    folder = ended(process, tmp_path)
    assert_whole(folder, 2, 512)
    for job in (1, 2):
        place = folder.logged_attempts(job)[-1]
        assert (place / "claim.json").is_file()
        assert {path.name for path in place.glob("rank-*.log")} == {"rank-0.log", "rank-1.log"}


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


def test_a_bad_night(slurm: SlurmBench, tmp_path: Path) -> None:
    """A process killed, a job put back in the queue, one cancelled, slurmctld gone for a while."""
    process = started(tmp_path, "--models", "4", "--set", "launch.start=apart", epochs=24)
    folder = wait_for(tmp_path, "checkpoint", 1, 2, 3, 4)
    rank_of(folder, 1).kill()
    slurm.run("scontrol", "requeue", id_of(folder, 2))
    slurm.restart_slurmctld()
    slurm.run("scancel", id_of(folder, 4))
    folder = ended(process, tmp_path)
    assert_whole(folder, 4, 24 * 256)
    history = folder.history()
    lost = sorted(event.data["job"] for event in history.events("job-lost"))
    assert lost == [1, 4]  # SLURM itself began the second again
    assert [len(history.jobs[job]) for job in (1, 2, 3, 4)] == [2, 2, 1, 2]
    assert slurm.run("squeue", "-h") == ""


def test_a_node_dies_and_then_the_controller_and_another_takes_over(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    apart = ("--set", "launch.start=apart", "--set", "launch.cores_per_rank=2")  # a node each
    process = started(tmp_path, "--models", "2", *apart, epochs=24)
    folder = wait_for(tmp_path, "checkpoint", 1, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = [id_of(folder, job) for job in (1, 2)]
    (node,) = slurm.run("squeue", "-h", "-j", before[0], "-o", "%N").split()
    slurm.kill_node(node, noticed=True)
    again = subprocess.run(
        [sys.executable, "-m", "vflops", "resume", str(folder.path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert_whole(folder, 2, 24 * 256)
    assert id_of(folder, 2) == before[1]  # it was not handed in twice
    assert len(folder.history().jobs[2]) == 1


def test_a_job_that_always_fails_leaves_a_partial_ensemble_with_the_reason(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    process = started(
        tmp_path,
        "--models",
        "2",
        "--set",
        "launch.start=apart",
        "--set",
        "bagging.attempts=1",
        epochs=8,
    )
    folder = wait_for(tmp_path, "checkpoint", 2)
    slurm.run("scancel", id_of(folder, 2))
    folder = ended(process, tmp_path, code=1)
    history = folder.history()
    (event,) = history.events("job-given-up")
    assert event.data["job"] == 2
    assert event.data["reason"]
    (scored,) = score(Contents(folder)).ensembles
    assert (scored.partial, scored.jobs) == (True, (1,))


def test_a_partition_that_does_not_exist_is_named(slurm: SlurmBench, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('partition = "nowhere"\n')
    process = started(tmp_path, "--models", "2")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "partition" in err
    assert "main" in err
