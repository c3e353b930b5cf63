"""Faster R-CNN with a feature pyramid on a ResNet.

All sizes follow from the design and the size of the images: absent boxes are masked, not removed.
So the forward pass and the loss compile to one graph, the host never waits for the device, and a
step can be recorded as a CUDA graph and replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.ground_truth import GroundTruth
from vflops.models.detection.proposals import Proposer
from vflops.models.detection.pyramid import Pyramid
from vflops.models.detection.regions import Regions
from vflops.models.resnet import ResNetBody


class DetectorHead(nn.Module):
    """A detector without the network that computes its features."""

    traced_whole: ClassVar[bool] = True
    """Whether a model must not be split inside this module, because its graph depends on shapes and
    on the training mode."""

    def __init__(
        self, design: DetectorDesign, channels: Sequence[int], classes: int, height: int, width: int
    ) -> None:
        super().__init__()
        self.pyramid = Pyramid(channels, design.channels, pooled=design.pooled)
        self.proposer = Proposer(design, height, width)
        self.regions = Regions(design, classes, height, width)

    def forward(
        self, stages: Sequence[Tensor], boxes: Tensor, labels: Tensor, seeds: Tensor
    ) -> Tensor:
        """Return the four losses in training, and the detections of each image in evaluation."""
        levels = self.pyramid(stages)
        scores, deltas, proposals, present = self.proposer(levels)
        if not self.training:
            return self.regions.detect(levels, proposals, present)
        truth = GroundTruth(boxes, labels)
        first = self.proposer.loss(scores, deltas, truth, seeds)
        second = self.regions.loss(levels, proposals, present, truth, seeds)
        return torch.cat([first, second])


class FasterRCNN(nn.Module):
    """A detector of objects of ``classes`` classes in images of one size."""

    def __init__(
        self, design: DetectorDesign, *, classes: int, channels: int, height: int, width: int
    ) -> None:
        super().__init__()
        self._stages = [stage - 1 for stage in design.stages]
        self.body = ResNetBody(
            design.blocks, channels=channels, width=design.width, stem=design.stem
        )
        self.body.initialise()
        stage_channels = [self.body.channels_out[stage] for stage in self._stages]
        self.head = DetectorHead(design, stage_channels, classes, height, width)

    def forward(self, images: Tensor, boxes: Tensor, labels: Tensor, seeds: Tensor) -> Tensor:
        """Return the four losses in training, and the detections of each image in evaluation.

        ``seeds`` has one random number in [0, 1) per image, from which the losses are sampled.
        """
        stages = self.body.stage_outputs(images)
        levels = [stages[stage] for stage in self._stages]
        result: Tensor = self.head(levels, boxes, labels, seeds)
        return result
