"""Buckets of gradients that are averaged together: those of DDP, and ones built from tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Bucket(Protocol):
    """The part of torch's ``GradBucket`` that averaging needs."""

    def index(self) -> int:
        """Return the index of the bucket, which is the same in every step."""

    def buffer(self) -> Tensor:
        """Return all gradients as one flat tensor."""

    def gradients(self) -> list[Tensor]:
        """Return views of the same memory in the shapes of the parameters."""

    def is_last(self) -> bool:
        """Whether this is the last bucket of a backward pass."""


@dataclass(frozen=True)
class FlatBucket:
    """A bucket made from tensors, without a backward pass."""

    number: int
    numbers: Tensor
    views: list[Tensor]
    last: bool = True

    def index(self) -> int:
        """Return the index of the bucket."""
        return self.number

    def buffer(self) -> Tensor:
        """Return all gradients as one flat tensor."""
        return self.numbers

    def gradients(self) -> list[Tensor]:
        """Return views of the same memory in the shapes of the parameters."""
        return self.views

    def is_last(self) -> bool:
        """Whether the bucket was declared the last one."""
        return self.last
