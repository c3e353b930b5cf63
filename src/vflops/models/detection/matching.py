"""Match anchors or proposals to true boxes, and select those that a step trains on.

Shapes are static: true boxes are padded, with a mask of those present, and a selection of at most
``number`` has that many indices, with a mask of those in use.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

BACKGROUND: Final = -1
IGNORED: Final = -2
"""Neither object nor background: excluded from the loss."""

_WORD: Final = 0xFFFFFFFF


def match(overlaps: Tensor, present: Tensor, *, low: float, high: float, rescue: bool) -> Tensor:
    """Return the index of the true box of each anchor (B, A), or BACKGROUND, or IGNORED.

    ``overlaps`` (B, A, G) are IoUs, ``present`` (B, G) is the mask of true boxes. An anchor is
    matched to its best true box if their IoU is at least ``high``, and is background below ``low``.
    With ``rescue``, the anchors that overlap a true box most, ties included, are matched to their
    best one whatever the IoU, so that every true box that touches an anchor has one.
    """
    overlaps = torch.where(present.unsqueeze(-2), overlaps, -1.0)
    best, truth = overlaps.max(dim=-1)
    matched = torch.where(best < high, IGNORED, truth)
    matched = torch.where(best < low, BACKGROUND, matched)
    if not rescue:
        return matched
    highest = overlaps.amax(dim=-2, keepdim=True)
    rescued = (overlaps == torch.where(highest > 0, highest, torch.inf)).any(dim=-1)
    return torch.where(rescued, truth, matched)


def select(
    positive: Tensor, negative: Tensor, priority: Tensor, number: int, fraction: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices of selected candidates, which of them are positive, and which are in use.

    All three results are (B, number): first the positives, at most ``fraction`` of the number, then
    as many negatives as there are; unused indices are 0. The candidates with the highest
    ``priority`` (B, A), which must not be negative, are selected; of equal ones the first.
    """
    candidates = priority.shape[1]
    # The bits of nonnegative floats sort like the floats; the position makes every key unique, so
    # that the selection does not depend on how a device treats ties.
    position = torch.arange(candidates - 1, -1, -1, device=priority.device)
    keys = (priority.float().view(torch.int32).to(torch.int64) << 32) + position
    max_positives = min(int(number * fraction), candidates)
    positives, positive_keys = _highest(keys, positive, max_positives)
    negatives, negative_keys = _highest(keys, negative, min(number, candidates))
    hits = (positive_keys >= 0).sum(dim=1, keepdim=True)
    misses = torch.minimum((negative_keys >= 0).sum(dim=1, keepdim=True), number - hits)
    slot = torch.arange(number, device=priority.device).expand(priority.shape[0], number)
    is_positive = slot < hits
    is_used = slot < hits + misses
    source = torch.where(is_positive, slot, max_positives + slot - hits)
    chosen = torch.cat((positives, negatives), dim=1)
    source = torch.where(is_used, source, 0)
    if not chosen.shape[1]:
        return torch.zeros_like(slot), is_positive, is_used
    return torch.where(is_used, chosen.gather(1, source), 0), is_positive, is_used


def sample(
    positive: Tensor, negative: Tensor, priority: Tensor, *, number: int, fraction: float
) -> tuple[Tensor, Tensor]:
    """Return the selection of ``select`` as masks (B, A): positives and negatives."""
    indices, is_positive, is_used = select(positive, negative, priority, number, fraction)
    return (
        _mask(positive, indices, is_positive),
        _mask(negative, indices, is_used & ~is_positive),
    )


def random_numbers(seeds: Tensor, count: int, salt: int) -> Tensor:
    """Return random numbers (B, count) in [0, 1): a pure function of a sample's seed and ``salt``.

    ``seeds`` (B,) has one float32 in [0, 1) per sample. Only integers are hashed, so the numbers of
    a sample are the same on every device, compiled or not, and in every batch.
    """
    seed = _mix(_mix(seeds.float().view(torch.int32).to(torch.int64)) ^ (salt & _WORD))
    position = torch.arange(count, device=seeds.device)
    # Within a row the hash is one to one: no two positions of a sample share all 32 bits.
    mixed = _mix(_mix(position) ^ seed.unsqueeze(1))
    return (mixed >> 8).float() * 2.0**-24


def _highest(keys: Tensor, among: Tensor, number: int) -> tuple[Tensor, Tensor]:
    # Returns positions and keys of the highest; a key of −1 marks an unused position.
    highest, positions = torch.where(among, keys, -1).topk(number, dim=1)
    return positions, highest


def _mask(like: Tensor, indices: Tensor, used: Tensor) -> Tensor:
    # Unused indices go to one extra position, which is removed.
    candidates = like.shape[1]
    mask = torch.zeros((like.shape[0], candidates + 1), dtype=torch.bool, device=like.device)
    return mask.scatter(1, torch.where(used, indices, candidates), True)[:, :candidates]


def _mix(x: Tensor) -> Tensor:
    # An invertible 32-bit hash (from Wellons' search: shifts 16, 15, 15) in 64-bit integers. Both
    # multipliers are below 2³¹, so no product overflows and all devices agree.
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _WORD
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _WORD
    return x ^ (x >> 15)
