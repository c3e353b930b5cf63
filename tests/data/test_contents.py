"""Data is known by the content of its samples, and no sample is read that is not the packed one."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.data_climate import year_folder
from tests.support.data_images import image_folder, picture, save
from vflops.data import content_check
from vflops.data.climate import pack_years
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.content_hash import content_hash, count_leaks, values_digest, values_header
from vflops.data.images.pack_images import pack
from vflops.data.images.packed_images import PackedImages, PackedImageSplit
from vflops.data.packed_folder import PackedFolder
from vflops.data.packed_index import INDEX
from vflops.data.split_table import write_table
from vflops.errors import CheckFailed, FolderError, UsageError
from vflops.record.formats.job import DataFacts
from vflops.workloads import packed_data
from vflops.workloads.image_classification.data import JobImages
from vflops.workloads.packed_data import verify_unchanged


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> PackedImages:
    folder = tmp_path_factory.mktemp("images")
    return pack(image_folder(folder / "pictures"), folder / "packed", short_side=16, workers=1)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> PackedFrames:
    folder = tmp_path_factory.mktemp("frames")
    return pack_years.pack(year_folder(folder / "years"), folder / "packed", workers=1)


@pytest.fixture
def copied(images: PackedImages, tmp_path: Path) -> PackedImages:
    return PackedImages.open(Path(shutil.copytree(images.path, tmp_path / "copy")))


def read_all(split: PackedImageSplit) -> None:
    out = np.empty(len(split) * int(split.sizes_bytes.max()), np.uint8)
    split.read(range(len(split)), out)


def without_contents(folder: PackedFolder[Any]) -> None:
    """Make the folder one that an earlier version packed."""
    index = json.loads((folder.path / INDEX).read_text())
    for split in index.pop("contents").values():
        (folder.path / split["digests"]["file"]).unlink()
    (folder.path / INDEX).write_text(json.dumps(index))


def facts_of(images: PackedImages) -> DataFacts:
    return DataFacts(
        path=str(images.path),
        synthetic=False,
        fingerprint=images.fingerprint,
        contents=packed_data.split_contents(images),
        train=12,
        validation=4,
    )


def put_validation_into_training(images: PackedImages) -> None:
    """Overwrite training images by images for validation, which have the same size here."""
    shard = images.path / "train-00000.bin"
    stolen = (images.path / "val-00000.bin").read_bytes()
    with shard.open("r+b") as file:
        file.seek(3 * int(images.split("train").sizes_bytes[0]))
        file.write(stolen)


def test_the_content_hash_is_that_of_the_sorted_digests_of_all_samples(
    images: PackedImages,
) -> None:
    split = images.split("train")
    digests = []
    for number in range(len(split)):
        image = split.image(number)
        header = f"uint8 {image.shape[0]}x{image.shape[1]}x3\n".encode()
        values = hashlib.sha256(header + image.tobytes()).digest()
        label = int(split.labels[number]).to_bytes(8, "little")
        digests.append(hashlib.sha256(values + label).digest())
    assert images.contents["train"] == hashlib.sha256(b"".join(sorted(digests))).hexdigest()
    stored = (images.path / "train.digests").read_bytes()
    assert len(stored) == 32 * len(split)


def test_names_and_order_do_not_matter_but_labels_do(images: PackedImages, tmp_path: Path) -> None:
    source = image_folder(tmp_path / "other name")
    for split in ("train", "val"):
        for folder in (source / split).iterdir():
            for number, file in enumerate(sorted(folder.iterdir(), reverse=True)):
                file.rename(file.with_name(f"renamed-{number}.jpg"))
    renamed = pack(source, tmp_path / "renamed", short_side=16, workers=1)
    assert renamed.contents == images.contents
    assert renamed.fingerprint != images.fingerprint  # the order in the shards is another
    (source / "train" / "cat").rename(source / "train" / "x")
    (source / "val" / "cat").rename(source / "val" / "x")
    swapped = pack(source, tmp_path / "swapped", short_side=16, workers=1)
    assert swapped.contents["train"] != images.contents["train"]


def test_the_name_of_the_folder_is_not_in_the_fingerprint(
    images: PackedImages, tmp_path: Path
) -> None:
    again = pack(image_folder(tmp_path / "mine"), tmp_path / "p", short_side=16, workers=1)
    assert again.index.origin == "mine" != images.index.origin
    assert again.fingerprint == images.fingerprint
    assert again.contents == images.contents


def test_the_same_samples_in_any_order_have_the_same_hash() -> None:
    digests = np.arange(96, dtype=np.uint8).reshape(3, 32)
    labels = [b"a", b"b", b"c"]
    known = content_hash(digests, labels)
    assert content_hash(digests[::-1], labels[::-1]) == known
    assert content_hash(digests, labels[::-1]) != known
    assert content_hash(digests[:2], labels[:2]) != known
    assert content_hash(digests[[0, 1, 1]], labels) != known


def test_the_shape_of_a_sample_is_hashed() -> None:
    flat, tall = (values_header("uint8", shape) for shape in ((2, 3, 3), (3, 2, 3)))
    assert values_digest(flat, bytes(18)) != values_digest(tall, bytes(18))


def test_leaks_are_counted_from_the_digests() -> None:
    digests = np.arange(160, dtype=np.uint8).reshape(5, 32)
    assert count_leaks(digests[:3], [digests[2:4], digests[:1]]) == 2
    assert count_leaks(digests[:3], [digests[3:]]) == 0


def test_validation_samples_in_a_large_training_shard_are_refused(
    copied: PackedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_data, "_HASHED_BYTES", 0)  # as if it were over 1 GiB
    facts = facts_of(copied)
    put_validation_into_training(copied)
    verify_unchanged(PackedImages, facts)  # sizes and the index are as before
    opened = JobImages(facts)
    read_all(opened.split("val"))
    with pytest.raises(FolderError) as error:
        read_all(opened.split("train"))
    assert error.value.message.startswith(f"sample 3 of train in {copied.path} differs from")
    assert error.value.hint is not None and "pack it again" in error.value.hint


def test_a_changed_label_is_refused(copied: PackedImages) -> None:
    facts, columns = facts_of(copied), dict(copied.split("train").table)
    columns["labels"] = columns["labels"][::-1]
    write_table(copied.path, "train", columns)
    with pytest.raises(FolderError, match=r"train\.npz differs from what was packed"):
        JobImages(facts).split("train")


def test_changed_digests_are_refused(copied: PackedImages) -> None:
    (copied.path / "val.digests").write_bytes(bytes(32 * 4))
    with pytest.raises(FolderError, match=r"val\.digests differs from what was packed"):
        JobImages(facts_of(copied)).split("val")


def test_digests_and_index_that_were_changed_during_a_run_are_refused(
    copied: PackedImages,
) -> None:
    facts = facts_of(copied)
    index = json.loads((copied.path / INDEX).read_text())
    index["contents"]["train"]["sha256"] = "0" * 64
    (copied.path / INDEX).write_text(json.dumps(index))
    with pytest.raises(UsageError, match="has changed since this run began"):
        JobImages(facts).split("train")


def test_samples_are_hashed_only_when_they_are_first_read(
    images: PackedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[bytes] = []

    def count(header: bytes, values: memoryview) -> bytes:
        hashed.append(header)
        return values_digest(header, values)

    monkeypatch.setattr(content_check, "values_digest", count)
    split = images.split("train").compare_contents()
    out = np.empty(len(split) * int(split.sizes_bytes.max()), np.uint8)
    split.read([0, 1, 2], out)
    split.read([1, 2, 3], out)
    assert len(hashed) == 4
    assert split.check is not None and split.check.compared.sum() == 4
    assert split.content_hash() == images.contents["train"]


def test_a_changed_frame_is_refused(frames: PackedFrames, tmp_path: Path) -> None:
    copy = PackedFrames.open(Path(shutil.copytree(frames.path, tmp_path / "copy")))
    split = copy.split("train").compare_contents()
    out = np.empty((2, *copy.index.frame_shape), split.dtype)
    split.read([0, 1], out)
    with (copy.path / "train-00000.bin").open("r+b") as file:
        file.seek(2 * copy.index.stride_bytes)
        file.write(b"\x01\x02\x03")
    with pytest.raises(FolderError, match=r"sample 2 of train in .* differs from what was packed"):
        split.read([1, 2], out)


def test_the_order_of_boxes_does_not_matter(frames: PackedFrames) -> None:
    split = frames.split("train").compare_contents()
    known = split.content_hash()
    assert known == frames.contents["train"]
    split.boxes, split.labels = split.boxes[:, ::-1], split.labels[:, ::-1]
    assert split.content_hash() == known
    split.labels = np.where(split.labels >= 0, 1 - split.labels.clip(0, 1), -1)
    assert split.content_hash() != known


@pytest.mark.parametrize("kind", ["images", "frames"])
def test_older_data_gets_the_digests_that_packing_writes_now(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    packed: PackedFolder[Any] = request.getfixturevalue(kind)
    path = Path(shutil.copytree(packed.path, tmp_path / "copy"))
    without_contents(packed.open(path))
    older = packed.open(path)
    assert (older.contents, older.fingerprint) == ({}, packed.fingerprint)
    assert older.split("train").compare_contents().check is None
    newer = packed_data.intact(older)
    assert newer.contents == packed.contents
    assert (path / INDEX).read_bytes() == (packed.path / INDEX).read_bytes()
    assert (path / "train.digests").read_bytes() == (packed.path / "train.digests").read_bytes()


def test_large_older_data_is_used_without_digests(
    copied: PackedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_data, "_HASHED_BYTES", 0)
    without_contents(copied)
    older = packed_data.intact(PackedImages.open(copied.path))
    assert older.contents == {}
    opened = JobImages(facts_of(older))
    read_all(opened.split("train"))
    assert opened.read_splits() == {}


def test_large_synthetic_data_of_an_older_version_gets_digests_once_it_is_verified(
    copied: PackedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_data, "_HASHED_BYTES", 0)
    _edit(copied.path, lambda index: index.update(synthetic=True))
    without_contents(PackedImages.open(copied.path))
    older = PackedImages.open(copied.path)
    assert packed_data.intact(older).contents == copied.contents
    without_contents(PackedImages.open(copied.path))
    put_validation_into_training(copied)
    with pytest.raises(UsageError, match=r"1 of 4 files differ from what was packed: train-00000"):
        packed_data.intact(PackedImages.open(copied.path))


def _rename_digests(index: dict[str, Any]) -> None:
    index["contents"]["val"]["sha256"] = "0" * 64


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: put_validation_into_training(PackedImages.open(path)), "sample 3 of train"),
        (lambda path: _edit(path, _rename_digests), "content hash of val that is not that of"),
    ],
)
def test_verifying_contents_reads_every_sample(
    copied: PackedImages, harm: Callable[[Path], None], message: str
) -> None:
    copied.verify_contents()
    harm(copied.path)
    with pytest.raises((FolderError, CheckFailed), match=message):
        PackedImages.open(copied.path).verify_contents()


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    index = json.loads((path / INDEX).read_text())
    change(index)
    (path / INDEX).write_text(json.dumps(index))


def test_equal_pixels_in_files_of_other_bytes_are_a_leak(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "pictures")
    same = picture(4242)
    save(source / "train" / "cat" / "same.png", same)
    same.save(source / "val" / "dog" / "same.png", compress_level=0)
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    found = packed.index.duplicates
    assert found is not None and (found.leaked, found.contradictory) == (1, 1)
