"""One rank of an average over ranks with a communication mode and precision."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import torch
import torch.distributed as dist

from vflops.machine.ceilings.allreduce_steps import Message, Rank
from vflops.metrics.traffic import POWERSGD_RANK
from vflops.train.communication import average
from vflops.train.communication.bucket import FlatBucket
from vflops.train.communication.codec import Residuals
from vflops.train.communication.link import Link, Traffic
from vflops.train.communication.powersgd import PowerSgd


class MeanRank(Rank):
    """Measures averages as training computes them for a bucket of gradients; counts the traffic."""

    @property
    @abstractmethod
    def _traffic(self) -> Traffic:
        """The bytes that this rank has sent."""

    @property
    def _result_factor(self) -> float:
        return (self._ranks + 1) / 2

    def _message(self, size_bytes: int) -> Message:
        before = self._traffic.total_bytes
        message = super()._message(size_bytes)  # computes one average and its error
        sent = torch.tensor(self._traffic.total_bytes - before, device=self._device)
        dist.all_reduce(sent)
        message.sent_bytes = int(sent)
        return message


class ModeRank(MeanRank):
    """Averages with one of vflops' modes and precisions, including error feedback."""

    def __init__(
        self,
        mode: str,
        precision: str,
        rank: int,
        ranks: int,
        backend: str,
        folder: Path,
        end_s: float,
        seed: int,
    ) -> None:
        super().__init__(rank, ranks, backend, folder, end_s, seed)
        self._average = average(mode, precision, local_ranks=ranks)
        self._residuals: dict[int, Residuals] = {}
        """Residuals of error feedback, by the length of the message."""

    @property
    def _traffic(self) -> Traffic:
        return self._average.traffic

    def _reduce(self, data: torch.Tensor) -> None:
        self._average(data, self._residuals.setdefault(len(data), {}))


class PowerSgdRank(MeanRank):
    """Averages with PowerSGD, on matrices that are nearly square.

    The matrices have the rank of PowerSGD's approximation, so that it represents them exactly and
    the result can be checked.
    """

    def __init__(
        self, rank: int, ranks: int, backend: str, folder: Path, end_s: float, seed: int
    ) -> None:
        super().__init__(rank, ranks, backend, folder, end_s, seed)
        self._seed = seed
        link = Link.create(range(ranks), backend, ranks, Traffic())
        self._average = PowerSgd(link, start=0)

    @property
    def _traffic(self) -> Traffic:
        return self._average.traffic

    def _numbers(self, count: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self._seed)
        rows = _rows(count)
        left = torch.randn(rows, POWERSGD_RANK, generator=generator)
        right = torch.randn(POWERSGD_RANK, count // rows, generator=generator)
        return (left @ right).view(-1).to(self._device)

    def _reduce(self, data: torch.Tensor) -> None:
        matrix = data.view(_rows(len(data)), -1)
        self._average(FlatBucket(len(data), data, [matrix]))


def _rows(count: int) -> int:
    """Return the number of rows for a matrix of ``count`` numbers, a power of two."""
    return 1 << ((count.bit_length() - 1) // 2)
