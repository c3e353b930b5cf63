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
from vflops.train.communication.exchange import CustomExchange
from vflops.train.communication.link import Link, Traffic


class PowerSgd:
    """Averages over the ranks of a link with error feedback.

    Each product starts from the last one. ``start`` backward passes are exchanged in full.
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
        """Counted from the numbers that the hook reports, for rings."""
        return self._link.traffic

    def __call__(self, bucket: Bucket) -> Tensor:
        """Return the mean of a bucket, in the bucket's memory, once all of it is sent.

        Without waiting, the hook would sum two buckets at a time, in an order that differs between
        ranks.
        """
        self._forget_overflow(bucket.index())
        before = int(self._state.total_numel_after_compression)
        buffer = bucket.buffer()
        mean: Tensor = powerSGD_hook(self._state, cast(GradBucket, bucket)).wait()
        narrow = int(self._state.total_numel_after_compression) - before
        self._link.count_all_reduce((narrow or buffer.numel()) * buffer.element_size())
        self._finite[bucket.index()] = mean.isfinite().all()
        return mean

    def residuals(self, index: int) -> list[Tensor]:
        """Return the errors of a bucket's last average, which depend on the loss scale."""
        error = self._state.error_dict.get(index)
        return [] if error is None else [error]

    def _forget_overflow(self, index: int) -> None:
        """Reset a bucket whose last mean was not finite, since its stored state is not either.

        All ranks have the same mean, so all of them do it. The mean is read a step late, when it is
        known.
        """
        if bool(self._finite.get(index, True)):
            return
        state = self._state
        for stored in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
            stored.pop(index, None)


class PowerSgdExchange(CustomExchange):
    """Averages a DDP's gradients by PowerSGD."""

    def __init__(
        self, settings: CommunicationSettings, link: Link, backend: str, device: torch.device
    ) -> None:
        super().__init__(settings, link.near, backend, device)
        self._average = PowerSgd(link)

    @property
    def traffic(self) -> Traffic:
        """Counted from the numbers that the hook reports, for rings."""
        return self._average.traffic

    def average(self, bucket: GradBucket) -> Tensor:
        """Average with the rounding errors of the last time added."""
        self.rescale(bucket.index(), self._average.residuals(bucket.index()))
        return self._average(bucket)
