"""The 7×7 stride-2 convolution of a ResNet's stem as a 4×4 convolution over 2×2 patches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def space_to_depth(x: Tensor) -> Tensor:
    """Return images as 2×2 patches in 16 channels, 12 pixels and 4 zeros, padded for the stem."""
    batch, channels, height, width = x.shape
    out = x.new_zeros((batch, height // 2 + 3, width // 2 + 3, 16)).permute(0, 3, 1, 2)
    patches = x.view(batch, channels, height // 2, 2, width // 2, 2).permute(0, 3, 5, 1, 2, 4)
    inner = out[:, : 4 * channels, 2:-1, 2:-1]
    inner.unflatten(1, (2, 2, channels)).copy_(patches)
    return out


def stem_weight(weight: Tensor) -> Tensor:
    """Convert the 7×7 stride-2 kernel exactly to the 4×4 stride-1 kernel over ``space_to_depth``.

    An output pixel reads rows −3 to 3 around it; with one row of zeros before them these are four
    pairs, the four rows of patches.
    """
    channels_out, channels = weight.shape[:2]
    padded = functional.pad(weight, (1, 0, 1, 0)).view(channels_out, channels, 4, 2, 4, 2)
    packed = padded.permute(0, 3, 5, 1, 2, 4).reshape(channels_out, 4 * channels, 4, 4)
    full = functional.pad(packed, (0, 0, 0, 0, 0, 16 - 4 * channels))
    return full.contiguous(memory_format=torch.channels_last)


def stem_weight_gradient(gradient: Tensor, channels: int) -> Tensor:
    """Convert the gradient of ``stem_weight`` to that of the 7×7 kernel."""
    channels_out = gradient.shape[0]
    packed = gradient[:, : 4 * channels].reshape(channels_out, 2, 2, channels, 4, 4)
    padded = packed.permute(0, 3, 4, 1, 5, 2).reshape(channels_out, channels, 8, 8)
    return padded[:, :, 1:, 1:].contiguous(memory_format=torch.channels_last)
