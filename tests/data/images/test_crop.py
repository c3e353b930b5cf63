from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torch import Tensor

from vflops.data.images import crop

AREA, ASPECT = (0.05, 1.0), (3 / 4, 4 / 3)
SIZES = [(40, 60), (60, 40), (33, 33), (256, 301), (7, 90), (1, 1)]


@dataclass(frozen=True)
class Batch:
    """Images of different sizes back to back, and as a list."""

    images: list[Tensor]
    pixels: Tensor
    offsets: Tensor
    heights: Tensor
    widths: Tensor

    @property
    def images_and_sizes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.pixels, self.offsets, self.heights, self.widths


def batch_of(images: list[Tensor], room: int = 100) -> Batch:
    lengths = torch.tensor([image.numel() for image in images])
    flat = torch.cat([image.flatten() for image in images] + [torch.full((room,), 255).byte()])
    heights, widths = (
        torch.tensor([image.shape[axis] for image in images], dtype=torch.int32) for axis in (0, 1)
    )
    return Batch(images, flat, lengths.cumsum(0) - lengths, heights, widths)


def random_batch(sizes: list[tuple[int, int]] = SIZES, seed: int = 1) -> Batch:
    torch.manual_seed(seed)
    return batch_of([torch.randint(0, 256, (*size, 3), dtype=torch.uint8) for size in sizes])


def levels(image: Tensor) -> Tensor:
    """Undo the normalisation: return levels from 0 to 255."""
    mean, deviation = (
        torch.tensor(values)[:, None, None] for values in (crop.MEAN, crop.DEVIATION)
    )
    return (image.float() * deviation + mean) * 255


def resize(image: Tensor, height: int, width: int) -> Tensor:
    """Resize [rows, columns, 3] to [3, height, width] with PyTorch's bilinear filter."""
    planes = image.permute(2, 0, 1)[None].float()
    return F.interpolate(planes, (height, width), mode="bilinear", align_corners=False)[0]


def test_a_random_crop_is_the_part_resized() -> None:
    batch = random_batch(SIZES * 4)
    draws = torch.rand(len(batch.images), crop.CROP_DRAWS + 2)
    out = crop.random_resized_crop(*batch.images_and_sizes, draws, 24)

    boxes = torch.stack(crop.crop_boxes(batch.heights, batch.widths, draws, AREA, ASPECT), 1).long()
    assert out.shape == (len(batch.images), 3, 24, 24)
    for number, (top, left, tall, wide) in enumerate(boxes.tolist()):
        part = batch.images[number][top : top + tall, left : left + wide]
        assert part.shape == (tall, wide, 3)  # inside the image
        expected = resize(part, 24, 24)
        if draws[number, crop.CROP_DRAWS - 1] < 0.5:
            expected = expected.flip(2)
        torch.testing.assert_close(levels(out[number]), expected, atol=0.02, rtol=0)


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 600),
    width=st.integers(1, 600),
    draws=st.lists(
        st.one_of(st.just(0.0), st.just(1 - 2**-24), st.floats(0, 1 - 2**-24, width=32)),
        min_size=crop.CROP_DRAWS,
        max_size=crop.CROP_DRAWS,
    ),
)
def test_a_box_always_lies_inside(height: int, width: int, draws: list[float]) -> None:
    sides = torch.tensor([height]), torch.tensor([width])
    boxes = crop.crop_boxes(*sides, torch.tensor([draws]), AREA, ASPECT)
    top, left, tall, wide = (int(side) for side in boxes)

    assert tall >= 1 and top >= 0 and top + tall <= height
    assert wide >= 1 and left >= 0 and left + wide <= width


def boxes(height: int, width: int, count: int) -> list[np.ndarray]:
    torch.manual_seed(3)
    sides = torch.full((count,), height), torch.full((count,), width)
    draws = torch.rand(count, crop.CROP_DRAWS)
    return [side.double().numpy() for side in crop.crop_boxes(*sides, draws, AREA, ASPECT)]


