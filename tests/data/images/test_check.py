"""The check finds every inserted fault, and nothing else."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.support.data_images import every_kind, image_folder, picture, save, spoil
from vflops.cli.train.data import image_data
from vflops.data.images.check_images import ImageReport, check
from vflops.data.images.image_folder import ImageFolder
from vflops.errors import CheckFailed
from vflops.workloads.packed_data import MAX_AUTO_PACK_BYTES

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def look(path: Path, workers: int = 1) -> ImageReport:
    return check(ImageFolder.open(path), workers=workers)


def test_good_images_are_ok(tmp_path: Path) -> None:
    report = look(image_folder(tmp_path, train=5, val=3))
    assert report.ok and report.problems == () and report.notes == ()
    assert report.splits["train"].by_class == {"cat": 5, "dog": 5}
    assert report.splits["val"].readable == 6
    assert report.splits["train"].modes == {"RGB": 10}


def test_every_bad_file_is_named_with_its_reason(tmp_path: Path) -> None:
    bad = spoil(image_folder(tmp_path))
    report = look(tmp_path, workers=2)
    assert not report.ok
    actual = {one.file: one.reason for one in report.unreadable}
    assert report.zero_byte == ("train/cat/nothing.jpg",)
    assert actual.keys() == bad.keys() - set(report.zero_byte)
    for file, reason in actual.items():
        assert bad[file].lower() in reason.lower()
    train = report.splits["train"]
    assert train.images - train.readable == len(bad)
    assert report == look(tmp_path, workers=1)


def test_formats_modes_and_sizes_as_pillow_has_them(tmp_path: Path) -> None:
    image_folder(tmp_path, train=1, val=1)
    paths = [*every_kind(tmp_path / "train" / "dog"), tmp_path / "train/dog/000.jpg"]
    report = look(tmp_path)
    images = [Image.open(path) for path in [*paths, tmp_path / "train/cat/000.jpg"]]
    train = report.splits["train"]
    assert report.ok
    assert train.modes == {
        mode: sum(image.mode == mode for image in images) for mode in {i.mode for i in images}
    }
    widths = sorted(image.width for image in images)
    assert train.width is not None
    assert (train.width.min, train.width.max) == (widths[0], widths[-1])
    assert train.width.median == widths[(len(widths) - 1) // 2]
    assert "packing converts to RGB" in report.notes[0]


def test_classes_that_do_not_match_are_named(tmp_path: Path) -> None:
    image_folder(tmp_path)
    save(tmp_path / "val/owl/1.jpg", picture(1))
    (tmp_path / "train/eel").mkdir()
    shutil.rmtree(tmp_path / "val/dog")
    report = look(tmp_path)
    assert report.only_in_val == ("owl",)
    assert report.empty_classes == ("eel",)
    assert report.missing_from_val == ("dog", "eel")
    assert [problem.split(":")[0] for problem in report.problems] == [
        "1 class of train has no image",
        "1 class is in val but not in train",
    ]
    assert report.notes == ("1 class has no image in val: dog",)


def test_a_val_image_that_is_in_train_is_a_leak(tmp_path: Path) -> None:
    image_folder(tmp_path)
    shutil.copy(tmp_path / "train/dog/003.jpg", tmp_path / "val/cat/other-name.jpg")
    shutil.copy(tmp_path / "train/dog/003.jpg", tmp_path / "train/cat/twice.jpg")
    report = look(tmp_path)
    assert not report.ok
    assert [(leak.val, leak.train) for leak in report.leaks] == [
        ("val/cat/other-name.jpg", "train/cat/twice.jpg")
    ]


def test_an_image_too_large_to_decode_is_refused(tmp_path: Path) -> None:
    image_folder(tmp_path)
    bomb = save(tmp_path / "train/cat/bomb.png", picture(1))
    data = bytearray(bomb.read_bytes())
    data[16:24] = struct.pack(">II", 20_000, 20_000)  # the size in the header, then its checksum
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    bomb.write_bytes(data)
    report = look(tmp_path)
    assert [one.file for one in report.unreadable] == ["train/cat/bomb.png"]
    assert "decompression bomb" in report.unreadable[0].reason


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    folder = ImageFolder.open(image_folder(tmp_path, train=5, val=3))
    calls: list[tuple[int, int]] = []
    check(folder, workers=1, on_progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (16, 16)
    assert calls == sorted(calls)


@pytest.mark.parametrize("spoilt", [False, True])
def test_the_command_exits_by_the_verdict(tmp_path: Path, vflops: Vflops, spoilt: bool) -> None:
    image_folder(tmp_path / "images")
    if spoilt:
        spoil(tmp_path / "images")
    done = vflops("data", "check", "images", "--json", "--workers", 1)
    report = ImageReport.parse(json.loads(done.stdout), tmp_path)
    assert done.returncode == (1 if spoilt else 0)
    assert report.ok is not spoilt
    if spoilt:
        assert "files cannot be decoded: train/cat/cut.jpg" in done.stderr
        shown = vflops("data", "check", "images", "--workers", 1)
        assert "train/cat/nothing.jpg: the file is empty" in shown.stdout
        assert "vflops data pack images --policy skip" in shown.stderr
        return
    shown = vflops("data", "check", "images", "--workers", 1)
    assert shown.stdout.endswith("\nno errors\n")
    assert "\nor:   vflops run image-classification --profile" in shown.stderr


def test_skipping_is_not_offered_if_a_leak_would_stay(tmp_path: Path) -> None:
    image_folder(tmp_path)
    (tmp_path / "train/cat/nothing.jpg").write_bytes(b"")
    shutil.copy(tmp_path / "train/dog/003.jpg", tmp_path / "val/dog/other-name.jpg")
    with pytest.raises(CheckFailed, match=r"1 file is empty: .*; 1 image of val is also") as caught:
        image_data.check(tmp_path, json=True, workers=1)
    assert caught.value.hint == "fix what is listed above"


def test_small_folders_are_those_that_a_run_packs() -> None:
    assert image_data.MAX_UNPACKED_BYTES == MAX_AUTO_PACK_BYTES


def test_an_image_in_two_classes_is_named(tmp_path: Path) -> None:
    root = image_folder(tmp_path)
    shutil.copy(root / "train/cat/001.jpg", root / "train/dog/wrong.jpg")
    report = look(root)
    (pair,) = report.contradictions
    assert (pair.sample, pair.same_as) == ("train/dog/wrong.jpg", "train/cat/001.jpg")
    assert report.problems == ("1 image occurs in two classes: train/dog/wrong.jpg",)


def test_packing_is_not_proposed_for_a_split_without_a_readable_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = image_folder(tmp_path, train=2, val=1)
    first, *others = sorted(path for path in (source / "val").rglob("*.*"))
    for path in others:
        path.write_bytes(b"no image")
    with pytest.raises(CheckFailed) as caught:
        image_data.check(source, json=True, workers=1)
    assert "--policy skip" in str(caught.value.hint)
    first.write_bytes(b"no image")
    with pytest.raises(CheckFailed) as caught:
        image_data.check(source, json=True, workers=1)
    assert caught.value.hint == "fix what is listed above"
