"""How numbers are sent: in a floating format, or as int8 with a scale and error feedback."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from vflops.metrics.traffic import SCALE_BYTES
from vflops.train.communication.link import Link

_MOST = 127
"""Of an int8; -128 stays unused, so that both signs round alike."""

Leftovers = dict[str, Tensor]
"""What rounding left out of one bucket, by where it was rounded; it is added the next time."""


class Codec(ABC):
    """Numbers in fp32 to what is sent, its *wire*, and back."""

    @abstractmethod
    def encode(self, numbers: Tensor, pieces: int, left: Leftovers, where: str) -> Tensor:
        """The wire of ``numbers``: a row a piece."""

    @abstractmethod
    def decode(self, wire: Tensor) -> Tensor:
        """The numbers of a wire, in fp32; its last dimension is a piece."""

    @abstractmethod
    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """A wire for ``numbers`` numbers as ``all_reduce`` over ``pieces`` ranks gives it."""

    @abstractmethod
    def all_reduce(self, link: Link, numbers: Tensor, left: Leftovers) -> Tensor:
        """The wire of the sum over the ranks, the same on each."""

    def reduce_scatter(self, link: Link, numbers: Tensor, left: Leftovers, where: str) -> Tensor:
        """This rank's piece of the sum, added up in fp32."""
        wires = link.all_to_all(self.encode(numbers, link.ranks, left, where))
        return self.decode(wires).sum(0)

    def reduce(self, link: Link, numbers: Tensor, left: Leftovers, where: str) -> Tensor | None:
        """The sum, added up in fp32, on the first rank; None elsewhere."""
        wires = link.gather(self.encode(numbers, 1, left, where))
        return None if wires is None else self.decode(wires).sum(0).view(-1)


class Floats(Codec):
    """A floating format; nothing is remembered."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def encode(self, numbers: Tensor, pieces: int, left: Leftovers, where: str) -> Tensor:
        """Rounded to the format."""
        return numbers.to(self._dtype).view(pieces, -1)

    def decode(self, wire: Tensor) -> Tensor:
        """Exactly."""
        return wire.float()

    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """In one piece."""
        return torch.empty((1, numbers), dtype=self._dtype, device=device)

    def all_reduce(self, link: Link, numbers: Tensor, left: Leftovers) -> Tensor:
        """By the library, whose sums are in the format."""
        wire = self.encode(numbers, 1, left, "sum")
        link.all_reduce(wire)
        return wire


class Int8(Codec):
    """A byte an element, and a scale a piece: its largest number over 127.

    A number is off by half a scale at most: by 1/254 of the piece's largest, each time that it is
    rounded. What was left out is added to the same number the next time. Where a number is not
    finite the whole piece is not, so that an overflow is seen by all.
    """

    def encode(self, numbers: Tensor, pieces: int, left: Leftovers, where: str) -> Tensor:
        """Rounded to the nearest, with what was left out before."""
        rows = numbers.view(pieces, -1)
        if where in left:
            rows = rows + left[where]
        scale = rows.abs().amax(1, keepdim=True) / _MOST
        codes = torch.nan_to_num(rows / scale, nan=0.0, posinf=0.0, neginf=0.0).round_()
        left[where] = torch.nan_to_num(rows - codes * scale, nan=0.0, posinf=0.0, neginf=0.0)
        return torch.cat((scale.view(torch.int8), codes.to(torch.int8)), dim=1)

    def decode(self, wire: Tensor) -> Tensor:
        """Codes times scale; a scale that is no number makes none of them one."""
        scale = wire[..., :SCALE_BYTES].contiguous().view(torch.float32)
        return wire[..., SCALE_BYTES:].float() * scale

    def blank(self, numbers: int, pieces: int, device: torch.device) -> Tensor:
        """A piece of each rank."""
        return torch.empty(
            (pieces, numbers // pieces + SCALE_BYTES), dtype=torch.int8, device=device
        )

    def all_reduce(self, link: Link, numbers: Tensor, left: Leftovers) -> Tensor:
        """Every rank adds up a piece in fp32, and sends it to all as int8 again."""
        piece = self.reduce_scatter(link, numbers, left, "far")
        return link.all_gather(self.encode(piece, 1, left, "sum")).squeeze(1)


def codec(precision: str) -> Codec:
    """By the name of the precision."""
    floats = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return Floats(floats[precision]) if precision in floats else Int8()
