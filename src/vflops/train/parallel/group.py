"""Ranks that meet in a process group: what they agree on and tell each other."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from vflops.train.parallel.parallel_plan import ParallelPlan
from vflops.workloads.contract.workload import Summary

_AGREE_EVERY = 8
"""Steps between two agreements of several ranks; each costs a message."""
_TIMEOUT = timedelta(minutes=10)


class GroupPlan(ParallelPlan):
    """Several ranks, whatever they share."""

    agree_every = _AGREE_EVERY

    def __init__(self, rank: int, ranks: int, device: torch.device, store: str) -> None:
        self.rank, self.ranks, self._device = rank, ranks, device
        backend = "gloo" if device.type == "cpu" else dist.get_default_backend_for_device(device)
        dist.init_process_group(
            backend, init_method=store, rank=rank, world_size=ranks, timeout=_TIMEOUT
        )
        # Words between hosts must not wait for the accelerator's queue.
        self._hosts = dist.new_group(backend="gloo") if backend != "gloo" else None

    @property
    def _local_ranks(self) -> int:
        """Ranks on a node."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks))

    def mean(self, value: Tensor) -> Tensor:
        """All-reduced on the device; a copy, so that the graph of the loss is not touched."""
        value = value.detach().clone()
        dist.all_reduce(value)
        return value / self.ranks

    def worst(self, found: Tensor) -> Tensor:
        """All-reduced on the device."""
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    def gather(self, value: Summary) -> list[Summary]:
        """As plain bytes, so that nothing is pickled."""
        names = sorted(value)
        columns = [self._gathered(np.asarray(value[name])) for name in names]
        has_output = self._gathered(np.asarray(self.has_output))
        return [
            dict(zip(names, row, strict=True))
            for row, counts in zip(zip(*columns, strict=True), has_output, strict=True)
            if counts
        ]

    def _gathered(self, own: NDArray[Any]) -> list[float | NDArray[Any]]:
        """A number or an array of every rank; arrays may differ in their first dimension."""
        flat = torch.from_numpy(np.frombuffer(own.tobytes(), dtype=np.uint8).copy())
        sizes = [torch.zeros((), dtype=torch.int64) for _ in range(self.ranks)]
        dist.all_gather(sizes, torch.tensor(len(flat)), group=self._hosts)
        padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
        padded[: len(flat)] = flat
        every = [torch.empty_like(padded) for _ in range(self.ranks)]
        dist.all_gather(every, padded, group=self._hosts)
        parts = [
            np.frombuffer(each.numpy()[: int(size)].tobytes(), own.dtype)
            for each, size in zip(every, sizes, strict=True)
        ]
        return [part.reshape(-1, *own.shape[1:]) if own.ndim else part.item() for part in parts]

    def agree(self, wish: int) -> int:
        """One small message between the hosts."""
        word = torch.tensor(wish)
        dist.all_reduce(word, dist.ReduceOp.MAX, group=self._hosts)
        return int(word)

    def barrier(self) -> None:
        """Through the hosts."""
        dist.barrier(group=self._hosts)

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
