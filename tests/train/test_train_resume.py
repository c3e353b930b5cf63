"""Runs that are killed, warned, or find a damaged checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from train_runs import (
    losses,
    planned,
    run_ranks,
    start_command,
    start_ranks,
    training_run,
    wait_for,
    weights,
)

from vflops.record.folder import RunFolder
from vflops.record.training import Fallback, Resumed
from vflops.score.contents import Contents
from vflops.score.score import score
from vflops.score.trained import Trained


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The training that nothing disturbed."""
    folder = planned(tmp_path_factory.mktemp("whole"))
    run_ranks(folder)
    return folder


def killed(place: Path, after: int) -> RunFolder:
    """A training whose only rank got SIGKILL."""
    folder = planned(place)
    processes = start_ranks(folder, KILL_AFTER=str(after))
    while processes.running():
        time.sleep(0.02)
    assert processes.poll() == [-signal.SIGKILL]
    return folder


@pytest.mark.parametrize("after", [3, 13])
def test_kill_9_then_resume_gives_the_same_weights_bit_by_bit(
    whole: RunFolder, tmp_path: Path, after: int
) -> None:
    """Before there is a checkpoint, and after the one of step 8."""
    folder = killed(tmp_path, after)
    log = run_ranks(folder)
    resumed = [e.payload(Resumed).step for e in log.events if e.kind == "resumed"]
    assert resumed == ([8] if after > 8 else [])
    undisturbed = losses(whole.history().jobs[1][0])
    assert losses(log) == undisturbed[-len(losses(log)) :]
    assert weights(folder) == weights(whole)
    (job,) = Contents(folder).trained
    assert job.samples_trained == 512
    assert job.samples_redone == (after - sum(resumed)) * 32
    assert sum(job.phases.values()) == pytest.approx(job.wall_s)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    whole: RunFolder, tmp_path: Path
) -> None:
    folder = planned(tmp_path)
    run_ranks(folder)
    checkpoints = sorted((folder.path / "jobs" / "1" / "checkpoint").glob("*.pt"))
    assert [path.name for path in checkpoints] == ["step-000000008.pt", "step-000000016.pt"]
    data = bytearray(checkpoints[-1].read_bytes())
    data[len(data) // 2] ^= 1
    checkpoints[-1].write_bytes(data)
    log = run_ranks(folder)
    (fallback,) = [e.payload(Fallback) for e in log.events if e.kind == "fallback"]
    assert fallback.file == "step-000000016.pt"
    assert "hash differs" in fallback.reason
    assert [e.payload(Resumed).step for e in log.events if e.kind == "resumed"] == [8]
    assert weights(folder) == weights(whole)


def test_a_schedulers_warning_keeps_a_checkpoint_and_resume_goes_on(
    whole: RunFolder, tmp_path: Path
) -> None:
    process = start_command(tmp_path, *training_run("train.epochs=30"))
    folder = wait_for(tmp_path, "progress", process)
    os.kill(process.pid, signal.SIGUSR1)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert f"vflops resume runs/{folder.path.name}" in error
    events = [event.kind for event in folder.history().jobs[1][0].events]
    assert events[-3:] == ["checkpoint", "progress", "stopped"]
    assert not folder.history().state.complete
    resumed = start_command(tmp_path, "resume")
    wait_for(tmp_path, "resumed", resumed)
    os.kill(resumed.pid, signal.SIGTERM)
    _, error = resumed.communicate(timeout=60)
    assert resumed.returncode == 130
    assert "goes on" in error
    assert score(Contents(folder)).trainings[0].samples_redone == 0


def test_the_ranks_die_with_their_launcher(tmp_path: Path) -> None:
    process = start_command(tmp_path, *training_run("train.epochs=30"))
    folder = wait_for(tmp_path, "job", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    end_s = time.monotonic() + 10
    while _ranks_of(folder) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert not _ranks_of(folder)


def _ranks_of(folder: RunFolder) -> list[str]:
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    lines = listing.stdout.splitlines()
    return [line for line in lines if "vflops.train.rank" in line and folder.path.name in line]


def test_a_job_without_a_log_says_that_nothing_was_trained(tmp_path: Path) -> None:
    folder = planned(tmp_path)
    (job,) = Contents(folder).trained
    assert job == Trained(job.record, ())
    training = score(Contents(folder)).trainings[0]
    assert training.speed is None
    assert training.quality.achieved is None
    assert training.mfu.reason == "nothing was trained"
