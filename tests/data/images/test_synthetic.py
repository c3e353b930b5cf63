from __future__ import annotations

import errno
import json
import multiprocessing as mp
import os
import subprocess
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from vflops.data.images import synthetic_images
from vflops.data.images.drawing import Recipe, draw
from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.packed_images import PackedImages
from vflops.data.synthetic_folder import MARK
from vflops.errors import Interrupted, UsageError

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]
RECIPE = Recipe(classes=3, size=16)


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def all_images(packed: PackedImages, split: str) -> NDArray[np.uint8]:
    images = packed.split(split)
    return np.stack([images.image(number) for number in range(len(images))])


def test_a_folder_holds_what_was_drawn(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = synthetic_images.write_folder(
        RECIPE, tmp_path / "set", 20, 7, on_progress=lambda *done: seen.append(done)
    )

    folder = ImageFolder.open(path)
    assert folder.classes == synthetic_images.class_names(RECIPE)
    assert not folder.empty_classes and not folder.missing_from_val and not folder.only_in_val
    for split, count in ((folder.train, 20), (folder.val, 7)):
        images, labels = draw(RECIPE, split.name, 0, count)
        assert len(split) == count
        for file, label in zip(split.files, folder.labels(split), strict=True):
            index = int(Path(file).stem)
            assert label == labels[index]
            np.testing.assert_array_equal(np.asarray(Image.open(path / file)), images[index])
    assert seen[-1] == (27, 27)
    assert not (tmp_path / "set.partial").exists()


@pytest.mark.parametrize(("format", "suffix"), [("jpeg", ".jpg"), ("webp", ".webp")])
def test_other_formats_come_close(
    tmp_path: Path, format: synthetic_images.Format, suffix: str
) -> None:
    recipe = Recipe(classes=3, size=64, noise=0.0)
    path = synthetic_images.write_folder(recipe, tmp_path / "set", 6, 3, format)

    images, _ = draw(recipe, "train", 0, 6)
    for file in ImageFolder.open(path).train.files:
        assert file.endswith(suffix)
        got = np.asarray(Image.open(path / file)).astype(float)
        assert np.abs(got - images[int(Path(file).stem)]).mean() < 4


def test_a_stopped_making_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic_images.write_folder(RECIPE, tmp_path / "whole", 20, 7)
    monkeypatch.setattr(synthetic_images, "_CHUNK_PIXELS", 5 * 16 * 16)

    def stop(done: int, total: int) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="1 of 6 groups"):
        synthetic_images.write_folder(RECIPE, tmp_path / "set", 20, 7, on_progress=stop)
    assert not (tmp_path / "set").exists()
    left = tmp_path / "set.partial" / "train" / "class-0000" / "0000000.png"
    before = left.stat().st_mtime_ns

    with pytest.raises(UsageError, match="something other than these images"):
        synthetic_images.write_folder(Recipe(classes=3, size=17), tmp_path / "set", 20, 7)
    path = synthetic_images.write_folder(RECIPE, tmp_path / "set", 20, 7)
    assert tree(path) == tree(whole)
    assert (path / "train" / "class-0000" / "0000000.png").stat().st_mtime_ns == before


def test_packed_images_are_what_was_drawn(tmp_path: Path) -> None:
    packed = synthetic_images.pack(RECIPE, tmp_path / "packed", 20, 7)

    assert packed.index.synthetic
    assert packed.index.recipe == {**RECIPE.as_dict(), "images": {"train": 20, "val": 7}}
    assert packed.verify() > 27 * 16 * 16 * 3
    for split, count in (("train", 20), ("val", 7)):
        images, labels = draw(RECIPE, split, 0, count)
        np.testing.assert_array_equal(all_images(packed, split), images)
        np.testing.assert_array_equal(packed.split(split).labels, labels)


def test_packed_bytes_do_not_depend_on_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic_images, "images_per_shard", lambda recipe: 6)
    alone = synthetic_images.pack(RECIPE, tmp_path / "alone", 20, 7, workers=1)
    together = synthetic_images.pack(RECIPE, tmp_path / "together", 20, 7, workers=2)

    assert len(alone.index.splits["train"].shards) == 4
    assert tree(alone.path) == tree(together.path)


