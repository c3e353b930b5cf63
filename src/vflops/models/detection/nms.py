"""Non-maximum suppression: of boxes that overlap too much, keep only the best-scoring one.

This is exactly the greedy algorithm, as one operator ``vflops::suppress`` with static shapes that a
compiler does not break up. It is defined with ``torch.library.define``, not ``custom_op``, whose
first call imports the compiler.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vflops.models.detection.boxes import area, iou

Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

BLOCK = 64
"""Boxes that are resolved together: their overlaps with all later ones are one array."""

_OVERLAPS_AT_ONCE = 1 << 16
"""Number of overlaps that a CPU computes at a time, so that they fit its L1 and L2 caches."""


def suppress(boxes: Tensor, valid: Tensor, threshold: float) -> Tensor:
    """Return which boxes to keep (B, N): valid ones that no earlier kept box removes.

    ``boxes`` (B, N, 4) are sorted by descending score, ``valid`` (B, N) is boolean. A box removes a
    later one if their IoU is above ``threshold``, which is at least 0.
    """
    kept: Tensor = torch.ops.vflops.suppress.default(boxes.detach().float(), valid, threshold)
    return kept


def suppress_fallback(boxes: Tensor, valid: Tensor, threshold: float) -> Tensor:
    """Compute ``suppress`` on any device; launches depend on N only, and the host never waits."""
    keep = valid.clone()
    for start in range(0, boxes.shape[1], BLOCK):
        rows = boxes[:, start : start + BLOCK]
        size = rows.shape[1]
        over = iou(rows, boxes[:, start:]) > threshold
        within_block = over[:, :, :size].triu(1)
        before = keep[:, start : start + size]
        # After k rounds the first k + 1 boxes are final.
        alive = before
        for _ in range(size - 1):
            alive = before & ~(within_block & alive.unsqueeze(-1)).any(dim=1)
        removed = (over[:, :, size:] & alive.unsqueeze(-1)).any(dim=1)
        before.copy_(alive)
        keep[:, start + size :] &= ~removed
    return keep


def _on_cpu(boxes: Tensor, valid: Tensor, threshold: float) -> Tensor:
    batch, count = valid.shape
    corners = boxes.permute(2, 0, 1).contiguous()
    areas = area(boxes)
    kept: list[int] = []
    # One integer per image: bit k is set if the box k positions ahead is removed or invalid.
    removed_bits = [int.from_bytes(row.tobytes(), "little") for row in _packed(~valid.numpy())]
    block = max(8, min(BLOCK, _OVERLAPS_AT_ONCE // max(1, batch * count)))
    for start in range(0, count, block):
        rows = min(block, count - start)
        overlaps = _overlaps(corners[:, :, start:], areas[:, start:], rows).numpy()
        packed = _packed(overlaps > np.float32(threshold))
        width, data = packed.shape[-1], packed.tobytes()
        offset = 0
        for image in range(batch):
            removed = removed_bits[image]
            first = image * count + start
            for row in range(rows):
                if not removed >> row & 1:
                    kept.append(first + row)
                    removed |= int.from_bytes(data[offset : offset + width], "little")
                offset += width
            removed_bits[image] = removed >> rows
    keep = np.zeros(batch * count, dtype=bool)
    keep[kept] = True
    return torch.from_numpy(keep).view(batch, count)


def _overlaps(corners: Tensor, areas: Tensor, rows: int) -> Tensor:
    """Return IoUs (B, rows, N) of the first boxes with all N, bit for bit those of ``boxes.iou``.

    A few arrays are reused, because allocating them takes as long as the computation.
    """
    x1, y1, x2, y2 = corners.unsqueeze(2)
    left, top, right, bottom = corners[:, :, :rows].unsqueeze(3)
    shared = torch.minimum(right, x2)
    scratch = torch.maximum(left, x1)
    shared.sub_(scratch).clamp_(min=0)
    height = torch.minimum(bottom, y2)
    torch.maximum(top, y1, out=scratch)
    height.sub_(scratch).clamp_(min=0)
    shared.mul_(height)
    union = torch.add(areas[:, :rows].unsqueeze(2), areas.unsqueeze(1), out=scratch).sub_(shared)
    return shared.div_(union.clamp_(min=torch.finfo(union.dtype).tiny))


def _packed(flags: Flags) -> Bytes:
    return np.packbits(flags, axis=-1, bitorder="little")


def _on_cuda(boxes: Tensor, valid: Tensor, threshold: float) -> Tensor:
    if not _has_triton():
        return suppress_fallback(boxes, valid, threshold)
    from vflops.models.kernels import nms_kernel

    return nms_kernel.suppress(boxes, valid, threshold)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _fake(boxes: Tensor, valid: Tensor, threshold: float) -> Tensor:
    return torch.empty_like(valid, memory_format=torch.contiguous_format)


torch.library.define("vflops::suppress", "(Tensor boxes, Tensor valid, float threshold) -> Tensor")
torch.library.impl("vflops::suppress", "default", suppress_fallback)
torch.library.impl("vflops::suppress", "cpu", _on_cpu)
torch.library.impl("vflops::suppress", "cuda", _on_cuda)
torch.library.register_fake("vflops::suppress", _fake)
