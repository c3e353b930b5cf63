"""Encodings of the numbers sent: a floating-point type, or int8 with scales and error feedback."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from vflops.metrics.traffic import SCALE_BYTES
from vflops.train.communication.link import Link

_MAX_CODE = 127
"""The largest code; -128 is not used, so that the range is symmetric."""

Residuals = dict[str, Tensor]
"""Rounding errors of one bucket by stage of the exchange; the next exchange adds them."""


class Codec(ABC):
    """Encodes fp32 numbers as the tensor that is sent, the *wire*, and decodes them."""

    @abstractmethod
    def encode(self, numbers: Tensor, pieces: int, residuals: Residuals, stage: str) -> Tensor:
        """Return the wire of ``numbers``, with one row per piece.

        ``stage`` is the key of the rounding errors in ``residuals``.
        """

    @abstractmethod
    def decode(self, wire: Tensor) -> Tensor:
        """Return the numbers of a wire in fp32; the last dimension of the wire is one piece."""

    @abstractmethod
    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """Return an uninitialised wire for the result of ``all_reduce`` over ``pieces`` ranks."""

    @abstractmethod
    def all_reduce(self, link: Link, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Return the wire of the sum over the ranks, which is the same on every rank."""

    def reduce_scatter(
        self, link: Link, numbers: Tensor, residuals: Residuals, stage: str
    ) -> Tensor:
        """Return this rank's piece of the sum, added up in fp32."""
        wires = link.all_to_all(self.encode(numbers, link.ranks, residuals, stage))
        return self.decode(wires).sum(0)

    def reduce(
        self, link: Link, numbers: Tensor, residuals: Residuals, stage: str
    ) -> Tensor | None:
        """Return the sum, added up in fp32, on the first rank; None elsewhere."""
        wires = link.gather(self.encode(numbers, 1, residuals, stage))
        return None if wires is None else self.decode(wires).sum(0).view(-1)


class FloatCodec(Codec):
    """A floating-point type, without error feedback."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def encode(self, numbers: Tensor, pieces: int, residuals: Residuals, stage: str) -> Tensor:
        """Round to the type."""
        return numbers.to(self._dtype).view(pieces, -1)

    def decode(self, wire: Tensor) -> Tensor:
        """Convert to fp32, which is exact."""
        return wire.float()

    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """Return a wire with one piece."""
        return torch.empty((1, numbers), dtype=self._dtype, device=device)

    def all_reduce(self, link: Link, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Sum with the library's all-reduce, in the type."""
        wire = self.encode(numbers, 1, residuals, "sum")
        link.all_reduce(wire)
        return wire


class Int8Codec(Codec):
    """One byte per element, and one scale per piece: its largest absolute value divided by 127.

    A rounding error is at most half the scale, 1/254 of the piece's largest absolute value. It is
    added to the same element in the next exchange. If one element is not finite, the whole piece is
    decoded as not finite, so that all ranks see the overflow.
    """

    def encode(self, numbers: Tensor, pieces: int, residuals: Residuals, stage: str) -> Tensor:
        """Add the earlier rounding errors, and round to the nearest code."""
        rows = numbers.view(pieces, -1)
        if stage in residuals:
            rows = rows + residuals[stage]
        scale = rows.abs().amax(1, keepdim=True) / _MAX_CODE
        codes = torch.nan_to_num(rows / scale, nan=0.0, posinf=0.0, neginf=0.0).round_()
        errors = torch.nan_to_num(rows - codes * scale, nan=0.0, posinf=0.0, neginf=0.0)
        # Always the same tensor, because recorded steps read and write it.
        residuals.setdefault(stage, errors).copy_(errors)
        return torch.cat((scale.view(torch.int8), codes.to(torch.int8)), dim=1)

    def decode(self, wire: Tensor) -> Tensor:
        """Return the codes times the scale; if the scale is not finite, no result is."""
        # `contiguous` would keep the stride of a single row, which need not be a multiple of 4.
        scale = wire[..., :SCALE_BYTES].clone(memory_format=torch.contiguous_format)
        return wire[..., SCALE_BYTES:].float() * scale.view(torch.float32)

    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """Return a wire with one piece per rank."""
        return torch.empty(
            (pieces, numbers // pieces + SCALE_BYTES), dtype=torch.int8, device=device
        )

    def all_reduce(self, link: Link, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Sum one piece per rank in fp32, and send the sums to all ranks as int8."""
        piece = self.reduce_scatter(link, numbers, residuals, "far")
        return link.all_gather(self.encode(piece, 1, residuals, "sum")).squeeze(1)


def codec(precision: str) -> Codec:
    """Return the codec for a precision."""
    floats = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return FloatCodec(floats[precision]) if precision in floats else Int8Codec()