def test_stopped_packing_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_images, "images_per_shard", lambda recipe: 6)
    whole = synthetic_images.pack(RECIPE, tmp_path / "whole", 20, 7)

    def stop(done: int, total: int) -> None:
        if done > 12:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="2 of 6 shards"):
        synthetic_images.pack(RECIPE, tmp_path / "set", 20, 7, on_progress=stop)
    shard = tmp_path / "set.partial" / "train-00000.bin"
    kept = shard.stat().st_mtime_ns
    (tmp_path / "set.partial" / "train-00001.bin").write_bytes(b"damaged")

    packed = synthetic_images.pack(RECIPE, tmp_path / "set", 20, 7)
    assert tree(packed.path) == tree(whole.path)
    assert (packed.path / shard.name).stat().st_mtime_ns == kept


def test_the_cache_is_filled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    path = synthetic_images.cached_images(RECIPE, 20, 7)
    before = (path / "index.json").stat().st_mtime_ns

    assert synthetic_images.cached_images(RECIPE, 20, 7) == path
    assert (path / "index.json").stat().st_mtime_ns == before
    assert synthetic_images.cached_images(RECIPE, 21, 7) != path
    assert synthetic_images.cached_images(Recipe(classes=3, size=16, seed=2), 20, 7) != path
    assert len(list((tmp_path / "cache").iterdir())) == 3


def fill(cache: str, barrier: Barrier, result: mp.Queue[tuple[str, bool]]) -> None:
    os.environ["VFLOPS_CACHE"] = cache
    seen: list[tuple[int, int]] = []
    barrier.wait(60)
    path = synthetic_images.cached_images(
        Recipe(classes=3, size=16), 400, 70, lambda *done: seen.append(done)
    )
    result.put((str(path), bool(seen)))


def test_of_two_processes_one_fills_the_cache_and_the_other_waits(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    barrier, result = context.Barrier(2), context.Queue()
    cache = tmp_path / "cache"
    both = [context.Process(target=fill, args=(str(cache), barrier, result)) for _ in range(2)]
    for process in both:
        process.start()
    results = [result.get(timeout=60) for _ in both]
    paths = {path for path, _ in results}
    for process in both:
        process.join(60)

    assert [process.exitcode for process in both] == [0, 0]
    assert sorted(has_drawn for _, has_drawn in results) == [False, True]
    assert [str(path) for path in cache.iterdir()] == [*paths]
    PackedImages.open(Path(*paths)).verify()


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for make in (synthetic_images.write_folder, synthetic_images.pack):
        with pytest.raises(UsageError, match="is not empty"):
            make(RECIPE, tmp_path / "full", 20, 7)
        with pytest.raises(UsageError, match="2 training images for 3 classes"):
            make(RECIPE, tmp_path / "new", 2, 7)
        with pytest.raises(UsageError, match="0 validation images"):
            make(RECIPE, tmp_path / "new", 20, 0)
    with pytest.raises(UsageError, match="format is 'gif'"):
        synthetic_images.write_folder(RECIPE, tmp_path / "new", 20, 7, "gif")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(Exception, match="No space left on device"):
        synthetic_images.write_folder(RECIPE, tmp_path / "set", 20, 7)


def test_the_command_makes_a_folder_that_passes_its_check(vflops: Vflops, tmp_path: Path) -> None:
    options = ("--classes", 4, "--size", 16, "--train", 40, "--val", 8, "--format", "webp")
    made = vflops("data", "synth", "image-classification", "shapes", *options)

    assert made.returncode == 0, made.stderr
    assert "40 images for training, 8 for validation" in made.stdout
    assert "data check shapes" in made.stderr
    about = json.loads((tmp_path / "shapes" / MARK).read_text())
    assert about["classes"] == 4 and about["format"] == "webp"
    checked = vflops("data", "check", "shapes")
    assert checked.returncode == 0, checked.stderr

    wrong = vflops("data", "synth", "image-classification", "other", "--classes", 1)
    assert wrong.returncode == 2
    assert "classes is 1" in wrong.stderr and "from 2 to 10000" in wrong.stderr
