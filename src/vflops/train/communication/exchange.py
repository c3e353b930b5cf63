"""Gradients averaged in a way of their own: a hook of torch's DDP, and what it has sent."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

from vflops.config.parallel import CommunicationSettings
from vflops.metrics.traffic import GLOO_ALGORITHMS
from vflops.record.formats.job_events import Exchanged
from vflops.train.communication.average import Average
from vflops.train.communication.codec import Leftovers
from vflops.train.communication.lane import lane
from vflops.train.communication.link import Link, Traffic


class Exchange(ABC):
    """The gradients of one DDP: a bucket is averaged while the backward pass fills the next."""

    def __init__(self, settings: CommunicationSettings, near: int, backend: str) -> None:
        self._settings, self._near, self._backend = settings, near, backend
        self.steps = 0
        """Backward passes whose gradients were averaged."""
        self._elements = 0

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """What this rank has sent."""

    @abstractmethod
    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """What DDP calls when the gradients of a bucket are ready: their mean over the ranks."""

    @abstractmethod
    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """A backward pass begins, of a loss that ``scale`` scales."""

    def note(self, bucket: GradBucket) -> None:
        """Count a bucket that is to be averaged."""
        self.steps += bucket.is_last()
        self._elements += bucket.buffer().numel()

    def report(self, copies: dist.ProcessGroup | None, device: torch.device) -> Exchanged:
        """What all ranks have sent, each to its ``copies``; all of them call it."""
        sent = torch.tensor([self.traffic.near, self.traffic.far, self._elements], device=device)
        dist.all_reduce(sent)
        how, reason = algorithm(self._backend, self.traffic.calls)
        return Exchanged(
            mode=self._settings.mode,
            precision=self._settings.precision,
            ranks=dist.get_world_size(copies),
            near=self._near,
            backend=self._backend,
            algorithm=how,
            reason=reason,
            bytes_near=int(sent[0]),
            bytes_far=int(sent[1]),
            steps=self.steps,
            elements=int(sent[2]),
        )

    @abstractmethod
    def close(self) -> None:
        """Take no more buckets."""


class PlainExchange(Exchange):
    """By the library's all-reduce, as DDP does it by itself, and counted."""

    def __init__(self, settings: CommunicationSettings, link: Link, backend: str) -> None:
        super().__init__(settings, link.near, backend)
        self._link = link

    @property
    def traffic(self) -> Traffic:
        """By the buckets' sizes, in rings."""
        return self._link.traffic

    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Nothing is remembered."""

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Torch's own."""
        self.note(bucket)
        self._link.count_all_reduce(bucket.buffer().nbytes)
        return allreduce_hook(self._link.group, bucket)

    def close(self) -> None:
        """Nothing of its own is open."""


class OwnExchange(Exchange):
    """In a lane of its own beside the backward pass."""

    def __init__(
        self, settings: CommunicationSettings, near: int, backend: str, device: torch.device
    ) -> None:
        super().__init__(settings, near, backend)
        self._lane, self._device = lane(device), device
        self._scale: Tensor | None = None
        self._scales: dict[int, Tensor] = {}
        """Of the loss when a bucket was averaged last, where losses are scaled."""

    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """What was left out before is added in units of this loss."""
        one = torch.ones((), device=self._device)
        scaled = scale(one)
        self._scale = None if scaled is one else scaled

    @abstractmethod
    def average(self, bucket: GradBucket) -> Tensor:
        """The mean of a bucket over the ranks, in the bucket's own memory."""

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Put into the lane."""
        self.note(bucket)
        return self._lane.put(lambda: self.average(bucket))

    def rescale(self, index: int, left: Iterable[Tensor]) -> None:
        """Turn what was ``left`` out of a bucket into units of the loss as it is scaled now."""
        if self._scale is None:
            return
        before = self._scales.get(index, self._scale)
        for each in left:
            each.mul_(self._scale / before)
        self._scales[index] = self._scale

    def close(self) -> None:
        """Take no more buckets."""
        self._lane.close()


class CodedExchange(OwnExchange):
    """By a mode and a codec of ours."""

    def __init__(
        self, settings: CommunicationSettings, average: Average, device: torch.device
    ) -> None:
        super().__init__(settings, average.near, average.backend, device)
        self._average = average
        self._left: dict[int, tuple[list[int], Leftovers]] = {}

    @property
    def traffic(self) -> Traffic:
        """As counted call by call."""
        return self._average.traffic

    def average(self, bucket: GradBucket) -> Tensor:
        """With what was left out of it the last time."""
        buffer: Tensor = bucket.buffer()
        left = self._leftovers(bucket)
        self.rescale(bucket.index(), left.values())
        self._average(buffer, left)
        return buffer

    def _leftovers(self, bucket: GradBucket) -> Leftovers:
        """Those of the same parameters: DDP fills its buckets otherwise after the first step."""
        parameters = [id(each) for each in bucket.parameters()]
        known, left = self._left.get(bucket.index(), (None, {}))
        if known != parameters:
            left = {}
            self._left[bucket.index()] = (parameters, left)
        return left


def algorithm(backend: str, calls: set[str]) -> tuple[str | None, str | None]:
    """How the library does what was called, or why that is not known."""
    if backend == "gloo":
        return "; ".join(f"{call}: {GLOO_ALGORITHMS[call]}" for call in sorted(calls)), None
    if backend == "nccl" and (chosen := os.environ.get("NCCL_ALGO")):
        return f"NCCL_ALGO={chosen}", None
    return None, f"{backend} chooses by itself, a size at a time, and does not say what"
