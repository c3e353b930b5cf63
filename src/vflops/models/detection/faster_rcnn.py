"""Faster R-CNN with a feature pyramid on a ResNet.

All sizes are fixed by the design and the size of the images: what is not there is masked, not left
out. So one compilation takes the forward pass and the loss whole, the host waits for nothing, and
a recorded step can be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from vflops.models.detection.design import DetectorDesign
from vflops.models.detection.proposals import Proposer
from vflops.models.detection.pyramid import Pyramid
from vflops.models.detection.regions import Regions
from vflops.models.detection.truth import Truth
from vflops.models.resnet import ResNetBody


class DetectorHead(nn.Module):
    """All of a detector but the network that its features come from."""

    traced_whole: ClassVar[bool] = True
    """It depends on shapes and on training, so a model is not cut inside of it."""

    def __init__(
        self, design: DetectorDesign, channels: Sequence[int], classes: int, height: int, width: int
    ) -> None:
        super().__init__()
        self.pyramid = Pyramid(channels, design.channels, pooled=design.pooled)
        self.proposer = Proposer(design, height, width)
        self.regions = Regions(design, classes, height, width)

    def forward(
        self, stages: Sequence[Tensor], boxes: Tensor, labels: Tensor, lot: Tensor
    ) -> Tensor:
        """In training the four losses, in evaluation the detections of each image."""
        levels = self.pyramid(stages)
        scores, deltas, proposals, present = self.proposer(levels)
        if not self.training:
            return self.regions.detect(levels, proposals, present)
        truth = Truth(boxes, labels)
        first = self.proposer.loss(scores, deltas, truth, lot)
        second = self.regions.loss(levels, proposals, present, truth, lot)
        return torch.cat([first, second])


class FasterRCNN(nn.Module):
    """A detector of ``classes`` kinds of objects in images of one size."""

    def __init__(
        self, design: DetectorDesign, *, classes: int, channels: int, height: int, width: int
    ) -> None:
        super().__init__()
        self._stages = [stage - 1 for stage in design.stages]
        self.body = ResNetBody(
            design.blocks, channels=channels, width=design.width, stem=design.stem
        )
        self.body.initialise()
        wide = [self.body.channels_out[stage] for stage in self._stages]
        self.head = DetectorHead(design, wide, classes, height, width)

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor, lot: Tensor) -> Tensor:
        """In training the four losses, in evaluation the detections of each image.

        ``lot`` is a random number in [0, 1) an image: it decides what the losses look at.
        """
        stages = self.body.stage_outputs(images)
        found: Tensor = self.head([stages[stage] for stage in self._stages], boxes, labels, lot)
        return found
