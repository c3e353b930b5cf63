"""What a detector is built as: plain settings, known without torch."""

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
    """Heights and widths of equal area ``size``², one for each ratio of height to width."""
    return tuple((size * math.sqrt(ratio), size / math.sqrt(ratio)) for ratio in ratios)


def anchor_sizes(
    sizes: Sequence[float], ratios: Sequence[float] = (0.5, 1.0, 2.0)
) -> tuple[tuple[Size, ...], ...]:
    """For each level the anchors of one area."""
    return tuple(aspect_sizes(size, ratios) for size in sizes)


class DetectorDesign(Section):
    """Faster R-CNN on a feature pyramid; the defaults are the published ones of ResNet-50."""

    blocks: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(
        default=(3, 4, 6, 3), min_length=1, max_length=8
    )
    """Bottlenecks of each stage of the ResNet: its depth."""
    width: int = Field(default=64, ge=1, le=4096)
    stem: Literal["imagenet", "small"] = "imagenet"
    stages: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2, 3, 4), min_length=1)
    """The stages that the pyramid is built on, counted from 1."""
    pooled: bool = True
    """Whether a level of half the size is put on top of it, for proposals alone."""
    channels: int = Field(default=256, ge=1, le=65536)
    """Of the pyramid's levels."""
    hidden: int = Field(default=1024, ge=1, le=1 << 20)
    """Width of the two layers that look at a region."""

    anchors: tuple[Sizes, ...] = anchor_sizes((32, 64, 128, 256, 512))
    """Heights and widths of the boxes that proposals start from, for each level."""
    anchor_samples: int = Field(default=256, ge=2)
    """Anchors of an image that the loss of the proposals looks at, at most half of them hits."""
    candidates: int = Field(default=2000, ge=1)
    """Best anchors of a level that may become proposals, in training; half in evaluation."""
    proposals: int = Field(default=2000, ge=1)
    """Proposals of an image in training; half as many in evaluation."""
    proposal_overlap: Share = 0.7
    """Of two proposals that overlap more, the better one stays."""

    regions: int = Field(default=512, ge=4)
    """Proposals of an image that the second stage trains on, at most a quarter of them hits."""
    region_size: int = Field(default=7, ge=1, le=64)
    """Features of a region are put into so many rows and columns."""
    region_scale: float = Field(default=224.0, gt=0)
    """Side of a region, in pixels, that is looked at on the level of stride 16."""

    detections: int = Field(default=100, ge=1, le=1000)
    """Most boxes found in an image."""
    least_score: float = Field(default=0.05, ge=0, lt=1)
    detection_overlap: Share = 0.5
    """Of two boxes of a class that overlap more, the better one stays."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> DetectorDesign:
        if list(self.stages) != sorted(set(self.stages)) or self.stages[-1] > len(self.blocks):
            raise ValueError(
                f"stages {list(self.stages)} are not rising numbers from 1 to {len(self.blocks)}"
            )
        if self.stages[-1] < len(self.blocks):
            raise ValueError(
                f"blocks {list(self.blocks)} have stages that the pyramid does not see: name the "
                f"last, {len(self.blocks)}, in stages {list(self.stages)}, or leave it out"
            )
        levels = len(self.stages) + self.pooled
        if len(self.anchors) != levels or len({len(level) for level in self.anchors}) != 1:
            counts = [len(level) for level in self.anchors]
            raise ValueError(
                f"anchors for {len(self.anchors)} levels ({counts} each): expected {levels}, the "
                "pyramid's, and for each as many as for the others"
            )
        return self

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels of the image for one of each level's, coarser ones last."""
        first = 4 if self.stem == "imagenet" else 2
        strides = tuple(first * 2 ** (stage - 1) for stage in self.stages)
        return (*strides, strides[-1] * 2) if self.pooled else strides
