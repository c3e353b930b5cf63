"""Trainings with another framework through the real loop, compared with PyTorch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.train_runs import losses, planned, run_ranks, start_ranks
from vflops.launch.rank_failures import root_cause
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Exchanged, JobStarted
from vflops.record.log.events import Log
from vflops.run.resume_changes import changed_jobs
from vflops.train.state_distance import relative_distance

STEPS = ("synthetic.train=256", "train.epochs=3", "train.batch=32", "train.segments=3")
"""24 steps; a checkpoint is kept after every eighth one."""
SLOWLY = "train.learning_rate=0.0001"
"""At this rate, rounding errors in fp32 do not grow."""


def trained(folder: Path, framework: str, *settings: str, double: bool) -> Log:
    """Train with a framework, in float64 or in fp32."""
    run = planned(folder, *STEPS, *settings, f"train.framework={framework}")
    return run_ranks(run, 1, **_precision(double))


def resumed(folder: Path, first: str, second: str, *settings: str, double: bool) -> Log:
    """Kill a training of the first framework after step 10, and resume it with the second."""
    run = planned(folder, *STEPS, *settings, f"train.framework={first}")
    killed = start_ranks(run, 1, KILL_AFTER="10", **_precision(double))
    while killed.running():
        time.sleep(0.02)
    assert killed.poll() != [0]
    change_framework(run, second)
    log = run_ranks(run, 1, **_precision(double))
    (event,) = (event for event in log.events if event.kind == "resumed")
    assert event.data["step"] == 8
    started = next(event.payload(JobStarted) for event in log.events if event.kind == "job")
    assert started.framework == second
    return log


def runs_out_of_memory(folder: Path, framework: str, memory_mb: int) -> None:
    """Train on batches that do not fit into ``memory_mb`` more than what a first step left."""
    large = ("train.batch=1024", "synthetic.train=2048", "network.width=32", "train.epochs=1")
    run = planned(folder, *STEPS, *large, "train.segments=0", f"train.framework={framework}")
    ranks = start_ranks(run, 1, MEMORY_MB=str(memory_mb))
    while ranks.running():
        time.sleep(0.02)
    assert ranks.poll() == [3]
    log = run.history().jobs[1][-1]
    message = log.events[-1].data["message"]
    assert message.startswith("out of memory on cpu with 1024 samples at once (batch 1024, 1 ranks")
    failure = root_cause(run.attempt_folder(1, run.next_attempt(1) - 1))
    assert failure is not None
    assert failure.hint == "use a smaller --set train.batch or a larger --set train.accumulate"


def change_framework(run: RunFolder, framework: str) -> None:
    """Have the next attempt train with another framework, as ``vflops resume --set`` does."""
    with run.start_attempt(0) as events:
        for job in changed_jobs(run, [f"train.framework={framework}"]):
            events.write("job-rearranged", **job.model_dump(mode="json"))
    run.pass_on_changes()


def agree(log: Log, whole: Log, within: float) -> None:
    """Compare the losses of a log with the last ones of a whole training."""
    found, expected = losses(log), losses(whole)
    assert len(found) >= 8
    assert found == pytest.approx(expected[-len(found) :], abs=within)


def _precision(double: bool) -> dict[str, str]:
    return {"DOUBLE": "1"} if double else {}


def two_ranks_agree(
    folder: Path, framework: str, *settings: str, double: bool, within: float
) -> None:
    """Train with two ranks of PyTorch and of a framework; compare losses, traffic and states."""
    few = (*STEPS, "synthetic.train=64", "train.ranks=2", *settings)
    runs = [
        planned(folder / name, *few, f"train.framework={name}") for name in ("pytorch", framework)
    ]
    ours, theirs = (run_ranks(run, 2, **_precision(double)) for run in runs)
    assert len(losses(ours)) >= 6
    assert losses(theirs) == pytest.approx(losses(ours), abs=within)
    (sent,) = (event.payload(Exchanged) for event in theirs.events if event.kind == "exchange")
    (expected,) = (event.payload(Exchanged) for event in ours.events if event.kind == "exchange")
    assert (sent.backend, sent.steps) == (framework, expected.steps)
    assert sent.elements == expected.elements
    assert relative_distance(*(state_file(run, 4) for run in runs)) < within


def state_file(folder: RunFolder, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder.path / "jobs" / "1" / "checkpoint" / f"step-{step:09d}.state"
