"""The second stage: classify proposed regions and refine their boxes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.detection import boxes
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.ground_truth import GroundTruth
from vflops.models.detection.matching import BACKGROUND, match, random_numbers, select
from vflops.models.detection.nms import suppress
from vflops.models.detection.roi_align import level_of, roi_align

_HIT_IOU = 0.5
"""Minimum overlap of a region with an object to count as a hit."""
_MAX_HIT_FRACTION = 0.25
"""Maximum fraction of hits among the regions of the loss."""
_SMOOTH_L1_BETA = 1 / 9
_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
_MIN_SIDE = 1e-2
_SALT = 2


class RegionHead(nn.Module):
    """Predicts class scores, background first, and one box per class from a region's features."""

    channel_pairs = (("first", "second"),)
    """Layers whose channels can be divided between ranks."""

    def __init__(self, design: DetectorDesign, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(design.channels * design.region_size**2, design.hidden)
        self.second = nn.Linear(design.hidden, design.hidden)
        self.scores = nn.Linear(design.hidden, classes + 1)
        self.deltas = nn.Linear(design.hidden, (classes + 1) * 4)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (B, R, classes + 1) and deltas (B, R, classes + 1, 4)."""
        # Channels last, as they are in memory: nothing is copied.
        hidden = functional.relu(self.first(features.permute(0, 1, 3, 4, 2).flatten(2)))
        hidden = functional.relu(self.second(hidden))
        deltas: Tensor = self.deltas(hidden).float()
        return self.scores(hidden).float(), deltas.unflatten(-1, (-1, 4))


class Regions(nn.Module):
    """Computes the loss of regions in training and their detections in evaluation."""

    nothing: Tensor
    """The row that means no detection."""

    def __init__(self, design: DetectorDesign, classes: int, height: int, width: int) -> None:
        super().__init__()
        self._design, self._height, self._width = design, height, width
        self.head = RegionHead(design, classes)
        self._strides = design.strides[: len(design.stages)]
        self._lowest = self._strides[0].bit_length() - 1
        nothing = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
        self.register_buffer("nothing", nothing, persistent=False)

    def _evaluate(self, levels: Sequence[Tensor], regions: Tensor) -> tuple[Tensor, Tensor]:
        used = levels[: len(self._strides)]
        highest = self._lowest + len(used) - 1
        level = level_of(regions, self._lowest, highest, canonical_size=self._design.region_scale)
        features = roi_align(used, self._strides, regions, level, size=self._design.region_size)
        scores, deltas = self.head(features)
        return scores, deltas

    def loss(
        self,
        levels: Sequence[Tensor],
        proposals: Tensor,
        present: Tensor,
        truth: GroundTruth,
        seeds: Tensor,
    ) -> Tensor:
        """Return the losses of classes and boxes over randomly selected regions: (2,)."""
        with torch.no_grad():
            # True boxes are proposals as well: otherwise there are no hits at first.
            regions = torch.cat([proposals, truth.boxes], 1)
            valid = torch.cat([present, truth.present], 1)
            overlaps = boxes.iou(regions, truth.boxes)
            matched = match(overlaps, truth.present, low=_HIT_IOU, high=_HIT_IOU, rescue=False)
            index, hit, used = select(
                (matched >= 0) & valid,
                (matched == BACKGROUND) & valid,
                random_numbers(seeds, regions.shape[1], _SALT),
                self._design.regions,
                _MAX_HIT_FRACTION,
            )
            regions = regions.gather(1, index[..., None].expand(-1, -1, 4))
            true_box = matched.gather(1, index).clamp(min=0)
            label = torch.where(hit, truth.labels.gather(1, true_box) + 1, 0)
            target = truth.boxes.gather(1, true_box[..., None].expand(-1, -1, 4))
            target = boxes.encode(regions, target, _WEIGHTS)
            number = used.sum().clamp(min=1)
        scores, deltas = self._evaluate(levels, regions)
        class_loss = functional.cross_entropy(
            scores.flatten(0, 1), label.flatten(), reduction="none"
        )
        code = deltas.gather(2, label[..., None, None].expand(-1, -1, 1, 4)).squeeze(2)
        box_loss = functional.smooth_l1_loss(
            code, target, beta=_SMOOTH_L1_BETA, reduction="none"
        ).sum(-1)
        zero = scores.new_zeros(())
        return torch.stack(
            [
                torch.where(used.flatten(), class_loss, zero).sum() / number,
                torch.where(hit & used, box_loss, zero).sum() / number,
            ]
        )

    def detect(self, levels: Sequence[Tensor], proposals: Tensor, present: Tensor) -> Tensor:
        """Return the best boxes of each image: x1, y1, x2, y2, score, class (−1 for no box)."""
        scores, deltas = self._evaluate(levels, proposals)
        probability = scores.softmax(-1)[..., 1:].transpose(1, 2)  # (B, classes, P)
        decoded = boxes.decode(deltas[:, :, 1:], proposals[:, :, None], _WEIGHTS)
        decoded = boxes.clip(decoded, self._height, self._width).transpose(1, 2)
        large_enough = (decoded[..., 2:] - decoded[..., :2]).amin(-1) >= _MIN_SIDE
        probability = torch.where(large_enough & present[:, None], probability, -1.0)
        value, order = probability.sort(stable=True, dim=-1, descending=True)
        decoded = decoded.gather(2, order[..., None].expand(-1, -1, -1, 4))
        valid = value > self._design.least_score
        keep = suppress(
            decoded.flatten(0, 1), valid.flatten(0, 1), self._design.detection_overlap
        ).reshape(valid.shape)
        value = torch.where(keep, value, -1.0)
        class_number = torch.arange(value.shape[1], device=value.device, dtype=value.dtype)
        class_of_box = torch.where(keep, class_number[:, None], -1.0)
        best, index = value.flatten(1).topk(min(self._design.detections, value[0].numel()), dim=1)
        rows = torch.cat([decoded, value[..., None], class_of_box[..., None]], -1).flatten(1, 2)
        rows = rows.gather(1, index[..., None].expand(-1, -1, 6))
        rows = torch.where((best > 0)[..., None], rows, self.nothing)
        missing = self._design.detections - rows.shape[1]
        return torch.cat([rows, self.nothing.expand(len(rows), missing, 6)], 1)
