"""Averaging of DDP's gradients by a communication hook, with the bytes that it sends."""

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
from vflops.train.communication.codec import Residuals
from vflops.train.communication.lane import lane
from vflops.train.communication.link import Link, Traffic


class Exchange(ABC):
    """Averages the gradients of one DDP: a bucket, while the backward pass fills the next."""

    def __init__(self, settings: CommunicationSettings, near: int, backend: str) -> None:
        self._settings, self._near, self._backend = settings, near, backend
        self.steps = 0
        """Backward passes whose gradients were averaged."""
        self._elements = 0

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """The traffic of this rank."""

    @abstractmethod
    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Average a bucket over the ranks; DDP calls it when its gradients are ready."""

    @abstractmethod
    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Start a backward pass, with a loss that ``scale`` scales."""

    def note(self, bucket: GradBucket) -> None:
        """Count a bucket."""
        self.steps += bucket.is_last()
        self._elements += bucket.buffer().numel()

    def report(self, copies: dist.ProcessGroup | None, device: torch.device) -> Exchanged:
        """Return the traffic of all ranks, each with its ``copies``; all ranks call it."""
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
        """Stop; accept no more buckets."""


class PlainExchange(Exchange):
    """DDP's default: the library's all-reduce, with its traffic counted."""

    def __init__(self, settings: CommunicationSettings, link: Link, backend: str) -> None:
        super().__init__(settings, link.near, backend)
        self._link = link

    @property
    def traffic(self) -> Traffic:
        """Counted from the buckets' sizes, for rings."""
        return self._link.traffic

    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Do nothing: there is no error feedback."""

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Call torch's all-reduce."""
        self.note(bucket)
        self._link.count_all_reduce(bucket.buffer().nbytes)
        return allreduce_hook(self._link.group, bucket)

    def close(self) -> None:
        """Do nothing."""


class CustomExchange(Exchange):
    """An exchange in a lane beside the backward pass."""

    def __init__(
        self, settings: CommunicationSettings, near: int, backend: str, device: torch.device
    ) -> None:
        super().__init__(settings, near, backend)
        self._lane, self._device = lane(device), device
        self._scale: Tensor | None = None
        self._scales: dict[int, Tensor] = {}
        """The loss scale when each bucket was last averaged, if losses are scaled."""

    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Remember the scale, so that rounding errors are added in the same units."""
        one = torch.ones((), device=self._device)
        scaled = scale(one)
        self._scale = None if scaled is one else scaled

    @abstractmethod
    def average(self, bucket: GradBucket) -> Tensor:
        """Return the mean of a bucket over the ranks, in the bucket's own memory."""

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Average in the lane."""
        self.note(bucket)
        return self._lane.put(lambda: self.average(bucket))

    def rescale(self, index: int, residuals: Iterable[Tensor]) -> None:
        """Convert the ``residuals`` of a bucket to the present loss scale."""
        if self._scale is None:
            return
        before = self._scales.get(index, self._scale)
        for residual in residuals:
            residual.mul_(self._scale / before)
        self._scales[index] = self._scale

    def close(self) -> None:
        """Stop; accept no more buckets."""
        self._lane.close()


class CodedExchange(CustomExchange):
    """An exchange by a mode and a codec of this package."""

    def __init__(
        self, settings: CommunicationSettings, average: Average, device: torch.device
    ) -> None:
        super().__init__(settings, average.near, average.backend, device)
        self._average = average
        self._residuals: dict[int, tuple[list[int], Residuals]] = {}

    @property
    def traffic(self) -> Traffic:
        """Counted call by call."""
        return self._average.traffic

    def average(self, bucket: GradBucket) -> Tensor:
        """Average with the rounding errors of the last time added."""
        buffer: Tensor = bucket.buffer()
        residuals = self._residuals_of(bucket)
        self.rescale(bucket.index(), residuals.values())
        self._average(buffer, residuals)
        return buffer

    def _residuals_of(self, bucket: GradBucket) -> Residuals:
        """Return the residuals of the same parameters: DDP rebuilds its buckets once."""
        parameters = [id(parameter) for parameter in bucket.parameters()]
        known, residuals = self._residuals.get(bucket.index(), (None, {}))
        if known != parameters:
            residuals = {}
            self._residuals[bucket.index()] = (parameters, residuals)
        return residuals


def algorithm(backend: str, calls: set[str]) -> tuple[str | None, str | None]:
    """Return the library's algorithm for the calls, or the reason why it is not known."""
    if backend == "gloo":
        return "; ".join(f"{call}: {GLOO_ALGORITHMS[call]}" for call in sorted(calls)), None
    if backend == "nccl" and (chosen := os.environ.get("NCCL_ALGO")):
        return f"NCCL_ALGO={chosen}", None
    return None, f"{backend} chooses an algorithm for each size and does not report it"
