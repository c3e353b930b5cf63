"""Communication hooks that average the gradients of a DDP module and count the bytes sent."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

from vflops.config.parallel import NCCL_ALGORITHM, CommunicationSettings
from vflops.metrics.traffic import GLOO_ALGORITHMS
from vflops.record.formats.job_events import Exchanged
from vflops.train.communication.average import Average
from vflops.train.communication.background import background_executor
from vflops.train.communication.codec import Residuals
from vflops.train.communication.link import Link, Traffic


@dataclass(frozen=True)
class Sent:
    """What a rank has sent in a number of backward passes."""

    steps: int = 0
    elements: int = 0
    near_bytes: int = 0
    far_bytes: int = 0

    def __sub__(self, before: Sent) -> Sent:
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Sent(*(now - then for now, then in pairs))


class Exchange(ABC):
    """Averages the gradients of one DDP module, bucket by bucket, during the backward pass."""

    def __init__(self, settings: CommunicationSettings, near_ranks: int, backend: str) -> None:
        self._settings, self._near_ranks, self._backend = settings, near_ranks, backend
        self.steps = 0
        """Number of backward passes whose gradients were averaged."""
        self._elements = 0

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """The bytes that this rank has sent."""

    @abstractmethod
    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Average a bucket over the ranks. DDP calls this when the bucket's gradients are ready."""

    @abstractmethod
    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Start a backward pass; ``scale`` multiplies a loss by the loss scale."""

    def count(self, bucket: GradBucket) -> None:
        """Count the elements of a bucket, and a step after the last bucket."""
        self.steps += bucket.is_last()
        self._elements += bucket.buffer().numel()

    def sent(self) -> Sent:
        """Return what was counted until now."""
        traffic = self.traffic
        return Sent(self.steps, self._elements, traffic.near_bytes, traffic.far_bytes)

    def count_sent(self, sent: Sent) -> None:
        """Count what a recorded step sends without calling the hook."""
        self.steps += sent.steps
        self._elements += sent.elements
        self.traffic.near_bytes += sent.near_bytes
        self.traffic.far_bytes += sent.far_bytes

    def report(self, copies: dist.ProcessGroup | None, device: torch.device) -> Exchanged:
        """Return the traffic of all ranks; all ranks call it.

        ``copies`` is the group of ranks with copies of the same parameters; None for all ranks.
        """
        traffic = self.traffic
        sent = torch.tensor([traffic.near_bytes, traffic.far_bytes, self._elements], device=device)
        dist.all_reduce(sent)
        name, reason = algorithm(self._backend, traffic.calls)
        return Exchanged(
            mode=self._settings.mode,
            precision=self._settings.precision,
            ranks=dist.get_world_size(copies),
            near=self._near_ranks,
            backend=self._backend,
            algorithm=name,
            reason=reason,
            bytes_near=int(sent[0]),
            bytes_far=int(sent[1]),
            steps=self.steps,
            elements=int(sent[2]),
        )

    def restart(self) -> None:
        """Average for another module from now on: start again with no traffic and no errors.

        The process groups are kept. A search trains many models, and torch cannot create a group
        of the same ranks again after it was destroyed: its store still has the first one's keys.
        """
        self.steps = self._elements = 0
        self.traffic.reset()

    @abstractmethod
    def close(self) -> None:
        """Stop accepting buckets."""


class PlainExchange(Exchange):
    """Averages with the communication library's all-reduce, as DDP does by default."""

    def __init__(self, settings: CommunicationSettings, link: Link, backend: str) -> None:
        super().__init__(settings, link.near_ranks, backend)
        self._link = link

    @property
    def traffic(self) -> Traffic:
        """The bytes that a ring all-reduce of the buckets sends."""
        return self._link.traffic

    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Do nothing, since there is no error feedback."""

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Call torch's all-reduce hook."""
        self.count(bucket)
        self._link.count_all_reduce(bucket.buffer().nbytes)
        return allreduce_hook(self._link.group, bucket)

    def close(self) -> None:
        """Do nothing, since there is no background work."""


class CustomExchange(Exchange):
    """Averages in the background while the backward pass continues."""

    def __init__(
        self, settings: CommunicationSettings, near_ranks: int, backend: str, device: torch.device
    ) -> None:
        super().__init__(settings, near_ranks, backend)
        self._executor, self._device = background_executor(device), device
        self._scale: Tensor | None = None
        self._scales: dict[int, Tensor] = {}
        """Loss scale of each bucket's last average, by bucket; empty if losses are not scaled.

        The tensors stay the same, because recorded steps read and write them.
        """

    def begin(self, scale: Callable[[Tensor], Tensor]) -> None:
        """Store the loss scale, which errors of earlier steps are converted to."""
        one = torch.ones((), device=self._device)
        scaled = scale(one)
        self._scale = None if scaled is one else scaled

    def restart(self) -> None:
        """Forget the loss scales too."""
        super().restart()
        self._scale, self._scales = None, {}

    @abstractmethod
    def average(self, bucket: GradBucket) -> Tensor:
        """Return the mean of a bucket over the ranks, in the memory of the bucket."""

    def hook(self, bucket: GradBucket) -> Future[Tensor]:
        """Average the bucket in the background."""
        self.count(bucket)
        return self._executor.submit(lambda: self.average(bucket))

    def rescale(self, index: int, residuals: Iterable[Tensor]) -> None:
        """Convert the ``residuals`` of a bucket to the current loss scale, in place."""
        if self._scale is None:
            return
        previous = self._scales.setdefault(index, self._scale.clone())
        for residual in residuals:
            residual.mul_(self._scale / previous)
        previous.copy_(self._scale)

    def close(self) -> None:
        """Stop accepting buckets."""
        self._executor.close()


class CodedExchange(CustomExchange):
    """Averages with one of this package's modes and codecs."""

    def __init__(
        self, settings: CommunicationSettings, average: Average, device: torch.device
    ) -> None:
        super().__init__(settings, average.near_ranks, average.backend, device)
        self._average = average
        self._residuals: dict[int, tuple[list[int], Residuals]] = {}

    def restart(self) -> None:
        """Forget the rounding errors too."""
        super().restart()
        self._residuals = {}

    @property
    def traffic(self) -> Traffic:
        """The bytes that the collectives have sent."""
        return self._average.traffic

    def average(self, bucket: GradBucket) -> Tensor:
        """Average the bucket, including the rounding errors of its last average."""
        buffer: Tensor = bucket.buffer()
        residuals = self._residuals_of(bucket)
        self.rescale(bucket.index(), residuals.values())
        self._average(buffer, residuals)
        return buffer

    def _residuals_of(self, bucket: GradBucket) -> Residuals:
        """Return the rounding errors of a bucket.

        They are empty if the bucket has other parameters than before: DDP rebuilds its buckets
        after the first step.
        """
        parameters = [id(parameter) for parameter in bucket.parameters()]
        previous, residuals = self._residuals.get(bucket.index(), (None, {}))
        if previous != parameters:
            residuals = {}
            self._residuals[bucket.index()] = (parameters, residuals)
        return residuals


def algorithm(backend: str, calls: set[str]) -> tuple[str | None, str | None]:
    """Return the library's algorithm for each of the calls, or the reason why it is not known."""
    if backend == "gloo":
        return "; ".join(f"{call}: {GLOO_ALGORITHMS[call]}" for call in sorted(calls)), None
    if backend == "nccl" and (chosen := os.environ.get(NCCL_ALGORITHM)):
        return f"{NCCL_ALGORITHM}={chosen}", None
    return None, f"{backend} chooses an algorithm for each size and does not report it"
