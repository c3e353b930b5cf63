"""One rank of a mean by a communication mode and precision."""

from __future__ import annotations

from pathlib import Path

import torch

from vflops.communication import average
from vflops.communication.codec import Leftovers
from vflops.micro.rank import Rank


class ModeRank(Rank):
    """Measures what a training does with a bucket of gradients, error feedback included."""

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
        self._average = average(mode, precision, node=ranks)
        self._leftovers: dict[int, Leftovers] = {}
        """By the length of the message."""

    @property
    def _result(self) -> float:
        return (self._ranks + 1) / 2

    def _reduce(self, data: torch.Tensor) -> None:
        self._average(data, self._leftovers.setdefault(len(data), {}))
