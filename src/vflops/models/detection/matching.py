"""Which truth each anchor or proposal is trained towards, and which of them a step looks at.

Shapes are fixed: truths come padded, with a mask of those present, and a choice of at most
``number`` comes as that many indices with a mask of those in use.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

BACKGROUND: Final = -1
BETWEEN: Final = -2
"""Neither object nor background: left out of the loss."""

_WORD: Final = 0xFFFFFFFF


def match(overlaps: Tensor, present: Tensor, *, low: float, high: float, rescue: bool) -> Tensor:
    """The truth (B, A) of each anchor: its index, or BACKGROUND, or BETWEEN.

    ``overlaps`` (B, A, G) are IoUs, ``present`` (B, G) says which truths there are. An anchor gets
    its best truth from ``high`` on and is background below ``low``. With ``rescue`` the anchors
    that overlap some truth most of all, ties included, get their best truth whatever its IoU: no
    truth goes without an anchor unless none touches it.
    """
    overlaps = torch.where(present.unsqueeze(-2), overlaps, -1.0)
    best, truth = overlaps.max(dim=-1)
    matched = torch.where(best < high, BETWEEN, truth)
    matched = torch.where(best < low, BACKGROUND, matched)
    if not rescue:
        return matched
    most = overlaps.amax(dim=-2, keepdim=True)
    rescued = (overlaps == torch.where(most > 0, most, torch.inf)).any(dim=-1)
    return torch.where(rescued, truth, matched)


def take(
    positive: Tensor, negative: Tensor, lots: Tensor, number: int, fraction: float
) -> tuple[Tensor, Tensor, Tensor]:
    """At most ``number`` of A candidates as indices, and which are positive, and in use.

    All three are (B, number): first the positives, at most ``fraction`` of the number, then
    negatives as long as there are any; what is left is index 0 and not in use. The highest
    ``lots`` (B, A), none below 0, win; of equal ones the first.
    """
    candidates = lots.shape[1]
    # Bits of a float that is not negative are in its order; the place makes every key different,
    # so that the choice does not depend on how a device treats ties.
    place = torch.arange(candidates - 1, -1, -1, device=lots.device)
    keys = (lots.float().view(torch.int32).to(torch.int64) << 32) + place
    most = min(int(number * fraction), candidates)
    positives, their_keys = _highest(keys, positive, most)
    negatives, other_keys = _highest(keys, negative, min(number, candidates))
    taken = (their_keys >= 0).sum(dim=1, keepdim=True)
    left = torch.minimum((other_keys >= 0).sum(dim=1, keepdim=True), number - taken)
    slot = torch.arange(number, device=lots.device).expand(lots.shape[0], number)
    is_positive = slot < taken
    is_used = slot < taken + left
    source = torch.where(is_positive, slot, most + slot - taken)
    chosen = torch.cat((positives, negatives), dim=1)
    source = torch.where(is_used, source, 0)
    if not chosen.shape[1]:
        return torch.zeros_like(slot), is_positive, is_used
    return torch.where(is_used, chosen.gather(1, source), 0), is_positive, is_used


def sample(
    positive: Tensor, negative: Tensor, lots: Tensor, *, number: int, fraction: float
) -> tuple[Tensor, Tensor]:
    """The choice of ``take`` as masks (B, A): the positives and the negatives chosen."""
    indices, is_positive, is_used = take(positive, negative, lots, number, fraction)
    return (
        _mask(positive, indices, is_positive),
        _mask(negative, indices, is_used & ~is_positive),
    )


def lots(seeds: Tensor, count: int, salt: int) -> Tensor:
    """Random numbers (B, count) in [0, 1): a pure function of a sample's own seed and ``salt``.

    ``seeds`` (B,) are one float32 in [0, 1) a sample. Integers are mixed, exactly, so that a
    sample's lots are the same on every device, compiled or not, and in every batch.
    """
    seed = _mix(_mix(seeds.float().view(torch.int32).to(torch.int64)) ^ (salt & _WORD))
    place = torch.arange(count, device=seeds.device)
    # Within a row mixing is one to one: no two places of a sample share all 32 bits.
    mixed = _mix(_mix(place) ^ seed.unsqueeze(1))
    return (mixed >> 8).float() * 2.0**-24


def _highest(keys: Tensor, among: Tensor, number: int) -> tuple[Tensor, Tensor]:
    # The places and keys of the highest; a key of −1 stands for none.
    found, places = torch.where(among, keys, -1).topk(number, dim=1)
    return places, found


def _mask(like: Tensor, indices: Tensor, used: Tensor) -> Tensor:
    # What is not in use goes to one place too many, which is cut off.
    candidates = like.shape[1]
    mask = torch.zeros((like.shape[0], candidates + 1), dtype=torch.bool, device=like.device)
    return mask.scatter(1, torch.where(used, indices, candidates), True)[:, :candidates]


def _mix(x: Tensor) -> Tensor:
    # An invertible mixer of 32 bits (Wellons' search: shifts 16, 15, 15) in 64-bit integers. Both
    # multipliers are below 2³¹: no product overflows, so no device can disagree on it.
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _WORD
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _WORD
    return x ^ (x >> 15)
