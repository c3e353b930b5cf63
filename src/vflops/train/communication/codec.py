"""Encodings of the numbers sent: a floating format, or int8 with a scale and error feedback."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from vflops.metrics.traffic import SCALE_BYTES
from vflops.train.communication.link import Link

_LARGEST = 127
"""The largest int8 used; -128 is not, so that both signs round alike."""

Residuals = dict[str, Tensor]
"""Rounding errors of one bucket, by the stage of the exchange; they are added the next time."""


class Codec(ABC):
    """Encodes fp32 numbers to what is sent, the *wire*, and back."""

    @abstractmethod
    def encode(self, numbers: Tensor, pieces: int, residuals: Residuals, where: str) -> Tensor:
        """Return the wire of ``numbers``: one row per piece."""

    @abstractmethod
    def decode(self, wire: Tensor) -> Tensor:
        """Return the numbers of a wire in fp32; its last dimension is a piece."""

    @abstractmethod
    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """Return an empty wire for the result of ``all_reduce`` over ``pieces`` ranks."""

    @abstractmethod
    def all_reduce(self, link: Link, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Return the wire of the sum over the ranks, the same on each rank."""

    def reduce_scatter(
        self, link: Link, numbers: Tensor, residuals: Residuals, where: str
    ) -> Tensor:
        """Return this rank's piece of the sum, added up in fp32."""
        wires = link.all_to_all(self.encode(numbers, link.ranks, residuals, where))
        return self.decode(wires).sum(0)

    def reduce(
        self, link: Link, numbers: Tensor, residuals: Residuals, where: str
    ) -> Tensor | None:
        """Return the sum, added up in fp32, on the first rank; None elsewhere."""
        wires = link.gather(self.encode(numbers, 1, residuals, where))
        return None if wires is None else self.decode(wires).sum(0).view(-1)


class Floats(Codec):
    """A floating format, without error feedback."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def encode(self, numbers: Tensor, pieces: int, residuals: Residuals, where: str) -> Tensor:
        """Round to the format."""
        return numbers.to(self._dtype).view(pieces, -1)

    def decode(self, wire: Tensor) -> Tensor:
        """Convert exactly."""
        return wire.float()

    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """Return one piece."""
        return torch.empty((1, numbers), dtype=self._dtype, device=device)

    def all_reduce(self, link: Link, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Sum by the library, in the format."""
        wire = self.encode(numbers, 1, residuals, "sum")
        link.all_reduce(wire)
        return wire


class Int8(Codec):
    """One byte per element, and one scale per piece: its largest number divided by 127.

    Each rounding is off by at most half a scale, 1/254 of the piece's largest number. The error is
    added to the same number the next time. If a number is not finite, the whole piece is not, so
    that all ranks see an overflow.
    """

    def encode(self, numbers: Tensor, pieces: int, residuals: Residuals, where: str) -> Tensor:
        """Round to the nearest, after adding the earlier rounding errors."""
        rows = numbers.view(pieces, -1)
        if where in residuals:
            rows = rows + residuals[where]
        scale = rows.abs().amax(1, keepdim=True) / _LARGEST
        codes = torch.nan_to_num(rows / scale, nan=0.0, posinf=0.0, neginf=0.0).round_()
        residuals[where] = torch.nan_to_num(rows - codes * scale, nan=0.0, posinf=0.0, neginf=0.0)
        return torch.cat((scale.view(torch.int8), codes.to(torch.int8)), dim=1)

    def decode(self, wire: Tensor) -> Tensor:
        """Return codes times scale; a scale that is not finite makes all of them not finite."""
        scale = wire[..., :SCALE_BYTES].contiguous().view(torch.float32)
        return wire[..., SCALE_BYTES:].float() * scale

    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """Return one piece per rank."""
        return torch.empty(
            (pieces, numbers // pieces + SCALE_BYTES), dtype=torch.int8, device=device
        )

    def all_reduce(self, link: Link, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Sum one piece per rank in fp32, and send it to all ranks as int8."""
        piece = self.reduce_scatter(link, numbers, residuals, "far")
        return link.all_gather(self.encode(piece, 1, residuals, "sum")).squeeze(1)


def codec(precision: str) -> Codec:
    """Return the codec of a precision."""
    floats = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return Floats(floats[precision]) if precision in floats else Int8()
