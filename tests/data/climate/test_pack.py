"""Packing preserves the years, always gives the same bytes, and resumes after a kill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.data_climate import (
    HEIGHT,
    WIDTH,
    boxes,
    frames,
    set_value,
    write_year,
    year_folder,
)
from tests.support.data_images import contents
from vflops.cli.train.data import climate_data
from vflops.data.climate import channel_statistics
from vflops.data.climate import pack_years as packing
from vflops.data.climate.channel_statistics import STATISTICS, Statistics, statistics
from vflops.data.climate.check_years import ClimateReport, check
from vflops.data.climate.pack_years import pack
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.year_split import split_years
from vflops.data.climate.years import ClimateYears
from vflops.data.destination import free_bytes
from vflops.data.packing import make_shards
from vflops.data.synthetic_folder import MARK
from vflops.errors import CheckFailed, Interrupted, UsageError
from vflops.record.files import atomic

NO_SPLIT: dict[str, str | None] = {"train": None, "validation": None, "test": None}
SMALL = 3 * 32_768  # three half frames of 24 x 40


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shards of three frames: five frames per year are two shards."""
    monkeypatch.setattr("vflops.data.climate.frame_encoding.SHARD_BYTES", SMALL)


@pytest.mark.usefixtures("small_shards")
def test_frames_boxes_and_statistics_of_the_reference_split(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    packed = pack(source, tmp_path / "packed", layout="raw", workers=1)
    index = packed.index
    assert index.years == {"train": (1979, 1980), "validation": (1981,), "test": (1982,)}
    assert index.reference_split and not index.synthetic and index.origin == "years"
    train = packed.split("train")
    assert len(train) == 10 and len(packed.split("test")) == 5
    exact = np.concatenate([frames(5, 1979), frames(5, 1980)])
    for number in range(10):
        np.testing.assert_array_equal(train.fields(number), exact[number])
    np.testing.assert_array_equal(packed.split("validation").fields(4), frames(5, 1981)[4])
    rows = boxes(5, 1980)[2, :3]
    np.testing.assert_array_equal(train.boxes[7, :3], rows[:, [1, 0, 3, 2]])
    assert train.labels[7].tolist() == [*rows[:, 4].tolist(), *[-1] * 12]
    wide = exact.astype(np.float64)
    assert np.allclose(index.mean, wide.mean(axis=(0, 2, 3)), rtol=1e-12, atol=0)
    assert np.allclose(index.std, wide.std(axis=(0, 2, 3)), rtol=1e-12, atol=0)
    assert index.splits["train"].boxes == 30
    packed.verify()


@pytest.mark.usefixtures("small_shards")
def test_half_is_in_units_near_mean_and_spread(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    index = pack(source, tmp_path / "packed", workers=1).index
    assert index.layout == "half"
    assert np.allclose(np.array(index.scale) / index.std, 1, atol=0.2)
    assert (np.abs(np.array(index.offset) - index.mean) < 0.2 * np.array(index.std)).all()
    split = pack(source, tmp_path / "packed", workers=1).split("train")
    exact = frames(5, 1979)[0]
    error = np.abs(split.fields(0) - exact) / np.array(index.std)[:, None, None]
    assert error.max() < 0.01


@pytest.mark.usefixtures("small_shards")
def test_workers_and_storage_do_not_show(tmp_path: Path) -> None:
    plain = year_folder(tmp_path / "a" / "years")
    chunked = year_folder(
        tmp_path / "b" / "years", chunks=(3, 2, 5, WIDTH), compression="gzip", shuffle=True
    )
    one = pack(plain, tmp_path / "one", workers=1)
    two = pack(plain, tmp_path / "two", workers=2)
    assert contents(one.path) == contents(two.path)
    other = pack(chunked, tmp_path / "other", workers=1)
    assert other.fingerprint == one.fingerprint
    left = ["a", "b", "one", "other", "two"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


@pytest.mark.parametrize(("workers", "value"), [(1, np.nan), (2, np.inf)])
@pytest.mark.usefixtures("small_shards")
def test_a_value_that_is_not_finite_is_named(tmp_path: Path, workers: int, value: float) -> None:
    source = year_folder(tmp_path / "years")
    set_value(source / "climo_1980.h5", "images", {(3, 6, 2, 1): value, (3, 9, 0, 0): value})
    with pytest.raises(UsageError) as caught:
        pack(source, tmp_path / "packed", workers=workers)
    says = "climo_1980.h5: frame 3: NaN or infinite values in TMQ, U850"
    assert says in caught.value.message and "--policy skip" in str(caught.value.hint)
    assert not (tmp_path / "packed").exists()
    packed = pack(source, tmp_path / "packed", workers=workers, policy="skip")
    (left,) = packed.index.splits["train"].left_out
    assert (left.file, left.frame) == ("climo_1980.h5", 3)
    train = packed.split("train")
    assert len(train) == 9
    labels = boxes(5, 1980)[4, :3, 4]
    assert train.labels[8, :3].tolist() == labels.tolist(), "boxes follow their frame"
    scale = np.array(packed.index.std)[:, None, None]
    assert (np.abs(train.fields(8) - frames(5, 1980)[4]) < 0.01 * scale).all()
    whole = np.concatenate([frames(5, 1979), frames(5, 1980)[[0, 1, 2, 4]]]).astype(np.float64)
    np.testing.assert_allclose(packed.index.mean, whole.mean(axis=(0, 2, 3)), rtol=1e-12)
    with pytest.raises(UsageError, match="packed without 1 of its frames"):
        pack(source, tmp_path / "packed", workers=1)


def damage_chunk(path: Path, frame: int) -> None:
    """Damage the compressed bytes of a frame that is a chunk."""
    with h5py.File(path, "r") as file:
        offset = file["images"].id.get_chunk_info_by_coord((frame, 0, 0, 0)).byte_offset
    with path.open("r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff" * 200)


@pytest.mark.usefixtures("small_shards")
def test_frames_that_cannot_be_decompressed(tmp_path: Path) -> None:
    chunks = (1, 16, HEIGHT, WIDTH)
    source = year_folder(tmp_path / "years", chunks=chunks, compression="gzip")
    damage_chunk(source / "climo_1981.h5", 1)
    damage_chunk(source / "climo_1981.h5", 4)
    with pytest.raises(UsageError, match=r"cannot read frame 1 of .*climo_1981.h5: HDF5 says") as e:
        pack(source, tmp_path / "packed", workers=1)
    assert "--policy skip" in str(e.value.hint)
    packed = pack(source, tmp_path / "packed", workers=1, policy="skip", layout="half")
    split = packed.index.splits["validation"]
    assert [one.frame for one in split.left_out] == [1, 4] and split.frames == 3
    report = check(source, workers=1)
    assert [(one.file, one.frame) for one in report.bad_frames] == [
        ("climo_1981.h5", 1),
        ("climo_1981.h5", 4),
    ]


def test_bad_boxes_fail_before_anything_is_packed(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", number=12)
    for column, value in enumerate((3, WIDTH - 8, 9, WIDTH + 2, 1)):
        set_value(source / "climo_1979.h5", "boxes", {(7, 1, column): value})
    set_value(source / "climo_1979.h5", "boxes", {(9, 0, 2): 0, (9, 0, 0): 0})
    with pytest.raises(UsageError) as caught:
        pack(source, tmp_path / "packed", workers=1)
    says = f"climo_1979.h5: frame 7: box [3, 32, 9, {WIDTH + 2}, 1] reaches out of the frame"
    assert says in caught.value.message and "--policy skip" in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == [source]
    packed = pack(source, tmp_path / "packed", workers=1, policy="skip")
    split = packed.index.splits["train"]
    assert [(one.frame, one.reason.rpartition(": ")[2]) for one in split.mended] == [
        (7, "cut at the edge"),
        (9, "dropped"),
    ]
    assert packed.split("train").boxes[7, 1].tolist() == [WIDTH - 8, 3, WIDTH, 9]
    assert split.frames == 24 and split.boxes == 71


def test_an_own_split_is_recorded(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", (1979, 1980))
    with pytest.raises(UsageError, match="reference split needs 3"):
        pack(source, tmp_path / "packed", workers=1)
    split = split_years(source, (1979, 1980), train=(1980,), validation=(1979,))
    packed = pack(source, tmp_path / "packed", split=split, workers=1)
    assert packed.index.years == {"train": (1980,), "validation": (1979,), "test": ()}
    assert not packed.index.reference_split and "test" not in packed.index.splits


def test_synthetic_years_are_marked(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    atomic.write_json(source / MARK, {"seed": 3})
    index = pack(source, tmp_path / "packed", workers=1).index
    assert index.synthetic and index.recipe == {"seed": 3}


def test_a_channel_that_was_lost(tmp_path: Path) -> None:
    source = tmp_path / "years"
    for year in (1979, 1980, 1981):
        images = frames(3, year)
        images[:, 0] = 7
        write_year(source / f"climo_{year}.h5", images, boxes(3, year))
    with pytest.raises(
        UsageError, match=r"channels are constant in all training frames of .*years: PRECT"
    ):
        pack(source, tmp_path / "packed", workers=1)
    report = check(source, workers=1)
    assert report.problems == ("channels are constant: PRECT",)
    for year in (1979, 1980, 1981):  # one frame of each is enough
        images[:, 2] = 101_000  # too large for half precision without an offset
        write_year(source / f"climo_{year}.h5", images, boxes(3, year))
    for layout in ("half", "raw"):
        with pytest.raises(UsageError, match=r"climo_1979.h5: frame 0: one value.* in PSL(?m:$)"):
            pack(source, tmp_path / layout, layout=layout, workers=1)
        with pytest.raises(UsageError, match="no frame of train can be used"):
            pack(source, tmp_path / layout, layout=layout, workers=1, policy="skip")


@pytest.mark.usefixtures("small_shards")
def test_frames_without_weather_are_named_and_can_be_left_out(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", chunks=(1, 16, HEIGHT, WIDTH), compression="gzip")
    with h5py.File(source / "climo_1980.h5", "r+") as file:
        file["images"][1] = 0.0  # allocated by HDF5 but never written
        file["images"][4, 0] = 0.0  # no rain
    with pytest.raises(UsageError, match=r"climo_1980.h5: frame 1: one value .* in PS, PSL"):
        pack(source, tmp_path / "packed", workers=1)
    damage_chunk(source / "climo_1980.h5", 2)
    bad = check(source, workers=1).bad_frames
    index = pack(source, tmp_path / "packed", workers=1, policy="skip").index
    left = index.splits["train"].left_out
    assert bad == left and [one.frame for one in left] == [1, 2]
    assert "one value throughout" in left[0].reason and "cannot be read" in left[1].reason


def test_room_is_asked_for_before_the_start(tmp_path: Path, small_disk: Path) -> None:
    source = year_folder(tmp_path / "years")
    with pytest.raises(UsageError, match=r"packed needs 1.23 MB, .* are free there") as caught:
        pack(source, small_disk / "packed", layout="raw", workers=1)
    assert "--layout half" in str(caught.value.hint)
    assert list(small_disk.iterdir()) == []


SLOW = """
import sys, time
from pathlib import Path
from vflops.data.climate import frame_encoding, pack_years

plain = frame_encoding.FrameEncoding.encode
def slow(self, fields):
    time.sleep(0.03)
    return plain(self, fields)

frame_encoding.SHARD_BYTES = 98304
frame_encoding.FrameEncoding.encode = slow
if __name__ == "__main__":
    pack_years.pack(Path(sys.argv[1]), Path(sys.argv[2]), workers=2)
"""


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("small_shards")
def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", number=20)
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    process = subprocess.Popen([sys.executable, script, source, tmp_path / "packed"])
    partial = tmp_path / "packed.partial"
    wait_until(lambda: len(list(partial.glob(".parts/*.json"))) >= 3)
    with pytest.raises(UsageError, match="in use by process"):
        pack(source, tmp_path / "packed", workers=1)
    process.kill()
    process.wait()
    made = {path.name[:-5]: path.stat().st_mtime_ns for path in partial.glob(".parts/*.json")}
    assert 3 <= len(made) < 28
    with (partial / min(made)).open("r+b") as file:
        file.write(b"\x07")
    damaged = min(made)
    packed = pack(source, tmp_path / "packed", workers=1)
    clean = pack(source, tmp_path / "clean", workers=1)
    assert contents(clean.path) == contents(packed.path)
    for name, time_ns in made.items():
        again = (packed.path / name).stat().st_mtime_ns > time_ns
        assert again == (name == damaged), name


@pytest.mark.usefixtures("small_shards")
def test_an_interrupt_says_how_to_go_on_and_a_mended_file_is_read_again(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")

    def press(done: int, total: int) -> None:
        assert total == 20
        if done >= 14:  # the first shard of 1981 is made
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="of 8 shards are packed") as caught:
        pack(source, tmp_path / "packed", workers=1, on_progress=press)
    assert caught.value.hint == "the same command resumes where it stopped"
    write_year(source / "climo_1981.h5", frames(5, 3), boxes(5, 3))
    packed = pack(source, tmp_path / "packed", workers=1)
    std = np.array(packed.index.std)[:, None, None]
    assert (np.abs(packed.split("validation").fields(0) - frames(5, 3)[0]) < 0.01 * std).all()
    shutil.copytree(source, tmp_path / "again" / "years")
    clean = pack(tmp_path / "again" / "years", tmp_path / "clean", workers=1)
    assert clean.fingerprint == packed.fingerprint


def test_what_is_packed_already_is_left_alone(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    first = pack(source, tmp_path / "packed", workers=1)
    before = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    assert pack(source, tmp_path / "packed", workers=1).fingerprint == first.fingerprint
    assert {path: path.stat().st_mtime_ns for path in first.path.iterdir()} == before
    with pytest.raises(UsageError, match="other years or was packed with other settings"):
        pack(source, tmp_path / "packed", layout="raw", workers=1)
    os.utime(source / "climo_1979.h5", ns=(1, 1))
    with pytest.raises(UsageError, match="source has changed"):
        pack(source, tmp_path / "packed", workers=1)


def test_statistics_are_read_once_and_kept_beside_the_data(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    folder = ClimateYears.open(source)
    calls: list[tuple[int, int]] = []
    progress = lambda done, total: calls.append((done, total))  # noqa: E731
    actual = statistics(folder, (1979, 1981), workers=1, on_progress=progress)
    exact = np.concatenate([frames(5, 1979), frames(5, 1981)]).astype(np.float64)
    np.testing.assert_allclose(actual.mean, exact.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(actual.std, exact.std(axis=(0, 2, 3)), rtol=1e-12)
    assert calls[-1] == (10, 10) and actual.path == source / STATISTICS
    calls.clear()
    again = statistics(folder, (1979, 1981), workers=1, on_progress=progress)
    assert calls == [] and again.mean.tobytes() == actual.mean.tobytes()
    statistics(folder, (1979, 1980, 1981), workers=1, on_progress=progress)
    assert calls[-1] == (5, 5), "only the year that was not known is read"


def test_stale_or_damaged_statistics_count_for_nothing(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    first = statistics(ClimateYears.open(source), (1979, 1980), workers=1)
    text = (source / STATISTICS).read_text()
    for harm in (text[:-40], text.replace('"frames": 5', '"frames": 6'), "[]", ""):
        (source / STATISTICS).write_text(harm)
        assert channel_statistics.valid_statistics(ClimateYears.open(source)) == {}
    write_year(source / "climo_1980.h5", frames(4, 77), boxes(4))
    (source / STATISTICS).write_text(text)
    folder = ClimateYears.open(source)
    assert list(channel_statistics.valid_statistics(folder)) == [1979]
    second = statistics(folder, (1979, 1980), workers=1)
    assert not np.allclose(first.mean, second.mean, rtol=1e-6)
    assert Statistics.read(source / STATISTICS).years[1980].frames == 4


def test_statistics_of_a_read_only_folder_go_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    source = year_folder(tmp_path / "years")
    (source / STATISTICS).mkdir()  # root may write everywhere, but not a file over a folder
    folder = ClimateYears.open(source)
    actual = statistics(folder, (1979,), workers=1)
    assert actual.path.parent == tmp_path / "cache" and actual.path.is_file()
    assert list(channel_statistics.valid_statistics(folder)) == [1979]


def test_packing_keeps_statistics_too(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    index = pack(source, tmp_path / "packed", workers=1).index
    folder = ClimateYears.open(source)
    fresh = channel_statistics.valid_statistics(folder)
    assert sorted(fresh) == [1979, 1980, 1981, 1982]
    joined = channel_statistics.merge(
        [channel_statistics.moments_of(fresh[year]) for year in (1979, 1980)]
    )
    assert tuple(joined.mean.tolist()) == index.mean and tuple(joined.std.tolist()) == index.std


def test_statistics_of_a_bad_frame(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    set_value(source / "climo_1979.h5", "images", {(2, 0, 0, 0): np.nan})
    check(source, workers=1)  # keeps the statistics of the other frames
    with pytest.raises(UsageError, match=r"climo_1979.h5: frame 2: NaN or infinite .* PRECT"):
        statistics(ClimateYears.open(source), (1979,), workers=1)


def test_a_good_folder_is_ok(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    report = check(source, workers=1)
    assert report.ok and not report.problems and not report.notes
    assert (report.height, report.width) == (HEIGHT, WIDTH)
    assert report.reference_split == {
        "train": (1979, 1980),
        "validation": (1981,),
        "test": (1982,),
    }
    year = report.years[1980]
    labels = boxes(5, 1980)[:, :3, 4]
    assert list(year.boxes.values()) == [int((labels == label).sum()) for label in range(4)]
    assert (year.frames, year.readable, year.without_boxes) == (5, 5, 0)
    every = np.concatenate([frames(5, year) for year in range(1979, 1983)]).astype(np.float64)
    np.testing.assert_allclose(report.channels["PS"].mean, every[:, 1].mean(), rtol=1e-12)
    assert check(source, workers=2) == report
    assert ClimateReport.parse(json.loads(report.to_json()), source) == report


def test_everything_bad_is_named(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", number=12)
    (source / "climo_1982.h5").write_bytes(b"")
    set_value(source / "climo_1979.h5", "images", {(4, 15, 3, 3): np.inf})
    set_value(source / "climo_1980.h5", "boxes", {(1, 1, 4): 9})
    shutil.copy(source / "climo_1979.h5", source / "climo_1981.h5")
    report = check(source, workers=1)
    assert not report.ok and len(report.problems) == 4
    assert (
        "climo_1982.h5 is empty" in report.refused[0] and "get the file again" in report.refused[0]
    )
    assert [(one.file, one.frame) for one in report.bad_frames] == [
        ("climo_1979.h5", 4),
        ("climo_1981.h5", 4),
    ]
    assert "ZBOT" in report.bad_frames[0].reason
    (box,) = report.bad_boxes
    assert (box.file, box.frame) == ("climo_1980.h5", 1) and "class 9" in box.reason
    assert len(report.repeated) == 11
    assert (report.repeated[0].file, report.repeated[0].same_file) == (
        "climo_1981.h5",
        "climo_1979.h5",
    )


def test_units_do_not_follow_from_a_bad_frame(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    folder = ClimateYears.open(source)
    good = packing.choose_encoding(folder, (1979, 1980), "half")
    set_value(source / "climo_1979.h5", "images", {(0, 3, 0, 0): np.nan})
    spoilt = packing.choose_encoding(ClimateYears.open(source), (1979, 1980), "half")
    assert np.isfinite(spoilt.offset).all() and (spoilt.scale > 0).all()
    assert not np.array_equal(good.offset, spoilt.offset)


def test_years_of_another_folder_are_not_taken_for_the_same(tmp_path: Path) -> None:
    first, second = year_folder(tmp_path / "a"), year_folder(tmp_path / "b")
    set_value(second / "climo_1980.h5", "images", {(1, 2, 3, 4): 7.0})
    for path in (*first.iterdir(), *second.iterdir()):
        os.utime(path, ns=(1, 1))
    pack(first, tmp_path / "packed", workers=1)
    with pytest.raises(UsageError, match="other years or was packed with other settings"):
        pack(second, tmp_path / "packed", workers=1)
    set_value(first / "climo_1982.h5", "boxes", {(0, 0, 4): 3 - boxes(5, 1982)[0, 0, 4]})
    os.utime(first / "climo_1982.h5", ns=(1, 1))
    with pytest.raises(UsageError, match="source has changed"):
        pack(first, tmp_path / "packed", workers=1)


def test_statistics_of_a_read_only_folder_are_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    source = year_folder(tmp_path / "years")
    statistics(ClimateYears.open(source), (1979,), workers=1)
    plain = Statistics.write

    def read_only(self: Statistics, path: Path) -> None:
        if path.parent == source:
            raise UsageError("read-only")
        plain(self, path)

    monkeypatch.setattr(Statistics, "write", read_only)
    folder = ClimateYears.open(source)
    actual = statistics(folder, (1979, 1980), workers=1)
    assert actual.path.parent == tmp_path / "cache"
    exact = np.concatenate([frames(5, 1979), frames(5, 1980)]).astype(np.float64)
    np.testing.assert_allclose(actual.mean, exact.mean(axis=(0, 2, 3)), rtol=1e-12)
    assert list(channel_statistics.valid_statistics(folder)) == [1979, 1980]


def test_a_destination_that_is_a_link_is_followed(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "empty")
    (tmp_path / "new").symlink_to(tmp_path / "disk" / "new")
    for name in ("link", "new"):
        packed = pack(source, tmp_path / name, workers=1)
        assert (tmp_path / name).is_symlink() and packed.verify()
        assert pack(source, tmp_path / name, workers=1).fingerprint == packed.fingerprint
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["empty", "new"]


def test_here_is_no_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = year_folder(tmp_path / "years")
    (tmp_path / "packed").mkdir()
    monkeypatch.chdir(tmp_path / "packed")
    with pytest.raises(UsageError, match="packed is the current folder") as caught:
        pack(source, Path(), workers=1)  # a replaced current folder would no longer exist
    assert "name a folder inside it" in str(caught.value.hint)
    with pytest.raises(UsageError, match="not a folder of packed frames"):
        PackedFrames.open(Path())


def test_a_destination_that_is_a_mount_point_is_refused_at_once(
    tmp_path: Path, small_disk: Path
) -> None:
    source = year_folder(tmp_path / "years")
    for layout in ("half", "raw"):  # the disk is too small for the second
        with pytest.raises(UsageError, match="small is a mount point") as caught:
            pack(source, small_disk, layout=layout, workers=1)
        assert f"name a folder inside it: {small_disk}/" in str(caught.value.hint)
    assert not (tmp_path / "small.partial").exists()
    assert free_bytes(small_disk) > 1 << 20 >= free_bytes(small_disk / "packed")
    (tmp_path / "link").symlink_to(small_disk / "packed")
    assert free_bytes(tmp_path / "link") == free_bytes(small_disk / "packed")


def test_bad_frames_of_a_sample_do_not_decide_the_units(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", number=12)
    for year in (1979, 1980):
        every: dict[tuple[int, ...], float] = {(frame, 3, 0, 0): np.nan for frame in (0, 3, 6, 9)}
        set_value(source / f"climo_{year}.h5", "images", every)
    index = pack(source, tmp_path / "packed", workers=1, policy="skip").index
    assert index.splits["train"].frames == 16
    assert np.allclose(np.array(index.scale) / index.std, 1, atol=0.2)


def test_a_channel_that_is_flat_in_the_sample_alone(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", number=12)
    for year in (1979, 1980):
        with h5py.File(source / f"climo_{year}.h5", "r+") as file:
            for frame in (0, 3, 6, 9):
                file["images"][frame, 0] = 0.0  # no rain
    index = pack(source, tmp_path / "packed", workers=1).index
    assert 0.1 < index.scale[0] / index.std[0] < 10


@pytest.mark.parametrize("value", [9.96921e36, 1e20, -1e30])
@pytest.mark.usefixtures("small_shards")
def test_fill_values_are_no_weather(tmp_path: Path, value: float) -> None:
    source = year_folder(tmp_path / "years")
    set_value(source / "climo_1980.h5", "images", {(3, 4, 2, 1): value})
    says = "fill values (1e20 or more) in T200"
    (bad,) = check(source, workers=1).bad_frames
    assert (bad.file, bad.frame, bad.reason) == ("climo_1980.h5", 3, says)
    for layout in ("half", "raw"):
        with pytest.raises(UsageError) as caught:
            pack(source, tmp_path / layout, layout=layout, workers=1)
        assert f"climo_1980.h5: frame 3: {says}" in caught.value.message
        index = pack(source, tmp_path / layout, layout=layout, workers=1, policy="skip").index
        assert [one.frame for one in index.splits["train"].left_out] == [3]
        assert index.std[4] < 1


@pytest.mark.filterwarnings("error")
def test_doubles_beyond_single_precision_are_infinite_by_name(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    images = frames(5, 1980).astype(np.float64)
    images[2, 3, 4, 5] = 1e300
    write_year(source / "climo_1980.h5", images, boxes(5, 1980))
    (bad,) = check(source, workers=1).bad_frames
    assert (bad.frame, bad.reason) == (2, "NaN or infinite values in QREFHT")
    with pytest.raises(UsageError, match=r"frame 2: NaN or infinite values in QREFHT"):
        pack(source, tmp_path / "packed", workers=1)


def test_no_split_is_shown_while_a_year_is_refused(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", (1979, 1980, 1981, 1982, 1983))
    (source / "climo_1983.h5").write_bytes(b"")
    report = check(source, workers=1)
    assert report.reference_split is None
    assert any("the reference split is unknown" in note for note in report.notes)


def rewrite(path: Path, seed: int = 3) -> None:
    """Write other weather to a file of the same size, a little later."""
    before = path.stat()
    write_year(path, frames(5, seed), boxes(5, seed))
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("small_shards")
def test_a_year_that_changes_while_it_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    source = year_folder(tmp_path / "years")

    def meanwhile(*given: Any, **options: Any) -> Any:
        if when == "before":
            rewrite(source / "climo_1981.h5")
        made = make_shards(*given, **options)
        rewrite(source / "climo_1981.h5")
        return made

    monkeypatch.setattr(packing, "make_shards", meanwhile)
    with pytest.raises(UsageError, match=r"climo_1981.h5 was changed while it was read") as caught:
        pack(source, tmp_path / "packed", workers=1, policy="skip")
    assert caught.value.hint == "run the same command again when it is complete"
    assert not (tmp_path / "packed").exists()
    monkeypatch.undo()
    packed = pack(source, tmp_path / "packed", workers=1)
    labels = packed.split("validation").labels
    assert labels[:, :3].tolist() == boxes(5, 3)[:, :3, 4].tolist()
    std = np.array(packed.index.std)[:, None, None]
    assert (np.abs(packed.split("validation").fields(4) - frames(5, 3)[4]) < 0.01 * std).all()


def test_a_year_that_changes_while_it_is_checked(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")

    def change(done: int, total: int) -> None:
        if done == total:  # the first year was read long ago
            rewrite(source / "climo_1979.h5")

    with pytest.raises(UsageError, match=r"climo_1979.h5 was changed while it was read"):
        check(source, workers=1, on_progress=change)
    assert not (source / STATISTICS).exists()


def test_a_file_that_takes_the_place_of_another(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    year = ClimateYears.open(source).year(1980)
    pieces = year.source.pieces(0, 5)
    next(pieces)
    write_year(tmp_path / "new.h5", frames(5, 1), boxes(5, 1))
    os.utime(tmp_path / "new.h5", ns=(1, year.time_ns))  # size and time are as before
    (tmp_path / "new.h5").replace(year.path)
    with pytest.raises(UsageError, match="was changed while it was read"):
        list(pieces)
    with pytest.raises(UsageError, match="was changed while it was read"):
        next(year.source.pieces(0, 5))  # before its values are taken for those of the other file
    year.path.unlink()
    with pytest.raises(UsageError, match="was changed while it was read"):
        year.source.require_unchanged()


def test_statistics_of_a_year_that_was_written_again_are_stale(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    statistics(ClimateYears.open(source), (1979, 1980), workers=1)
    rewrite(source / "climo_1980.h5")
    folder = ClimateYears.open(source)
    assert list(channel_statistics.valid_statistics(folder)) == [1979]
    exact = frames(5, 3).astype(np.float64)
    actual = statistics(folder, (1980,), workers=1)
    np.testing.assert_allclose(actual.mean, exact.mean(axis=(0, 2, 3)), rtol=1e-12)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_split_that_loses_all_its_boxes_is_refused(tmp_path: Path, split: str) -> None:
    source = year_folder(tmp_path / "years", (1979, 1980, 1981))
    path = source / {"train": "climo_1979.h5", "validation": "climo_1980.h5"}[split]
    rows = boxes(5)
    rows[1:] = -1
    write_year(path, frames(5), rows)
    set_value(path, "images", {(0, 3, 0, 0): np.nan})
    with pytest.raises(UsageError, match=f"{split} has no box in any of the 4 frames") as caught:
        pack(source, tmp_path / "packed", workers=1, policy="skip")
    assert f"vflops data check {source}" in str(caught.value.hint)
    assert not (tmp_path / "packed").exists()


def test_a_test_split_may_lose_its_boxes(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", (1979, 1980, 1981))
    rows = np.full((5, 15, 5), -1)
    rows[0, 0] = [1, 30, 5, 35, 2]
    write_year(source / "climo_1981.h5", None, rows)
    set_value(source / "climo_1981.h5", "images", {(0, 3, 0, 0): np.nan})
    assert pack(source, tmp_path / "p", workers=1, policy="skip").index.splits["test"].boxes == 0


def test_classes_without_truth_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = year_folder(tmp_path / "years", (1979, 1980, 1981), number=12)
    rows = boxes(12, 1980)
    rows[..., 4] = np.where(rows[..., 4] >= 0, 2 * (rows[..., 4] // 2), -1)
    write_year(source / "climo_1980.h5", frames(12, 1980), rows)
    says = (
        "validation has no tropical cyclone, no atmospheric river: mAP is computed over the other"
    )
    report = check(source, workers=1)
    assert report.ok and len(report.notes) == 1 and says in report.notes[0]
    climate_data.pack(source, tmp_path / "packed", "half", NO_SPLIT, None, "fail", 1)
    assert f"note: {says}" in capsys.readouterr().out


def test_the_next_step_has_the_box_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = year_folder(tmp_path / "years")
    climate_data.check(source, json=False, order="yxyxc", workers=1)
    assert f"next: vflops data pack {source} --box-order yxyxc" in capsys.readouterr().err
    climate_data.check(source, json=False, order=None, workers=1)
    assert "--box-order" not in capsys.readouterr().err
    set_value(source / "climo_1980.h5", "images", {(0, 3, 0, 0): np.nan})
    with pytest.raises(CheckFailed) as caught:
        climate_data.check(source, json=False, order="yxyxc", workers=1)
    assert f"data pack {source} --box-order yxyxc --policy skip" in str(caught.value.hint)


@pytest.mark.parametrize("years", [(1979, 1980), (1979, 1980, 1981)])
@pytest.mark.parametrize(
    ("fault", "proposed"),
    [("a frame", True), ("a year", False), ("repeated", False)],
)
def test_packing_is_proposed_only_if_it_can_succeed(
    tmp_path: Path, years: tuple[int, ...], fault: str, proposed: bool
) -> None:
    source = year_folder(tmp_path / "years", years)
    number = 5 if fault == "a year" else 1
    set_value(source / "climo_1980.h5", "images", {(i, 3, 0, 0): np.nan for i in range(number)})
    if fault == "repeated":
        names = (source / "climo_1979.h5", source / "climo_1980.h5")
        with h5py.File(names[0]) as first, h5py.File(names[1], "r+") as second:
            second["images"][2] = first["images"][2]
    with pytest.raises(CheckFailed) as caught:
        climate_data.check(source, json=False, order=None, workers=1)
    assert ("--policy skip" in str(caught.value.hint)) is proposed


def test_a_stopped_packing_does_not_go_on_with_boxes_of_another_order(tmp_path: Path) -> None:
    source = tmp_path / "years"
    for year in (1979, 1980, 1981):
        rows = np.full((5, 15, 5), -1)
        rows[:, 0] = [2, 3, 8, 9, 1]  # fits either order
        write_year(source / f"climo_{year}.h5", None, rows)

    def press(done: int, total: int) -> None:
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        pack(ClimateYears.open(source, "xyxyc"), tmp_path / "packed", workers=1, on_progress=press)
    shard = tmp_path / "packed.partial/train-00000.bin"
    made = shard.stat().st_mtime_ns
    with pytest.raises(Interrupted):
        pack(ClimateYears.open(source, "xyxyc"), tmp_path / "packed", workers=1, on_progress=press)
    assert shard.stat().st_mtime_ns == made
    packed = pack(ClimateYears.open(source, "yxyxc"), tmp_path / "packed", workers=1)
    assert (packed.path / shard.name).stat().st_mtime_ns > made
    assert packed.split("train").boxes[0, 0].tolist() == [3, 2, 9, 8]


def test_a_folder_of_bad_files_names_them_all(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years", (1979, 1980, 1981))
    (source / "climo_1979.h5").write_bytes(b"")
    with h5py.File(source / "climo_1980.h5", "r+") as file:
        del file["boxes"]
    (source / "climo_1981.h5").write_bytes(b"")
    with pytest.raises(UsageError) as caught:
        check(source, workers=1)
    for says in ("climo_1979.h5 is empty", "climo_1980.h5 has no array", "climo_1981.h5 is empty"):
        assert says in caught.value.message
    hint = str(caught.value.hint)
    assert "(N, 16, H, W)" in hint and hint.count("did not finish, or it was damaged") == 1


def test_frames_of_training_years_in_validation_or_test_are_named(tmp_path: Path) -> None:
    source = year_folder(tmp_path / "years")
    assert pack(source, tmp_path / "clean", workers=1).index.duplicates is not None
    shutil.copy(source / "climo_1979.h5", source / "climo_1982.h5")
    found = pack(source, tmp_path / "packed", workers=1).index.duplicates
    clean = PackedFrames.open(tmp_path / "clean").index
    assert clean.duplicates is not None and clean.duplicates.warnings == []
    assert found is not None and found.leaked == clean.splits["test"].frames
    assert "climo_1982.h5 frame 0 equals climo_1979.h5 frame 0" in found.leak_text