def published_boxes(height: int, width: int, count: int) -> list[np.ndarray]:
    """Return Inception's crops as torchvision draws them, with numpy's generator."""
    rng = np.random.default_rng(5)
    actual = []
    for _ in range(count):
        for _ in range(10):
            area = height * width * rng.uniform(*AREA)
            ratio = np.exp(rng.uniform(*np.log(ASPECT)))
            wide, tall = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                top, left = rng.integers(0, height - tall + 1), rng.integers(0, width - wide + 1)
                break
        else:
            wide, tall = (
                min(width, round(height * ASPECT[1])),
                min(height, round(width / ASPECT[0])),
            )
            top, left = (height - tall) // 2, (width - wide) // 2
        actual.append((top, left, tall, wide))
    return list(np.array(actual, dtype=np.float64).T)


@pytest.mark.parametrize(("height", "width"), [(256, 256), (256, 341), (500, 256), (100, 400)])
def test_boxes_are_distributed_as_published(height: int, width: int) -> None:
    for ours, theirs in zip(
        boxes(height, width, 8000), published_boxes(height, width, 2000), strict=True
    ):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3


def test_area_and_aspect_are_uniform_where_every_try_fits() -> None:
    torch.manual_seed(4)
    draws = torch.rand(4000, crop.CROP_DRAWS)
    side = torch.full((4000,), 2000)
    _, _, tall, wide = crop.crop_boxes(side, side, draws, (0.1, 0.5), ASPECT)
    area = (tall.double() * wide.double() / 2000**2).numpy()
    aspect = np.log((wide.double() / tall.double()).numpy())

    assert stats.kstest(area, stats.uniform(0.1, 0.4).cdf).pvalue > 1e-3
    low, high = np.log(ASPECT)
    assert stats.kstest(aspect, stats.uniform(low, high - low).cdf).pvalue > 1e-3


def test_without_a_fit_the_centre_is_taken() -> None:
    draws = torch.full((2, crop.CROP_DRAWS), 0.999)  # nearly the whole area, as wide as allowed
    actual = crop.crop_boxes(torch.tensor([90, 10]), torch.tensor([10, 90]), draws, AREA, ASPECT)

    assert torch.stack(actual, 1).tolist() == [[38, 0, 13, 10], [0, 38, 10, 13]]


def test_a_centre_crop_of_packed_images_is_exact() -> None:
    batch = random_batch([(256, 301), (333, 256), (256, 256)])
    out = levels(crop.centre_crop(*batch.images_and_sizes, 224, 256))

    for image, got in zip(batch.images, out, strict=True):
        top, left = (round((side - 224) / 2) for side in image.shape[:2])
        expected = image[top : top + 224, left : left + 224].permute(2, 0, 1).float()
        torch.testing.assert_close(got, expected, atol=0.01, rtol=0)


