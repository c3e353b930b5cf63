"""Rescaled packed images are, byte for byte, what packing the files for the recipe gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.data_images import contents, image_folder, picture, save
from vflops.data.images import pack_images, rescale_images
from vflops.data.images.pack_images import pack
from vflops.data.images.rescale_images import rescale, rescaled_bytes, short_sides

SIZES = ((28, 28), (20, 37), (61, 48), (100, 40))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = image_folder(tmp_path / "images", train=1, val=1)
    for number, size in enumerate(SIZES):
        save(root / "train" / "dog" / f"1{number}.png", picture(number, size))
    return root


@pytest.mark.parametrize("enlarge", [False, True])
def test_it_gives_the_folder_of_packing_the_files(
    tmp_path: Path, source: Path, enlarge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pack_images, rescale_images):
        monkeypatch.setattr(module, "images_per_shard", lambda short_side: 2)
    large = pack(source, tmp_path / "large", short_side=256, workers=1)
    assert short_sides(large) == (20, 48)
    new = rescale(large, tmp_path / "new", short_side=32, enlarge=enlarge, workers=1)
    direct = pack(source, tmp_path / "direct", short_side=32, enlarge=enlarge, workers=1)
    assert new.fingerprint == direct.fingerprint
    assert new.verify() == direct.verify()
    assert short_sides(new) == ((32, 32) if enlarge else (20, 32))
    pixels = sum(new.split(name).sizes_bytes.sum() for name in ("train", "val"))
    assert rescaled_bytes(large, 32, enlarge=enlarge) == pixels


def test_skipped_images_stay_listed_and_thin_ones_follow_the_policy(
    tmp_path: Path, source: Path
) -> None:
    (source / "val/cat/bad.png").write_bytes(b"no image")
    packed = pack(source, tmp_path / "packed", short_side=64, workers=1, policy="skip")
    new = rescale(packed, tmp_path / "new", short_side=16, workers=1)
    assert [image.file for image in new.index.splits["val"].skipped] == ["val/cat/bad.png"]
    assert new.index.duplicates == packed.index.duplicates is not None


def test_a_part_that_is_done_is_kept(tmp_path: Path, source: Path) -> None:
    packed = pack(source, tmp_path / "packed", short_side=64, workers=1)
    first = contents(rescale(packed, tmp_path / "new", short_side=16, workers=1).path)
    assert contents(rescale(packed, tmp_path / "new", short_side=16, workers=1).path) == first


def test_reducing_twice_stays_within_the_rounding_of_a_linear_ramp(tmp_path: Path) -> None:
    """A triangle filter reproduces a linear ramp, so only rounding remains: half a level each."""
    source = image_folder(tmp_path / "images", train=1, val=1)
    ramp = np.repeat(np.linspace(0, 255, 512)[None, :], 512, axis=0).round().astype(np.uint8)
    from PIL import Image

    save(source / "train/cat/000.png", Image.fromarray(ramp).convert("RGB"))
    (source / "train/cat/000.jpg").unlink()
    twice = rescale(
        pack(source, tmp_path / "256", short_side=256, workers=1),
        tmp_path / "twice",
        short_side=32,
        workers=1,
    )
    once = pack(source, tmp_path / "once", short_side=32, workers=1)
    first, second = (images.split("train").image(0).astype(int) for images in (twice, once))
    inside = np.s_[:, 1:-1]  # at the edges, the filter is cut off
    assert np.abs(first - second)[inside].max() <= 1
