"""PowerSGD with torch's hook: gradients are sent as products of two low-rank matrices."""

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
    """Averages buckets over the ranks of a link by PowerSGD, with error feedback.

    Each approximation starts from that of the previous step. The first ``start`` backward passes
    are averaged without compression.
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
        """The bytes sent, from the number of elements that the hook reports."""
        return self._link.traffic

    def __call__(self, bucket: Bucket) -> Tensor:
        """Return the mean of a bucket over the ranks, in the memory of the bucket.

        This waits for the mean: otherwise the hook would exchange several buckets at once, in an
        order that may differ between ranks.
        """
        self._reset_after_overflow(bucket.index())
        elements_before = int(self._state.total_numel_after_compression)
        buffer = bucket.buffer()
        mean: Tensor = powerSGD_hook(self._state, cast(GradBucket, bucket)).wait()
        compressed = int(self._state.total_numel_after_compression) - elements_before
        self._link.count_all_reduce((compressed or buffer.numel()) * buffer.element_size())
        self._finite[bucket.index()] = mean.isfinite().all()
        return mean

    def residuals(self, index: int) -> list[Tensor]:
        """Return the compression errors of a bucket's last average, in units of its loss scale."""
        error = self._state.error_dict.get(index)
        return [] if error is None else [error]

    def _reset_after_overflow(self, index: int) -> None:
        """Discard the stored state of a bucket whose last mean was not finite.

        All ranks have the same mean, so all of them discard it. The mean is read one step late, so
        that the host does not wait for the device.
        """
        if bool(self._finite.get(index, True)):
            return
        state = self._state
        for stored in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
            stored.pop(index, None)


class PowerSgdExchange(CustomExchange):
    """Averages the gradients of a DDP module by PowerSGD."""

    def __init__(
        self, settings: CommunicationSettings, link: Link, backend: str, device: torch.device
    ) -> None:
        super().__init__(settings, link.near_ranks, backend, device)
        self._link, self._average = link, PowerSgd(link)

    def restart(self) -> None:
        """Start again without compression and without errors."""
        super().restart()
        self._average = PowerSgd(self._link)

    @property
    def traffic(self) -> Traffic:
        """The bytes sent, from the number of elements that the hook reports."""
        return self._average.traffic

    def average(self, bucket: GradBucket) -> Tensor:
        """Average the bucket, including the compression error of its last average."""
        self.rescale(bucket.index(), self._average.residuals(bucket.index()))
        return self._average(bucket)
