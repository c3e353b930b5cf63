"""Creates the parallel plan for the mode in the settings."""

from __future__ import annotations

import torch

from vflops.config.training import TrainSettings
from vflops.train.parallel.data_parallel import DataParallel
from vflops.train.parallel.parallel_plan import ParallelPlan, SingleRank

__all__ = ["ParallelPlan", "SingleRank", "parallel_plan"]


def parallel_plan(
    rank: int, ranks: int, device: torch.device, store: str, settings: TrainSettings
) -> ParallelPlan:
    """Return the plan for this rank, which joins a process group if there are several ranks."""
    if ranks == 1:
        return SingleRank()
    if settings.parallel.mode == "sharded":
        # Imported here, since DTensors take a second to import.
        from vflops.train.parallel.sharded_parallel import ShardedData

        return ShardedData(rank, ranks, device, store)
    if settings.parallel.divides_channels:
        from vflops.train.parallel.tensor_parallel import TensorParallel

        return TensorParallel(rank, ranks, device, store, settings)
    if settings.parallel.cuts_layers:
        from vflops.train.parallel.pipeline_parallel import Pipeline

        return Pipeline(rank, ranks, device, store, settings)
    return DataParallel(rank, ranks, device, store, settings.communication)
