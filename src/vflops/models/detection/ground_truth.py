"""The true boxes of a batch of images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class GroundTruth:
    """Boxes and labels of each image, padded to the same number."""

    boxes: Tensor
    """(B, G, 4), float32."""
    labels: Tensor
    """(B, G): the class, −1 for padding."""

    @property
    def present(self) -> Tensor:
        """(B, G): which boxes are not padding."""
        return self.labels >= 0
