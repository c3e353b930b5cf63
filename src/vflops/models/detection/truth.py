"""The boxes that are in a batch of images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Truth:
    """Of each image as many boxes as a file has room for, some of them absent."""

    boxes: Tensor
    """(B, G, 4), float32."""
    labels: Tensor
    """(B, G): the class, −1 where there is no box."""

    @property
    def present(self) -> Tensor:
        """(B, G): where there is one."""
        return self.labels >= 0
