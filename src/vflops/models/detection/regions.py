"""The second stage: what is in a proposed region, and where exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.detection import boxes
from vflops.models.detection.design import DetectorDesign
from vflops.models.detection.matching import BACKGROUND, lots, match, take
from vflops.models.detection.nms import suppress
from vflops.models.detection.roi_align import level_of, roi_align
from vflops.models.detection.truth import Truth

_HIT = 0.5
"""Overlap from which on a region shows an object."""
_HITS = 0.25
"""Most hits among the regions that are trained on."""
_KNEE = 1 / 9
_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
_LEAST_SIDE = 1e-2
_SALT = 2


class RegionHead(nn.Module):
    """From the features of a region to class scores, the background first, and a box a class."""

    channel_pairs = (("first", "second"),)
    """Layers that ranks can divide the channels between."""

    def __init__(self, design: DetectorDesign, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(design.channels * design.region_size**2, design.hidden)
        self.second = nn.Linear(design.hidden, design.hidden)
        self.scores = nn.Linear(design.hidden, classes + 1)
        self.deltas = nn.Linear(design.hidden, (classes + 1) * 4)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (B, R, classes + 1) and deltas (B, R, classes + 1, 4)."""
        # Channels last, as they lie in memory: nothing is copied.
        hidden = functional.relu(self.first(features.permute(0, 1, 3, 4, 2).flatten(2)))
        hidden = functional.relu(self.second(hidden))
        deltas: Tensor = self.deltas(hidden).float()
        return self.scores(hidden).float(), deltas.unflatten(-1, (-1, 4))


class Regions(nn.Module):
    """Looks at regions of the pyramid: a loss in training, detections in evaluation."""

    nothing: Tensor
    """The row that stands for no detection."""

    def __init__(self, design: DetectorDesign, classes: int, height: int, width: int) -> None:
        super().__init__()
        self._design, self._height, self._width = design, height, width
        self.head = RegionHead(design, classes)
        self._strides = design.strides[: len(design.stages)]
        self._lowest = self._strides[0].bit_length() - 1
        nothing = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
        self.register_buffer("nothing", nothing, persistent=False)

    def _look(self, levels: Sequence[Tensor], regions: Tensor) -> tuple[Tensor, Tensor]:
        own = levels[: len(self._strides)]
        highest = self._lowest + len(own) - 1
        level = level_of(regions, self._lowest, highest, canonical_size=self._design.region_scale)
        features = roi_align(own, self._strides, regions, level, size=self._design.region_size)
        scores, deltas = self.head(features)
        return scores, deltas

    def loss(
        self,
        levels: Sequence[Tensor],
        proposals: Tensor,
        present: Tensor,
        truth: Truth,
        lot: Tensor,
    ) -> Tensor:
        """How wrong classes and boxes of a random choice of regions are: (2,)."""
        with torch.no_grad():
            # The true boxes are proposals as well: else there is nothing to learn from at first.
            regions = torch.cat([proposals, truth.boxes], 1)
            there = torch.cat([present, truth.present], 1)
            overlaps = boxes.iou(regions, truth.boxes)
            matched = match(overlaps, truth.present, low=_HIT, high=_HIT, rescue=False)
            index, hit, used = take(
                (matched >= 0) & there,
                (matched == BACKGROUND) & there,
                lots(lot, regions.shape[1], _SALT),
                self._design.regions,
                _HITS,
            )
            regions = regions.gather(1, index[..., None].expand(-1, -1, 4))
            whose = matched.gather(1, index).clamp(min=0)
            label = torch.where(hit, truth.labels.gather(1, whose) + 1, 0)
            wanted = truth.boxes.gather(1, whose[..., None].expand(-1, -1, 4))
            wanted = boxes.encode(regions, wanted, _WEIGHTS)
            number = used.sum().clamp(min=1)
        scores, deltas = self._look(levels, regions)
        wrong = functional.cross_entropy(scores.flatten(0, 1), label.flatten(), reduction="none")
        own = deltas.gather(2, label[..., None, None].expand(-1, -1, 1, 4)).squeeze(2)
        moved = functional.smooth_l1_loss(own, wanted, beta=_KNEE, reduction="none").sum(-1)
        zero = scores.new_zeros(())
        return torch.stack(
            [
                torch.where(used.flatten(), wrong, zero).sum() / number,
                torch.where(hit & used, moved, zero).sum() / number,
            ]
        )

    def detect(self, levels: Sequence[Tensor], proposals: Tensor, present: Tensor) -> Tensor:
        """The best boxes of each image: rows x1, y1, x2, y2, score, class; class −1 is none."""
        scores, deltas = self._look(levels, proposals)
        likely = scores.softmax(-1)[..., 1:].transpose(1, 2)  # (B, classes, P)
        found = boxes.decode(deltas[:, :, 1:], proposals[:, :, None], _WEIGHTS)
        found = boxes.clip(found, self._height, self._width).transpose(1, 2)
        wide = (found[..., 2:] - found[..., :2]).amin(-1) >= _LEAST_SIDE
        likely = torch.where(wide & present[:, None], likely, -1.0)
        value, order = likely.sort(stable=True, dim=-1, descending=True)
        found = found.gather(2, order[..., None].expand(-1, -1, -1, 4))
        valid = value > self._design.least_score
        keep = suppress(
            found.flatten(0, 1), valid.flatten(0, 1), self._design.detection_overlap
        ).reshape(valid.shape)
        value = torch.where(keep, value, -1.0)
        rank = torch.arange(value.shape[1], device=value.device, dtype=value.dtype)
        kind = torch.where(keep, rank[:, None], -1.0)
        best, index = value.flatten(1).topk(min(self._design.detections, value[0].numel()), dim=1)
        rows = torch.cat([found, value[..., None], kind[..., None]], -1).flatten(1, 2)
        rows = rows.gather(1, index[..., None].expand(-1, -1, 6))
        rows = torch.where((best > 0)[..., None], rows, self.nothing)
        missing = self._design.detections - rows.shape[1]
        return torch.cat([rows, self.nothing.expand(len(rows), missing, 6)], 1)
