"""How ranks share the training of one model: a plan for each mode, behind one interface."""

from __future__ import annotations

import torch

from vflops.config.training import TrainSettings
from vflops.train.parallel.data import DataParallel
from vflops.train.parallel.plan import ParallelPlan, SingleRank

__all__ = ["ParallelPlan", "SingleRank", "parallel_plan"]


def parallel_plan(
    rank: int, ranks: int, device: torch.device, store: str, settings: TrainSettings
) -> ParallelPlan:
    """The plan for this rank; one rank needs no group."""
    if ranks == 1:
        return SingleRank()
    return DataParallel(rank, ranks, device, store)
