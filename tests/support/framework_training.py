"""Trainings with another framework through the real loop, compared with PyTorch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.train_runs import losses, losses_by_step, planned, run_ranks, start_ranks
from vflops.launch.rank_failures import root_cause
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Exchanged, JobStarted
from vflops.record.log.events import Log
from vflops.run.resume_changes import changed_jobs
from vflops.testing.half_backends import half_gradient_error
from vflops.train.state_distance import relative_distance
from vflops.train.state_file import unpack
from vflops.workloads.contract.classifier import parameter_names
from vflops.workloads.contract.registry import workload
from vflops.workloads.image_classification.settings import ImageSettings

STEPS = ("synthetic.train=256", "train.epochs=3", "train.batch=32", "train.segments=3")
"""24 steps; a checkpoint is kept after every eighth one."""
SLOWLY = "train.learning_rate=0.0001"
"""At this rate, rounding errors in fp32 do not grow."""


def trained(folder: Path, framework: str, *settings: str, double: bool) -> Log:
    """Train with a framework, in float64 or in fp32."""
    run = planned(folder, *STEPS, *settings, f"train.framework={framework}")
    return run_ranks(run, 1, **_precision(double))


def pass_between(folder: Path, framework: str, *settings: str, double: bool) -> list[Log]:
    """Train in three parts: with a framework, then with PyTorch, then with the framework again.

    The first two are killed after steps 10 and 18, so that the next one resumes from the checkpoint
    of step 8 or 16. Return the log of each part.
    """
    run = planned(folder, *STEPS, *settings, f"train.framework={framework}")
    logs = [_killed(run, 10, double)]
    change_framework(run, "pytorch")
    logs.append(_killed(run, 18, double))
    change_framework(run, framework)
    logs.append(run_ranks(run, 1, **_precision(double)))
    for log, name, first in zip(logs, (framework, "pytorch", framework), (0, 8, 16), strict=True):
        started = next(event.payload(JobStarted) for event in log.events if event.kind == "job")
        assert started.framework == name
        assert [e.data["step"] for e in log.events if e.kind == "resumed"] == [first] * (first > 0)
    return logs


def _killed(run: RunFolder, step: int, double: bool) -> Log:
    """Return the log of an attempt that is killed after a step."""
    ranks = start_ranks(run, 1, KILL_AFTER=str(step), **_precision(double))
    while ranks.running():
        time.sleep(0.02)
    assert ranks.poll() != [0]
    return run.history().jobs[1][-1]


def runs_out_of_memory(folder: Path, framework: str, memory_mb: int) -> None:
    """Train on batches whose step needs gigabytes, and allow it ``memory_mb``."""
    images = ("size=32", "resize=32", "synthetic.size=32", "synthetic.train=4096")
    large = (*images, "train.batch=4096", "network.width=64", "train.epochs=2")
    run = planned(folder, *STEPS, *large, "train.segments=0", f"train.framework={framework}")
    ranks = start_ranks(run, 1, MEMORY_MB=str(memory_mb))
    while ranks.running():
        time.sleep(0.02)
    attempt = run.attempt_folder(1, run.next_attempt(1) - 1)
    assert ranks.poll() == [3], (attempt / "rank-0.log").read_text()[-2000:]
    log = run.history().jobs[1][-1]
    message = log.events[-1].data["message"]
    assert message.startswith("out of memory on cpu with 4096 samples at once (batch 4096, 1 ranks")
    failure = root_cause(attempt)
    assert failure is not None
    assert failure.hint == "use a smaller --set train.batch or a larger --set train.accumulate"


def change_framework(run: RunFolder, framework: str) -> None:
    """Have the next attempt train with another framework, as ``vflops resume --set`` does."""
    with run.start_attempt(0) as events:
        for job in changed_jobs(run, [f"train.framework={framework}"]):
            events.write("job-rearranged", **job.model_dump(mode="json"))
    run.pass_on_changes()


def parts_agree(parts: list[Log], whole: Log, within: float) -> None:
    """Compare the losses of three parts with those of a whole training, step by step."""
    expected = losses_by_step(whole)
    assert sorted(expected) == list(range(1, 25))
    for log, steps in zip(parts, (range(1, 11), range(9, 19), range(17, 25)), strict=True):
        assert losses_by_step(log) == pytest.approx(
            {step: expected[step] for step in steps}, abs=within
        )


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


def two_ranks_in_fp16_agree(folder: Path, framework: str) -> None:
    """Train with two ranks in mixed-fp16, and with two of PyTorch in fp32; compare the updates.

    The bound is that of ``vflops.testing.half_backends``: an update that is summed over the ranks
    in place of averaged, or that is not scaled back, differs by its own length or more.
    """
    few = (*STEPS, "synthetic.train=64", "train.ranks=2", SLOWLY)
    exact = planned(folder / "pytorch", *few)
    half = planned(
        folder / framework, *few, "train.precision=mixed-fp16", f"train.framework={framework}"
    )
    run_ranks(exact, 2)
    log = run_ranks(half, 2)
    assert len(losses(log)) >= 6
    record = half.effective_job(1)
    spec = workload(record.workload)
    settings = spec.settings.model_validate(record.settings)
    first = spec.load_code().create(settings, record.data).initial_weights(record.seed)
    expected, state = (_state(run, 4) for run in (exact, half))
    moved = [
        torch.cat(
            [(model[n] - torch.from_numpy(first[n])).flatten() for n in parameter_names(first)]
        )
        for model in (expected["model"], state["model"])
    ]
    assert isinstance(settings, ImageSettings)
    blocks = sum(settings.network.blocks)
    distance = float((moved[1] - moved[0]).norm() / moved[0].norm())
    assert distance < half_gradient_error(blocks, "mixed-fp16")
    assert (state["scaler"]["scale"], state["scaler"]["_growth_tracker"]) == (2.0**16, 4)


def _state(run: RunFolder, step: int) -> dict[str, Any]:
    path = state_file(run, step)
    return unpack(path.read_bytes(), path.name)


def state_file(folder: RunFolder, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder.path / "jobs" / "1" / "checkpoint" / f"step-{step:09d}.state"
