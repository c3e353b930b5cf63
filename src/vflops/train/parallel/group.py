"""Several ranks in a process group of torch: their messages, and the common part of plans."""

from __future__ import annotations

import os
import re
import threading
import traceback
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from vflops.config.parallel import AllReduceAlgorithm
from vflops.train.communication.fixed_algorithm import fix_algorithm
from vflops.train.parallel.parallel_plan import ParallelPlan
from vflops.train.parallel.rank_group import RankGroup
from vflops.workloads.contract.workload import Summary

_AGREE_EVERY = 8
"""Steps between two calls of ``agree``, each of which sends a message."""
_TIMEOUT = timedelta(minutes=10)
_ABORT_S = 2.0
_GLOO_CONNECTION = re.compile(r"\[[^\s\]]*\bgloo/transport/[^\s\]]+:\d+\] ")
"""Matches the place in gloo's source that an error of a connection begins with. Failed assertions
there, such as messages of different sizes, have words before the path."""
_OURS = ("torch.", "vflops.")
_EXCHANGES = ("torch.distributed.", "vflops.train.communication.")
"""Modules in which a connection is one to another rank."""


def backend_of(device: torch.device) -> str:
    """Return the name of the communication library for ranks on ``device``."""
    return "gloo" if device.type == "cpu" else dist.get_default_backend_for_device(device)


def bound_device(device: torch.device) -> torch.device | None:
    """Return the ``device_id`` of process groups on ``device``; None for a CPU.

    Without it, barriers and messages between two ranks guess the device from the rank.
    """
    return None if device.type == "cpu" else device


def abort_groups() -> None:
    """Abort the process groups of this process after an error, so that the other ranks fail soon.

    Destroying them might wait for the others. So might aborting, but this waits a short time only:
    the process ends next, and its connections with it.
    """
    abort = getattr(dist.distributed_c10d, "_abort_process_group", None)
    if abort is None or not dist.is_initialized():
        return

    def work() -> None:
        with suppress(Exception):  # an old torch cannot abort all kinds of groups
            abort()

    thread = threading.Thread(target=work, name="abort", daemon=True)
    thread.start()
    thread.join(_ABORT_S)


def is_lost_peer(error: Exception) -> bool:
    """Whether an error only says that another rank is gone.

    Gloo raises RuntimeError, as much else does, and in a backward pass no frame of Python shows
    where it comes from: what counts is that the message names the source of gloo's connections. A
    wrong argument of a collective is refused elsewhere.
    """
    if isinstance(error, dist.DistError):
        return True
    if isinstance(error, ConnectionError):
        return _raiser(error).startswith(_EXCHANGES)
    if type(error) is not RuntimeError or not dist.is_initialized():
        return False
    return _GLOO_CONNECTION.search(str(error)) is not None


def _raiser(error: Exception) -> str:
    """Return the innermost module of torch or vflops that an error passed through."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in frames]
    return next((name for name in reversed(modules) if name.startswith(_OURS)), "")


class ConnectedRanks(RankGroup):
    """Several ranks in a process group."""

    agree_every = _AGREE_EVERY

    def __init__(
        self,
        rank: int,
        ranks: int,
        device: torch.device,
        store: str,
        algorithm: AllReduceAlgorithm = "auto",
    ) -> None:
        self.rank, self.ranks, self._device = rank, ranks, device
        backend = backend_of(device)
        fix_algorithm(algorithm, backend)
        dist.init_process_group(
            backend,
            init_method=store,
            rank=rank,
            world_size=ranks,
            timeout=_TIMEOUT,
            device_id=bound_device(device),
        )
        # Messages between hosts must not wait for work on the accelerator.
        self._hosts = dist.new_group(backend="gloo") if backend != "gloo" else None

    @property
    def _local_ranks(self) -> int:
        """Number of ranks on a node."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks))

    def gather(self, value: Summary) -> list[Summary]:
        """Gather the values as plain bytes, so that nothing is pickled."""
        names = sorted(value)
        columns = [self._gathered(np.asarray(value[name])) for name in names]
        has_output = self._gathered(np.asarray(self.has_output))
        return [
            dict(zip(names, row, strict=True))
            for row, included in zip(zip(*columns, strict=True), has_output, strict=True)
            if included
        ]

    def _gathered(self, value: NDArray[Any]) -> list[float | NDArray[Any]]:
        """Return the value of every rank; arrays may differ in length along the first dimension."""
        flat = torch.from_numpy(np.frombuffer(value.tobytes(), dtype=np.uint8).copy())
        sizes = [torch.zeros((), dtype=torch.int64) for _ in range(self.ranks)]
        dist.all_gather(sizes, torch.tensor(len(flat)), group=self._hosts)
        padded = torch.zeros(int(max(sizes)), dtype=torch.uint8)
        padded[: len(flat)] = flat
        gathered = [torch.empty_like(padded) for _ in range(self.ranks)]
        dist.all_gather(gathered, padded, group=self._hosts)
        parts = [
            np.frombuffer(data.numpy()[: int(size)].tobytes(), value.dtype)
            for data, size in zip(gathered, sizes, strict=True)
        ]
        return [part.reshape(-1, *value.shape[1:]) if value.ndim else part.item() for part in parts]

    def texts(self, text: str) -> list[str]:
        """Gather the texts as plain bytes."""
        gathered = self._gathered(np.frombuffer(text.encode(), dtype=np.uint8))
        return [np.asarray(value, dtype=np.uint8).tobytes().decode() for value in gathered]

    def agree(self, value: int) -> int:
        """All-reduce ``value`` between the hosts."""
        largest = torch.tensor(value)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._hosts)
        return int(largest)

    def barrier(self) -> None:
        """Wait for all ranks, through the hosts."""
        dist.barrier(group=self._hosts)

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


class GroupPlan(ConnectedRanks, ParallelPlan):
    """A plan for several ranks in a process group."""

    def mean(self, value: Tensor) -> Tensor:
        """All-reduce a detached copy on the device, so that ``value`` stays unchanged."""
        value = value.detach().clone()
        dist.all_reduce(value)
        return value / self.ranks

    def maximum(self, value: Tensor) -> Tensor:
        """All-reduce ``value`` on the device, in place."""
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return value
