"""Trainings whose losses and last weights are compared between ways to share a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from train_runs import evaluations, losses, planned, run_ranks

from vflops.record.folder import RunFolder

# Small steps: with large ones a rounding that turns a ReLU on or off grows tenfold in a few.
SHORT = ("train.epochs=1", "train.warmup_epochs=0", "train.learning_rate=0.001")
"""8 steps."""


_RUNNING = 2e-3
"""How far running statistics may be apart; those of single ranks are ten times as far."""


def trained(
    place: Path, *assignments: str, ranks: int = 1, workload: str = "image-classification"
) -> RunFolder:
    """A training that came to its end."""
    told = [f"train.ranks={ranks}", *SHORT, *assignments]
    folder = planned(place, *told, workload=workload)
    run_ranks(folder, ranks)
    return folder


def kept(folder: RunFolder) -> dict[str, Any]:
    """The newest checkpoint, which rank 0 wrote."""
    newest = max((folder.path / "jobs" / "1" / "checkpoint").glob("*.pt"))
    contents: dict[str, Any] = torch.load(newest, weights_only=True)
    return contents


def all_losses(folder: RunFolder) -> list[float]:
    """The loss of every step, over all attempts."""
    return [loss for log in folder.history().jobs[1] for loss in losses(log)]


def differs(
    one: RunFolder, other: RunFolder, *, steps: int = 8, before: Sequence[float] = ()
) -> str | None:
    """What is not the same to float tolerance: losses, qualities, weights, the optimizer's state.

    That is 1e-6 of a tensor, until a rounding turns a ReLU on or off; then up to 0.02 of the
    smallest biases, and 0.1 of their momentum. Other batch norm statistics make 0.6 and 1.4.
    ``before``: losses of steps that ``one`` went on from.
    """
    first, second = [*before, *all_losses(one)], all_losses(other)
    assert len(first) == len(second) == steps
    if first != pytest.approx(second, rel=5e-4):
        return f"losses: {first} {second}"
    last = [evaluations(run.history().jobs[1][-1])[-1] for run in (one, other)]
    if last[0].evaluated != last[1].evaluated or abs(last[0].quality - last[1].quality) > 2 / 60:
        return f"qualities: {last}"
    mine, wanted = kept(one), kept(other)
    return _far(mine["model"], wanted["model"], 0.05) or _far(_states(mine), _states(wanted), 0.2)


def _states(contents: dict[str, Any]) -> dict[Any, Any]:
    every = contents["optimizer"].items()
    return {(name, key): value for name, each in every for key, value in each.items()}


def _far(one: dict[Any, Any], other: dict[Any, Any], tolerance: float) -> str | None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        wanted = other[name]
        assert tensor.shape == wanted.shape, name
        apart = float((tensor.float() - wanted.float()).norm() / (wanted.float().norm() + 1e-3))
        if not apart <= (_RUNNING if "running" in name else tolerance):
            return f"{name} is {apart:.1e} apart"
    return None
