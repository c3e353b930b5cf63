"""The first stage: propose regions that may contain an object (Ren et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.detection import boxes
from vflops.models.detection.anchors import anchors
from vflops.models.detection.detector_design import DetectorDesign
from vflops.models.detection.ground_truth import GroundTruth
from vflops.models.detection.matching import BACKGROUND, match, random_numbers, sample
from vflops.models.detection.nms import suppress

_HIT_IOU, _MISS_IOU = 0.7, 0.3
"""An anchor is a hit if its IoU with an object is at least the first, a miss below the second."""
_MAX_HIT_FRACTION = 0.5
"""Maximum fraction of hits among the anchors of the loss."""
_SMOOTH_L1_BETA = 1 / 9
"""Where the box loss changes from quadratic to linear."""
_WEIGHTS = (1.0, 1.0, 1.0, 1.0)
_MIN_SIDE = 1e-3
_SALT = 1


class ProposalHead(nn.Module):
    """Predicts a hit score and a box code for every cell and anchor of a pyramid level."""

    def __init__(self, channels: int, anchors_per_cell: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.scores = nn.Conv2d(channels, anchors_per_cell, 1)
        self.deltas = nn.Conv2d(channels, anchors_per_cell * 4, 1)
        for layer in (self.conv, self.scores, self.deltas):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, levels: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return scores (B, cells × anchors) and deltas (B, cells × anchors, 4) of each level."""
        scores, deltas = [], []
        for level in levels:
            hidden = functional.relu(self.conv(level))
            # Channels last, so that the numbers of one cell are adjacent.
            scores.append(self.scores(hidden).permute(0, 2, 3, 1).flatten(1).float())
            codes = self.deltas(hidden).permute(0, 2, 3, 1)
            deltas.append(codes.reshape(len(level), -1, 4).float())
        return scores, deltas


class Proposer(nn.Module):
    """Turns the output of the head into a fixed number of proposals per image, or into its loss."""

    anchors: Tensor

    def __init__(self, design: DetectorDesign, height: int, width: int) -> None:
        super().__init__()
        self._design, self._height, self._width = design, height, width
        self.head = ProposalHead(design.channels, len(design.anchors[0]))
        shapes = [(-(-height // stride), -(-width // stride)) for stride in design.strides]
        levels = anchors(shapes, design.strides, design.anchors)
        self._counts = [len(level) for level in levels]
        self.register_buffer("anchors", torch.cat(levels), persistent=False)

    def forward(self, levels: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return scores and deltas of all anchors, proposals (B, P, 4), and their mask (B, P)."""
        scores, deltas = self.head(levels)
        with torch.no_grad():
            chosen, present = self._propose(scores, deltas)
        return torch.cat(scores, 1), torch.cat(deltas, 1), chosen, present

    def _propose(self, scores: list[Tensor], deltas: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the best boxes of all levels, after suppression per level, and their mask."""
        divisor = 1 if self.training else 2
        candidates = max(self._design.candidates // divisor, 1)
        width = min(candidates, max(self._counts))
        values, indices = [], []
        for level, start in zip(scores, self._starts(), strict=True):
            best, index = level.topk(min(candidates, level.shape[1]), dim=1)
            missing = width - best.shape[1]
            values.append(functional.pad(best, (0, missing), value=-torch.inf))
            indices.append(functional.pad(index, (0, missing)) + start)
        value, anchor = torch.stack(values, 1), torch.stack(indices, 1)  # (B, levels, width)
        codes = torch.cat(deltas, 1).gather(1, anchor.flatten(1)[..., None].expand(-1, -1, 4))
        references = self.anchors[anchor.flatten(1)]
        decoded = boxes.clip(boxes.decode(codes, references, _WEIGHTS), self._height, self._width)
        decoded = decoded.reshape(*anchor.shape, 4)
        large_enough = (decoded[..., 2:] - decoded[..., :2]).amin(-1) >= _MIN_SIDE
        present = large_enough & value.isfinite()
        keep = suppress(
            decoded.flatten(0, 1), present.flatten(0, 1), self._design.proposal_overlap
        ).reshape(present.shape)
        value = torch.where(keep, value, -torch.inf).flatten(1)
        wanted = max(self._design.proposals // divisor, 1)
        best, index = value.topk(min(wanted, value.shape[1]), dim=1)
        chosen = decoded.flatten(1, 2).gather(1, index[..., None].expand(-1, -1, 4))
        return chosen, best.isfinite()

    def loss(self, scores: Tensor, deltas: Tensor, truth: GroundTruth, seeds: Tensor) -> Tensor:
        """Return the losses of scores and boxes over randomly selected anchors: (2,)."""
        with torch.no_grad():
            overlaps = boxes.iou(self.anchors, truth.boxes)
            matched = match(overlaps, truth.present, low=_MISS_IOU, high=_HIT_IOU, rescue=True)
            hits, misses = sample(
                matched >= 0,
                matched == BACKGROUND,
                random_numbers(seeds, len(self.anchors), _SALT),
                number=self._design.anchor_samples,
                fraction=_MAX_HIT_FRACTION,
            )
            index = matched.clamp(min=0)[..., None].expand(-1, -1, 4)
            target = boxes.encode(self.anchors, truth.boxes.gather(1, index), _WEIGHTS)
            used = hits | misses
            number = used.sum().clamp(min=1)
        score_loss = functional.binary_cross_entropy_with_logits(
            scores, hits.to(scores.dtype), reduction="none"
        )
        box_loss = functional.smooth_l1_loss(
            deltas, target, beta=_SMOOTH_L1_BETA, reduction="none"
        ).sum(-1)
        zero = scores.new_zeros(())
        return torch.stack(
            [
                torch.where(used, score_loss, zero).sum() / number,
                torch.where(hits, box_loss, zero).sum() / number,
            ]
        )

    def _starts(self) -> list[int]:
        return [sum(self._counts[:number]) for number in range(len(self._counts))]
