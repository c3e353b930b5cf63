"""The kernel that samples packed images agrees with the plain operators."""

from __future__ import annotations

import pytest
import torch

from tests.support.triton_kernels import DEVICE, kernel_test
from vflops.data.images import crop

SIZES = [(40, 50), (33, 70), (64, 64), (9, 200)]
# In float32 a device rounds coordinates up to 200 differently, by 2⁻¹⁶ or so. Over that, levels
# change by at most 255 · 2⁻¹⁶, and results, which are levels divided by 57, by 7e-5 in each
# direction. Results of up to 2.7 are rounded to 11 bits in float16, and to 8 in bfloat16.
TOLERANCE = {torch.float32: 2e-4, torch.float16: 4e-3, torch.bfloat16: 4e-2}


@kernel_test
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["random", "centre"])
def test_it_agrees_with_the_plain_operators(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    images = [torch.randint(0, 256, (height, width, 3)).byte() for height, width in SIZES]
    pixels = torch.cat([*(image.flatten() for image in images), torch.zeros(7).byte()])
    starts = torch.tensor([0, *(image.numel() for image in images[:-1])]).cumsum(0)
    heights, widths = torch.tensor(SIZES).unbind(1)
    draws = torch.rand(len(SIZES), crop.CROP_DRAWS)
    where = (pixels, starts, heights, widths)

    def cropped(device: str) -> torch.Tensor:
        location = tuple(tensor.to(device) for tensor in where)
        assert len(location) == 4
        if kind == "centre":
            return crop.centre_crop(*location, size=28, resize=33, dtype=dtype)
        return crop.random_resized_crop(*location, draws.to(device), size=24, dtype=dtype)

    monkeypatch.setattr(crop, "_has_kernel", lambda device: False)
    plain = cropped("cpu")
    monkeypatch.setattr(crop, "_has_kernel", lambda device: True)
    sampled = cropped(DEVICE)
    assert (sampled.dtype, sampled.shape, sampled.stride()) == (dtype, plain.shape, plain.stride())
    assert (sampled.cpu().double() - plain.double()).abs().max() < TOLERANCE[dtype]


@kernel_test
def test_no_images_are_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crop, "_has_kernel", lambda device: True)
    none = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    pixels = torch.zeros(0, dtype=torch.uint8, device=DEVICE)
    assert crop.centre_crop(pixels, none, none, none, size=8, resize=8).shape == (0, 3, 8, 8)
