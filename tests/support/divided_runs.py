"""Short trainings with one or more ranks, as a run starts them."""

from __future__ import annotations

from pathlib import Path

from tests.support.train_runs import losses, planned, run_ranks
from vflops.record.folder import RunFolder

SHORT = ("train.epochs=1", "train.warmup_epochs=0", "train.learning_rate=0.001")
"""8 steps."""


def trained(
    path: Path,
    *assignments: str,
    ranks: int = 1,
    workload: str = "image-classification",
    **environment: str,
) -> RunFolder:
    """Return the run folder of a finished training."""
    settings = [f"train.ranks={ranks}", *SHORT, *assignments]
    folder = planned(path, *settings, workload=workload)
    run_ranks(folder, ranks, **environment)
    return folder


def all_losses(folder: RunFolder) -> list[float]:
    """Return the loss of every step, over all attempts."""
    return [loss for log in folder.history().jobs[1] for loss in losses(log)]
