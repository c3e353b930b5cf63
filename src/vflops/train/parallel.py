"""The parallel plan: all that depends on how ranks share the training of one model.

The loop asks this object and knows nothing of ranks itself: the mesh of devices, where inputs enter
and the loss is, how the model is wrapped, what the ranks agree on, how a checkpoint is laid out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from vflops.config.training import TrainSettings
from vflops.train.normalisation import average_buffers, convert
from vflops.workloads.workload import Summary

_AGREE_EVERY = 8
"""Steps between two agreements of several ranks; each costs a message."""
_TIMEOUT = timedelta(minutes=10)


class ParallelPlan(ABC):
    """How ranks work together on one model."""

    rank: int
    ranks: int
    agree_every: int
    """Steps between two calls of ``agree``."""
    mesh: DeviceMesh | None = None
    """The ranks' devices and the dimensions they are arranged in; None for one rank."""
    takes_input = True
    """Whether samples enter the model on this rank."""
    has_loss = True
    """Whether the loss is computed on this rank."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes the log and the checkpoints."""
        return self.rank == 0

    @abstractmethod
    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """``model`` with the batch norm that the settings ask for."""

    @abstractmethod
    def wrap(self, objective: nn.Module) -> nn.Module:
        """The module to call in training: its gradients are those of the whole batch."""

    @abstractmethod
    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """A context in which gradients add up on the rank and are not exchanged."""

    @abstractmethod
    def mean(self, value: Tensor) -> Tensor:
        """The mean of a device scalar over the ranks, without waiting for it."""

    @abstractmethod
    def settle(self, model: nn.Module) -> None:
        """Make the model's buffers the same on all ranks, before evaluation or a checkpoint."""

    @abstractmethod
    def gather(self, value: Summary) -> list[Summary]:
        """The ranks' values, by rank, on every rank."""

    @abstractmethod
    def agree(self, wish: int) -> int:
        """The largest wish of all ranks, the same on every rank."""

    def collect(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """What a checkpoint holds of the model, on the rank that writes it; None elsewhere.

        Here every rank has the whole of it; a plan that splits the model gathers or shards.
        """
        if not self.leads:
            return None
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def spread(
        self, contents: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Put what ``collect`` gave back into the model, on every rank."""
        model.load_state_dict(contents["model"])
        optimizer.load_state_dict(contents["optimizer"])

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks are here."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class SingleRank(ParallelPlan):
    """One rank: nothing is exchanged."""

    rank, ranks, agree_every = 0, 1, 1

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """With one rank, synchronised batch norm is plain batch norm."""
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective itself."""
        return objective

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Nothing is exchanged anyway."""
        return nullcontext()

    def mean(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value

    def settle(self, model: nn.Module) -> None:
        """There is no other rank."""

    def gather(self, value: Summary) -> list[Summary]:
        """The only value."""
        return [value]

    def agree(self, wish: int) -> int:
        """The only wish."""
        return wish

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """There is no group."""


class DataParallel(ParallelPlan):
    """Every rank holds the whole model and a share of each batch; gradients are averaged."""

    agree_every = _AGREE_EVERY

    def __init__(self, rank: int, ranks: int, device: torch.device, store: str) -> None:
        self.rank, self.ranks, self._device = rank, ranks, device
        backend = "gloo" if device.type == "cpu" else dist.get_default_backend_for_device(device)
        dist.init_process_group(
            backend, init_method=store, rank=rank, world_size=ranks, timeout=_TIMEOUT
        )
        self.mesh = init_device_mesh(device.type, (ranks,), mesh_dim_names=("data",))
        # Words between hosts must not wait for the accelerator's queue.
        self._hosts = dist.new_group(backend="gloo") if backend != "gloo" else None

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Batch norm over the rank's share, parts of it, or all ranks' shares."""
        if settings.batch_norm == "synchronised":
            return convert(model, "synchronised")
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective in torch's DDP; buffers stay each rank's own until they are settled."""
        ids = None if self._device.type == "cpu" else [self._device]
        return DistributedDataParallel(
            objective,
            device_ids=ids,
            device_mesh=self.mesh,
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """DDP without its exchange."""
        assert isinstance(wrapped, DistributedDataParallel)
        return wrapped.no_sync()

    def mean(self, value: Tensor) -> Tensor:
        """All-reduced on the device; a copy, so that the graph of the loss is not touched."""
        value = value.detach().clone()
        dist.all_reduce(value)
        return value / self.ranks

    def settle(self, model: nn.Module) -> None:
        """The mean of the running statistics: what ghost batches on one rank would give."""
        average_buffers(model, None)

    def gather(self, value: Summary) -> list[Summary]:
        """As plain bytes, so that nothing is pickled."""
        names = sorted(value)
        columns = [self._gathered(np.asarray(value[name])) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

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


def parallel_plan(rank: int, ranks: int, device: torch.device, store: str) -> ParallelPlan:
    """The plan for this rank; one rank needs no group."""
    return SingleRank() if ranks == 1 else DataParallel(rank, ranks, device, store)
