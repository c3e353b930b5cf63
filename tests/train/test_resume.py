"""Runs that are killed, warned, or find a damaged checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.train_runs import (
    losses,
    planned,
    run_ranks,
    start_command,
    start_ranks,
    training_run,
    wait_for,
    weights,
)
from vflops import interruption
from vflops.data.images import synthetic_images
from vflops.data.images.drawing import Recipe
from vflops.errors import Interrupted, RunFailed, UsageError
from vflops.launch.attempt import run_job
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import (
    Checkpointed,
    Evaluated,
    Fallback,
    Finished,
    JobTrained,
    KernelsProfiled,
    Resumed,
)
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.scoring import score
from vflops.run import jobs as training


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The training that nothing disturbed."""
    folder = planned(tmp_path_factory.mktemp("whole"))
    run_ranks(folder)
    return folder


def killed(directory: Path, *assignments: str, **when: str) -> RunFolder:
    """Return a training whose only rank got SIGKILL."""
    folder = planned(directory, *assignments)
    processes = start_ranks(folder, 1, **when)
    while processes.running():
        time.sleep(0.02)
    assert processes.poll() == [-signal.SIGKILL]
    return folder


@pytest.mark.parametrize("after", [3, 13])
def test_kill_9_then_resume_gives_the_same_weights_bit_by_bit(
    whole: RunFolder, tmp_path: Path, after: int
) -> None:
    """Before there is a checkpoint, and after the one of step 8."""
    folder = killed(tmp_path, KILL_AFTER=str(after))
    log = run_ranks(folder)
    resumed = [e.payload(Resumed).step for e in log.events if e.kind == "resumed"]
    assert resumed == ([8] if after > 8 else [])
    undisturbed = losses(whole.history().jobs[1][0])
    assert losses(log) == undisturbed[-len(losses(log)) :]
    assert weights(folder) == weights(whole)
    (job,) = Contents(folder).training_jobs
    assert job.samples_trained == 512
    assert job.samples_redone == (after - sum(resumed)) * 32
    assert sum(job.phases.values()) == pytest.approx(job.wall_s)


def test_a_target_that_was_reached_when_the_kill_came_still_ends_the_training(
    tmp_path: Path,
) -> None:
    """Otherwise a kill at the right moment would train longer and score higher."""
    settings = ("train.stop_at_target=true", "target=0.01")
    folder = killed(tmp_path, *settings, KILL_IN_EVALUATION="1")
    log = run_ranks(folder)
    done = next(event for event in log.events if event.kind == "finished").payload(Finished)
    assert (done.reason, done.step, done.samples) == ("target", 8, 256)
    assert len([event for event in log.events if event.kind == "evaluation"]) == 1


def test_a_training_that_stops_by_the_loss_stops_at_the_same_step_after_a_kill(
    tmp_path: Path,
) -> None:
    """The lowest loss and the wait since it survive in the checkpoint."""
    settings = ("train.stop_by=loss", "train.patience=2", "train.epochs=6")
    undisturbed = planned(tmp_path / "undisturbed", *settings)
    run_ranks(undisturbed)
    folder = killed(tmp_path / "killed", *settings, KILL_AFTER="18")
    run_ranks(folder)

    def end(of: RunFolder) -> tuple[object, ...]:
        done = of.history().events("finished", job=1)[-1].payload(Finished)
        points = {
            point.step: point.loss
            for event in of.history().events("evaluation", job=1)
            if (point := event.payload(Evaluated))
        }
        return done.reason, done.step, points

    reason, step, points = end(undisturbed)
    assert end(folder) == (reason, step, points)
    in_order = [loss for _, loss in sorted(points.items())]  # type: ignore[attr-defined]
    since_best = len(in_order) - 1 - in_order.index(min(in_order))
    assert (reason == "patience") == (since_best == 2)


def test_an_attempt_with_no_step_left_still_profiles_and_ends(tmp_path: Path) -> None:
    folder = planned(tmp_path, "telemetry.kernels=true")
    run_ranks(folder)
    log = run_ranks(folder)
    kinds = [event.kind for event in log.events]
    assert kinds[-1] == "end"
    assert "kernels" in kinds
    assert losses(log) == []
    shares = folder.history().events("kernels", job=1)[-1].payload(KernelsProfiled).kernels
    assert sum(item.share for item in shares) == pytest.approx(1)


def copied(folder: RunFolder, directory: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(folder.path, directory / folder.path.name))


