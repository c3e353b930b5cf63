"""PowerSGD: gradients as products of two narrow matrices, by torch's own hook, counted."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from vflops.config.parallel import CommunicationSettings
from vflops.metrics.traffic import POWERSGD_GAIN, POWERSGD_RANK, POWERSGD_START
from vflops.train.communication.bucket import Bucket
from vflops.train.communication.exchange import OwnExchange
from vflops.train.communication.link import Link, Traffic


class PowerSgd:
    """Means over the ranks of a link: what is left out is added the next time.

    Each product begins with the last one. ``start`` backward passes are exchanged in full.
    """

    def __init__(self, link: Link, *, start: int = POWERSGD_START) -> None:
        self._link = link
        self._finite: dict[int, Tensor] = {}
        self._state = PowerSGDState(
            link.group,
            matrix_approximation_rank=POWERSGD_RANK,
            start_powerSGD_iter=POWERSGD_START,
            min_compression_rate=POWERSGD_GAIN,
        )
        self._state.iter = POWERSGD_START - start

    @property
    def traffic(self) -> Traffic:
        """By the numbers that the hook says it sends, in rings."""
        return self._link.traffic

    def __call__(self, bucket: Bucket) -> Tensor:
        """The mean of a bucket, in its own memory; when this is over, all of it is sent.

        Left to itself the hook would sum two buckets at a time, and not in the same order on each
        rank.
        """
        self._forget_overflow(bucket.index())
        before = int(self._state.total_numel_after_compression)
        buffer = bucket.buffer()
        mean: Tensor = powerSGD_hook(self._state, cast(GradBucket, bucket)).wait()
        narrow = int(self._state.total_numel_after_compression) - before
        self._link.count_all_reduce((narrow or buffer.numel()) * buffer.element_size())
        self._finite[bucket.index()] = mean.isfinite().all()
        return mean

    def left(self, index: int) -> list[Tensor]:
        """What was left out of a bucket the last time; the narrow matrices have no unit."""
        found = self._state.error_dict.get(index)
        return [] if found is None else [found]

    def _forget_overflow(self, index: int) -> None:
        """Begin a bucket anew whose last mean was not finite: what is kept of it is not either.

        All ranks have the same mean, so all of them do. It is read a step late, when it is there.
        """
        if bool(self._finite.get(index, True)):
            return
        for kept in (self._state.error_dict, self._state.p_memory_dict, self._state.q_memory_dict):
            kept.pop(index, None)


class PowerSgdExchange(OwnExchange):
    """A DDP's gradients by PowerSGD."""

    def __init__(
        self, settings: CommunicationSettings, link: Link, backend: str, device: torch.device
    ) -> None:
        super().__init__(settings, link.near, backend, device)
        self._average = PowerSgd(link)

    @property
    def traffic(self) -> Traffic:
        """By the numbers that the hook says it sends, in rings."""
        return self._average.traffic

    def average(self, bucket: GradBucket) -> Tensor:
        """With what was left out of it the last time."""
        self.rescale(bucket.index(), self._average.left(bucket.index()))
        return self._average(bucket)
