"""The architecture of a detector as plain settings, without torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vflops.config.section import Section

Size = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]
"""Height and width in pixels of the image."""
Sizes = Annotated[tuple[Size, ...], Field(min_length=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


def aspect_sizes(size: float, ratios: Sequence[float]) -> tuple[Size, ...]:
    """Return heights and widths of area ``size``², one for each ratio of height to width."""
    return tuple((size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios)


def anchor_sizes(
    sizes: Sequence[float], ratios: Sequence[float] = (0.5, 1.0, 2.0)
) -> tuple[tuple[Size, ...], ...]:
    """Return anchors for each level, all of the same area within a level."""
    return tuple(aspect_sizes(size, ratios) for size in sizes)


class DetectorDesign(Section):
    """Faster R-CNN on a feature pyramid; the defaults are those published for ResNet-50."""

    blocks: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(
        default=(3, 4, 6, 3), min_length=1, max_length=8
    )
    """Number of bottlenecks of each stage of the ResNet."""
    width: int = Field(default=64, ge=1, le=4096)
    """The bottleneck width of the first stage, in channels."""
    stem: Literal["imagenet", "small"] = "imagenet"
    """``imagenet``: 7×7/2 and max-pool; ``small``: 5×5/2, for frames of few pixels."""
    stages: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 3, 4), min_length=1)
    """The stages that the pyramid is built on, counted from 1."""
    pooled: bool = True
    """Whether the pyramid has one more level of half the size, for proposals only."""
    channels: int = Field(default=256, ge=1, le=65536)
    """Channels of each level of the pyramid."""
    hidden: int = Field(default=1024, ge=1, le=1 << 20)
    """Width of the two hidden layers of the region head."""

    anchors: tuple[Sizes, ...] = anchor_sizes((32, 64, 128, 256, 512))
    """Heights and widths of the anchors of each level."""
    anchor_samples: int = Field(default=256, ge=2)
    """Anchors per image in the proposal loss, at most half of them positive."""
    candidates: int = Field(default=2000, ge=1)
    """Best anchors of a level that may become proposals in training; half in evaluation."""
    proposals: int = Field(default=2000, ge=1)
    """Proposals per image in training; half as many in evaluation."""
    proposal_overlap: Share = 0.7
    """Of two proposals that overlap more than this, only the better one is kept."""

    regions: int = Field(default=512, ge=4)
    """Proposals per image that train the second stage, at most a quarter of them positive."""
    region_size: int = Field(default=7, ge=1, le=64)
    """Rows and columns of the features of a region."""
    region_scale: float = Field(default=224.0, gt=0)
    """Side in pixels of a region that is pooled from the level of stride 16."""

    detections: int = Field(default=100, ge=1, le=1000)
    """Maximum number of detections per image."""
    least_score: float = Field(default=0.05, ge=0, lt=1)
    """Boxes with a lower score are no detections."""
    detection_overlap: Share = 0.5
    """Of two boxes of a class that overlap more than this, only the better one is kept."""

    @model_validator(mode="after")
    def _check_consistency(self) -> DetectorDesign:
        if list(self.stages) != sorted(set(self.stages)) or self.stages[-1] > len(self.blocks):
            raise ValueError(
                f"stages {list(self.stages)} are not ascending numbers from 1 to {len(self.blocks)}"
            )
        if self.stages[-1] < len(self.blocks):
            raise ValueError(
                f"blocks {list(self.blocks)} have stages that the pyramid does not use: add the "
                f"last, {len(self.blocks)}, to stages {list(self.stages)}, or remove its blocks"
            )
        levels = len(self.stages) + self.pooled
        if len(self.anchors) != levels or len({len(level) for level in self.anchors}) != 1:
            counts = [len(level) for level in self.anchors]
            raise ValueError(
                f"anchors for {len(self.anchors)} levels ({counts} each): expected {levels}, one "
                "for each level of the pyramid, with equal numbers of anchors"
            )
        return self

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels of the image per pixel of each level, the coarsest last."""
        first = 4 if self.stem == "imagenet" else 2
        strides = tuple(first * 2 ** (stage - 1) for stage in self.stages)
        return (*strides, strides[-1] * 2) if self.pooled else strides