def test_a_centre_crop_is_pillows_when_enlarging() -> None:
    batch = random_batch([(40, 60), (70, 50), (48, 48)])
    out = levels(crop.centre_crop(*batch.images_and_sizes, 56, 64))

    for image, got in zip(batch.images, out, strict=True):
        height, width = (side * 64 // min(image.shape[:2]) for side in image.shape[:2])
        picture = Image.fromarray(image.numpy()).resize((width, height), Image.Resampling.BILINEAR)
        top, left = round((height - 56) / 2), round((width - 56) / 2)
        part = np.asarray(picture)[top : top + 56, left : left + 56].transpose(2, 0, 1)
        assert np.abs(got.numpy() - part).max() < 1.01  # Pillow rounds twice


def test_a_centre_crop_is_pytorchs_when_shrinking() -> None:
    batch = random_batch([(75, 80), (90, 77)])
    out = levels(crop.centre_crop(*batch.images_and_sizes, 64, 70))

    for image, got in zip(batch.images, out, strict=True):
        height, width = (side * 70 // min(image.shape[:2]) for side in image.shape[:2])
        top, left = round((height - 64) / 2), round((width - 64) / 2)
        expected = resize(image, height, width)[:, top : top + 64, left : left + 64]
        torch.testing.assert_close(got, expected, atol=0.02, rtol=0)


def test_a_centre_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="size 65 is larger than resize 64"):
        crop.centre_crop(*random_batch().images_and_sizes, 65, 64)


@pytest.mark.parametrize("padding", ["zero", "edge"])
def test_a_shift_is_padding_and_cutting(padding: crop.Padding) -> None:
    batch = random_batch([(32, 32)] * 40 + [(36, 40), (20, 24)])
    draws = torch.rand(42, crop.SHIFT_DRAWS)
    out = levels(crop.shift(*batch.images_and_sizes, draws, 32, 3, padding))

    mode = {"zero": "constant", "edge": "edge"}[padding]
    for image, got, draw in zip(batch.images, out, draws.tolist(), strict=True):
        padded = np.pad(image.numpy(), ((20, 20), (20, 20), (0, 0)), mode)  # type: ignore[call-overload]
        top, left = (
            20 + (side - 32) // 2 + int(part * 7) - 3
            for side, part in zip(image.shape[:2], draw[:2], strict=True)
        )
        expected = padded[top : top + 32, left : left + 32].transpose(2, 0, 1)
        expected = expected[:, :, ::-1] if draw[2] < 0.5 else expected
        assert np.abs(got.numpy() - expected).max() < 0.01


def test_every_shift_is_equally_likely() -> None:
    image = torch.zeros(9, 9, 3, dtype=torch.uint8)
    image[4, 4] = 255
    batch = batch_of([image] * 3000)
    torch.manual_seed(2)
    out = levels(crop.shift(*batch.images_and_sizes, torch.rand(3000, 3), 9, 2))[:, 0]

    positions = out.flatten(1).argmax(1)
    counts = torch.bincount(positions, minlength=81).view(9, 9)
    assert counts[2:7, 2:7].sum() == 3000
    assert stats.chisquare(counts[2:7, 2:7].flatten().numpy()).pvalue > 1e-3


def random_crop_of(batch: Batch, draws: Tensor) -> Tensor:
    return crop.random_resized_crop(*batch.images_and_sizes, draws, size=16)


def centre_of(batch: Batch, draws: Tensor) -> Tensor:
    return crop.centre_crop(*batch.images_and_sizes, size=28, resize=33)


def shifted(batch: Batch, draws: Tensor) -> Tensor:
    return crop.shift(*batch.images_and_sizes, draws, size=32, max_shift=4)


CROPS = (random_crop_of, centre_of, shifted)


@pytest.mark.parametrize("function", CROPS)
def test_images_do_not_leak_into_each_other(function: Callable[[Batch, Tensor], Tensor]) -> None:
    """Images of one colour keep it, whatever their neighbours, apart from black padding."""
    colours = [torch.full((*size, 3), 20 + 35 * k).byte() for k, size in enumerate(SIZES)]
    batch = batch_of(colours)
    out = levels(function(batch, torch.rand(len(SIZES), crop.CROP_DRAWS)))

    for number, got in enumerate(out):
        allowed = torch.tensor([20.0 + 35 * number] + [0.0] * (function is shifted))
        assert (got[..., None] - allowed).abs().amin(-1).max() < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_result_is_channels_last_in_the_type_asked_for(dtype: torch.dtype) -> None:
    batch, draws = random_batch(), torch.rand(len(SIZES), crop.CROP_DRAWS)
    for out in (
        crop.random_resized_crop(*batch.images_and_sizes, draws, size=16, dtype=dtype),
        crop.centre_crop(*batch.images_and_sizes, size=16, resize=16, dtype=dtype),
        crop.shift(*batch.images_and_sizes, draws, size=16, max_shift=2, dtype=dtype),
    ):
        assert out.dtype == dtype
        assert out.is_contiguous(memory_format=torch.channels_last)


def test_all_compile_as_one_graph() -> None:
    """It is traced as one graph; the compiled code is tested on accelerators."""
    batch, draws = random_batch(), torch.rand(len(SIZES), crop.CROP_DRAWS)
    for function in CROPS:
        compiled = torch.compile(partial(function, batch), fullgraph=True, backend="eager")
        # Equal to the bit: this back end runs the operators of the graph one by one.
        assert torch.equal(compiled(draws), function(batch, draws))
