"""Gradients that are averaged at once: a bucket that DDP filled, or one that was put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Bucket(Protocol):
    """What averaging asks of a bucket, with the names that torch gave it."""

    def index(self) -> int:
        """Its number, the same each time."""

    def buffer(self) -> Tensor:
        """All its numbers, flat."""

    def gradients(self) -> list[Tensor]:
        """The same memory by parameters, each in its shape."""

    def is_last(self) -> bool:
        """Whether it ends a backward pass."""


@dataclass(frozen=True)
class MadeBucket:
    """A bucket that nobody's backward pass filled."""

    number: int
    numbers: Tensor
    views: list[Tensor]
    last: bool = True

    def index(self) -> int:
        """Its number."""
        return self.number

    def buffer(self) -> Tensor:
        """All its numbers, flat."""
        return self.numbers

    def gradients(self) -> list[Tensor]:
        """The same memory, by shape."""
        return self.views

    def is_last(self) -> bool:
        """As it was told."""
        return self.last