def test_a_job_that_ended_before_the_run_noticed_is_not_trained_again(
    whole: RunFolder, tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    record = JobRecord.read(folder.job_file(1))
    with folder.start_attempt(0) as events:
        training.run(folder, events, record, lambda kind, data: None)
        training.run(folder, events, record, lambda kind, data: None)
    (pinned,) = folder.history().events("job-trained")
    assert pinned.payload(JobTrained).attempt == 0
    assert folder.next_attempt(1) == 1


def test_a_stop_that_comes_as_a_job_ends_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "LIMIT_S", 60.0)  # the limit of users ends this process
    folder = planned(tmp_path)
    record = JobRecord.read(folder.job_file(1))

    def stop(kind: str, data: object) -> None:
        if kind == "end":
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM"):
        run_job(folder, record, stop)
    assert folder.history().ended(1)


def test_data_that_was_changed_under_its_index_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    synthetic_images.pack(Recipe(classes=4, size=16, seed=5), packed, 64, 16)
    planned(tmp_path / "runs", f"data={packed}", "target=0.5")
    shard = packed / "train-00000.bin"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(UsageError, match=r"train-00000\.bin"):
        planned(tmp_path / "again", f"data={packed}", "target=0.5")
    folder = RunFolder.open(next((tmp_path / "runs").iterdir()))
    with (
        folder.start_attempt(0) as events,
        pytest.raises(UsageError, match=r"train-00000\.bin"),
    ):
        training.plan(folder, events, None, lambda what, done, whole: None)


def test_a_rank_that_is_killed_is_named_and_not_the_one_that_missed_it(tmp_path: Path) -> None:
    folder = planned(tmp_path, "train.ranks=2", "train.epochs=50")
    record = JobRecord.read(folder.job_file(1))

    def kill(kind: str, data: object) -> None:
        if kind == "job":
            name = f"vflops.train.rank {folder.path} 1"
            for process in psutil.process_iter(["cmdline"]):
                output = Path(f"/proc/{process.pid}/fd/1")
                if (
                    name in " ".join(process.info["cmdline"] or ())
                    and output.readlink().name == "rank-1.log"
                ):
                    process.kill()

    with pytest.raises(RunFailed, match="rank 1 was killed by SIGKILL"):
        run_job(folder, record, kill)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    whole: RunFolder, tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path)
    checkpoints = sorted((folder.path / "jobs" / "1" / "checkpoint").glob("*.state"))
    assert [path.name for path in checkpoints] == ["step-000000008.state", "step-000000016.state"]
    data = bytearray(checkpoints[-1].read_bytes())
    data[len(data) // 2] ^= 1
    checkpoints[-1].write_bytes(data)
    log = run_ranks(folder)
    (fallback,) = [e.payload(Fallback) for e in log.events if e.kind == "fallback"]
    assert fallback.file == "step-000000016.state"
    assert "hash differs" in fallback.reason
    assert [e.payload(Resumed).step for e in log.events if e.kind == "resumed"] == [8]
    assert weights(folder) == weights(whole)


def test_a_schedulers_warning_writes_a_checkpoint_and_the_run_resumes(
    whole: RunFolder, tmp_path: Path
) -> None:
    process = start_command(tmp_path, *training_run("train.epochs=30"))
    folder = wait_for(tmp_path, "progress", process)
    os.kill(process.pid, signal.SIGUSR1)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert f"vflops resume runs/{folder.path.name}" in error
    events = folder.history().jobs[1][0].events
    assert [event.kind for event in events[-2:]] == ["progress", "stopped"]
    kept = [event.data["step"] for event in events if event.kind == "checkpoint"]
    assert kept[-1] == events[-2].data["step"]
    assert not folder.history().state.complete
    resumed = start_command(tmp_path, "resume")
    wait_for(tmp_path, "resumed", resumed)
    os.kill(resumed.pid, signal.SIGTERM)
    _, error = resumed.communicate(timeout=60)
    assert resumed.returncode == 130
    assert "resumes at step" in error
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
    (job,) = Contents(folder).training_jobs
    assert job == TrainedJob(job.record, ())
    training = score(Contents(folder)).trainings[0]
    assert training.speed is None
    assert training.quality.achieved is None
    assert training.mfu.reason == "nothing was trained"


def test_checkpoints_that_would_take_too_much_of_the_time_are_left_out(tmp_path: Path) -> None:
    folder = planned(tmp_path, "train.epochs=3", "train.checkpoint_share=1e-9")
    log = run_ranks(folder)
    assert [e.payload(Checkpointed).step for e in log.events if e.kind == "checkpoint"] == [8, 24]
    assert sum(e.kind == "evaluation" for e in log.events) == 3
