"""The first stage: where in an image something may be (Ren et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.detection import boxes
from vflops.models.detection.anchors import anchors
from vflops.models.detection.design import DetectorDesign
from vflops.models.detection.matching import BACKGROUND, lots, match, sample
from vflops.models.detection.nms import suppress
from vflops.models.detection.truth import Truth

_HIT, _MISS = 0.7, 0.3
"""Overlaps from which on an anchor is a hit, and below which it is none."""
_HITS = 0.5
"""Most hits among the anchors that the loss looks at."""
_KNEE = 1 / 9
"""Where the box loss turns from a square to a line."""
_WEIGHTS = (1.0, 1.0, 1.0, 1.0)
_LEAST_SIDE = 1e-3
_SALT = 1


class ProposalHead(nn.Module):
    """For every place and anchor of a level: how likely it is a hit, and how to move its box."""

    def __init__(self, channels: int, anchors_each: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.scores = nn.Conv2d(channels, anchors_each, 1)
        self.deltas = nn.Conv2d(channels, anchors_each * 4, 1)
        for layer in (self.conv, self.scores, self.deltas):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, levels: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Scores (B, places × anchors) and deltas (B, places × anchors, 4) of each level."""
        scores, deltas = [], []
        for level in levels:
            hidden = functional.relu(self.conv(level))
            # Channels come last, so that the numbers of one place are side by side.
            scores.append(self.scores(hidden).permute(0, 2, 3, 1).flatten(1).float())
            each = self.deltas(hidden).permute(0, 2, 3, 1)
            deltas.append(each.reshape(len(level), -1, 4).float())
        return scores, deltas


class Proposer(nn.Module):
    """Turns what the head says into a fixed number of boxes an image, and into its loss."""

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
        """Scores and deltas of all anchors, proposals (B, P, 4), and which of them there are."""
        scores, deltas = self.head(levels)
        with torch.no_grad():
            chosen, present = self._propose(scores, deltas)
        return torch.cat(scores, 1), torch.cat(deltas, 1), chosen, present

    def _propose(self, scores: list[Tensor], deltas: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The best boxes of each level without near copies, then the best of all levels."""
        less = 1 if self.training else 2
        most = max(self._design.candidates // less, 1)
        width = min(most, max(self._counts))
        values, places = [], []
        for level, start in zip(scores, self._starts(), strict=True):
            best, index = level.topk(min(most, level.shape[1]), dim=1)
            missing = width - best.shape[1]
            values.append(functional.pad(best, (0, missing), value=-torch.inf))
            places.append(functional.pad(index, (0, missing)) + start)
        value, place = torch.stack(values, 1), torch.stack(places, 1)  # (B, levels, width)
        moved = torch.cat(deltas, 1).gather(1, place.flatten(1)[..., None].expand(-1, -1, 4))
        start_from = self.anchors[place.flatten(1)]
        found = boxes.clip(boxes.decode(moved, start_from, _WEIGHTS), self._height, self._width)
        found = found.reshape(*place.shape, 4)
        wide = (found[..., 2:] - found[..., :2]).amin(-1) >= _LEAST_SIDE
        present = wide & value.isfinite()
        keep = suppress(
            found.flatten(0, 1), present.flatten(0, 1), self._design.proposal_overlap
        ).reshape(present.shape)
        value = torch.where(keep, value, -torch.inf).flatten(1)
        wanted = max(self._design.proposals // less, 1)
        best, index = value.topk(min(wanted, value.shape[1]), dim=1)
        chosen = found.flatten(1, 2).gather(1, index[..., None].expand(-1, -1, 4))
        return chosen, best.isfinite()

    def loss(self, scores: Tensor, deltas: Tensor, truth: Truth, lot: Tensor) -> Tensor:
        """How wrong scores and boxes of a random choice of anchors are: (2,)."""
        with torch.no_grad():
            overlaps = boxes.iou(self.anchors, truth.boxes)
            matched = match(overlaps, truth.present, low=_MISS, high=_HIT, rescue=True)
            hits, misses = sample(
                matched >= 0,
                matched == BACKGROUND,
                lots(lot, len(self.anchors), _SALT),
                number=self._design.anchor_samples,
                fraction=_HITS,
            )
            whose = matched.clamp(min=0)[..., None].expand(-1, -1, 4)
            wanted = boxes.encode(self.anchors, truth.boxes.gather(1, whose), _WEIGHTS)
            used = hits | misses
            number = used.sum().clamp(min=1)
        wrong = functional.binary_cross_entropy_with_logits(
            scores, hits.to(scores.dtype), reduction="none"
        )
        moved = functional.smooth_l1_loss(deltas, wanted, beta=_KNEE, reduction="none").sum(-1)
        zero = scores.new_zeros(())
        return torch.stack(
            [
                torch.where(used, wrong, zero).sum() / number,
                torch.where(hits, moved, zero).sum() / number,
            ]
        )

    def _starts(self) -> list[int]:
        return [sum(self._counts[:number]) for number in range(len(self._counts))]
