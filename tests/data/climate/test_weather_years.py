from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from vflops.data.climate import frame_drawing, frame_encoding, synthetic_weather
from vflops.data.climate.box_rows import PUBLISHED
from vflops.data.climate.field_names import MAX_BOXES
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.synthetic_weather import cached_frames, write_years, years_of
from vflops.data.climate.weather import SCALE, WeatherRecipe, draw
from vflops.data.climate.years import ClimateYears
from vflops.data.synthetic_folder import MARK, recipe_of
from vflops.errors import Interrupted, UsageError

RECIPE = WeatherRecipe(32, 48, seed=3)


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_years_are_laid_out_as_published(tmp_path: Path, compression: str | None) -> None:
    seen: list[tuple[int, int]] = []
    paths = write_years(
        RECIPE,
        tmp_path / "set",
        {1981: 2, 1979: 3},
        compression=compression,
        on_progress=lambda *done: seen.append(done),
    )

    assert paths == [tmp_path / "set" / f"climo_{year}.h5" for year in (1979, 1981)]
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == [
        "climo_1979.h5",
        "climo_1981.h5",
        MARK,
    ]
    assert not (tmp_path / "set.partial").exists()
    assert seen[-1] == (5, 5)
    with h5py.File(paths[0]) as file:
        assert set(file) == {"images", "boxes"}
        assert file["images"].shape == (3, 16, 32, 48) and file["images"].dtype == np.float32
        assert file["boxes"].shape == (3, MAX_BOXES, 5) and file["boxes"].dtype == np.int32
        assert file["images"].compression == compression
        for number in range(3):
            frame = draw(RECIPE, 1979, number)
            np.testing.assert_array_equal(file["images"][number], frame.fields)
            np.testing.assert_array_equal(file["boxes"][number, : len(frame.boxes)], frame.boxes)
            assert (file["boxes"][number, len(frame.boxes) :] == -1).all()


def test_the_folder_says_that_it_was_drawn(tmp_path: Path) -> None:
    write_years(RECIPE, tmp_path / "set", {1979: 1, 1980: 2})
    assert recipe_of(tmp_path / "set") == {
        **RECIPE.as_dict(),
        "frames": {"1979": 1, "1980": 2},
    }


def test_the_years_are_read_like_real_ones(tmp_path: Path) -> None:
    write_years(RECIPE, tmp_path / "set", {1979: 30, 1980: 2})
    years = ClimateYears.open(tmp_path / "set")
    assert years.numbers == (1979, 1980) and (years.height, years.width) == (32, 48)
    assert years.year(1979).order == PUBLISHED
    for number in range(30):
        drawn = draw(RECIPE, 1979, number).boxes
        np.testing.assert_array_equal(years.year(1979).boxes(number), drawn)


def test_processes_of_their_own_write_the_same(tmp_path: Path) -> None:
    alone = write_years(RECIPE, tmp_path / "alone", {1979: 2, 1980: 2}, workers=1)
    shared = write_years(RECIPE, tmp_path / "shared", {1979: 2, 1980: 2}, workers=2)
    for one, other in zip(alone, shared, strict=True):
        with h5py.File(one) as left, h5py.File(other) as right:
            np.testing.assert_array_equal(left["images"][:], right["images"][:])
            np.testing.assert_array_equal(left["boxes"][:], right["boxes"][:])


def test_a_stopped_writing_goes_on_after_the_last_whole_year(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    years = {1979: 2, 1980: 2}
    with pytest.raises(Interrupted):
        write_years(RECIPE, tmp_path / "set", years, on_progress=stop, workers=1)
    partial = tmp_path / "set.partial"
    assert not (tmp_path / "set").exists()
    assert sorted(path.name for path in partial.iterdir()) == ["climo_1979.h5", MARK]

    with pytest.raises(UsageError, match="something other"):
        write_years(RECIPE, tmp_path / "set", {1979: 3})
    kept = (partial / "climo_1979.h5").stat().st_mtime_ns
    (partial / ".climo_1980.h5-1.tmp").write_bytes(b"of a process that was killed")
    paths = write_years(RECIPE, tmp_path / "set", years)
    assert paths[0].stat().st_mtime_ns == kept
    assert len(list((tmp_path / "set").iterdir())) == 3 and not partial.exists()


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not empty"):
        write_years(RECIPE, tmp_path, {1979: 1})


@pytest.mark.parametrize(
    ("frames", "compression", "message"),
    [
        ({}, None, "no years"),
        ({1979: 0}, None, "0 frames in 1979"),
        ({12345: 1}, None, "year 12345"),
        ({1979: 1}, "zip", "compression is 'zip'"),
    ],
)
def test_wrong_wishes_are_refused_before_anything_is_written(
    tmp_path: Path, frames: dict[int, int], compression: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_years(RECIPE, tmp_path / "set", frames, compression=compression)
    assert not list(tmp_path.iterdir())


def test_years_of_splits() -> None:
    assert years_of(3000, 7, 9) == {
        "train": {1979: 1460, 1980: 1460, 1981: 80},
        "validation": {1982: 7},
        "test": {1983: 9},
    }
    assert years_of(1460, 1, 1)["train"] == {1979: 1460}
    with pytest.raises(UsageError, match="0 validation frames"):
        years_of(1, 0, 1)


def check_packed(path: Path, counts: dict[str, int]) -> None:
    packed = PackedFrames.open(path)
    index = json.loads((path / "index.json").read_text())
    assert index["synthetic"] and index["layout"] == "half"
    assert index["recipe"] == {**RECIPE.as_dict(), "frames": counts}
    for (split, count), year in zip(counts.items(), (1979, 1980, 1981), strict=True):
        frames = packed.split(split)
        assert len(frames) == count
        for number in range(count):
            drawn = draw(RECIPE, year, number)
            error = np.abs(frames.fields(number) - drawn.fields).max(axis=(1, 2))
            assert (error < 0.01 * SCALE).all()
            labels = frames.labels[number]
            assert labels[labels >= 0].tolist() == drawn.boxes[:, 4].tolist()


def test_packed_frames_are_those_of_the_years(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    seen: list[tuple[int, int]] = []
    path = cached_frames(RECIPE, 4, 2, 3, lambda *done: seen.append(done))
    check_packed(path, {"train": 4, "validation": 2, "test": 3})
    assert seen[-1] == (9, 9)
    seen.clear()
    assert cached_frames(RECIPE, 4, 2, 3, lambda *done: seen.append(done)) == path and not seen
    assert cached_frames(RECIPE, 5, 2, 3) != path
    assert len(list(tmp_path.iterdir())) == 2


def test_the_fingerprint_is_that_of_every_machine(tmp_path: Path) -> None:
    packed = synthetic_weather.pack(RECIPE, tmp_path / "set", 4, 2, 3)
    assert packed.fingerprint == FINGERPRINT


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_bytes_do_not_depend_on_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = synthetic_weather.pack(RECIPE, tmp_path / "alone", 7, 2, 1, workers=1)
    monkeypatch.setattr(frame_drawing, "_PIECE_PIXELS", 2 * RECIPE.height * RECIPE.width)
    seen: list[tuple[int, int]] = []
    shared = synthetic_weather.pack(
        RECIPE, tmp_path / "shared", 7, 2, 1, lambda *done: seen.append(done), workers=3
    )
    assert tree(shared.path) == tree(alone.path)
    assert seen[0] == (0, 10) and seen[-1] == (10, 10)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_frames_of_a_split_continue_in_the_next_year(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (frame_drawing, synthetic_weather):
        monkeypatch.setattr(module, "FRAMES_PER_YEAR", 3)
    packed = synthetic_weather.pack(RECIPE, tmp_path / "set", 5, 1, 1)
    assert packed.index.years == {"train": (1979, 1980), "validation": (1981,), "test": (1982,)}
    frame = draw(RECIPE, 1980, 1)
    error = np.abs(packed.split("train").fields(4) - frame.fields).max(axis=(1, 2))
    assert (error < 0.01 * SCALE).all()


def test_a_stopped_packing_keeps_complete_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(frame_encoding, "SHARD_BYTES", 2 * 32 * 48 * 16 * 2)
    monkeypatch.setattr(frame_drawing, "_PIECE_PIXELS", 1)
    whole = synthetic_weather.pack(RECIPE, tmp_path / "whole", 4, 1, 1)
    assert len(whole.index.splits["train"].shards) == 2

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="1 of 4 shards"):
        cached_frames(RECIPE, 4, 1, 1, stop)
    (partial,) = (tmp_path / "cache").iterdir()
    assert partial.name.endswith(".partial") and not list(partial.glob(".*.tmp"))
    shard = partial / "train-00000.bin"
    kept = shard.stat().st_mtime_ns
    (partial / ".1-0.tmp").write_bytes(b"of a process that was killed")

    seen: list[tuple[int, int]] = []
    path = cached_frames(RECIPE, 4, 1, 1, lambda *done: seen.append(done))
    assert seen[0] == (2, 6) and seen[-1] == (6, 6)
    assert tree(path) == tree(whole.path)
    assert (path / shard.name).stat().st_mtime_ns == kept
    assert list((tmp_path / "cache").iterdir()) == [path]


def test_a_link_is_followed_and_a_mount_point_refused(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "empty")
    recipe = WeatherRecipe(32, 48)
    (year,) = write_years(recipe, tmp_path / "link", {1979: 1})
    assert (tmp_path / "link" / year.name).is_file() and (tmp_path / "link").is_symlink()
    with pytest.raises(UsageError, match="small is a mount point"):
        write_years(recipe, small_disk, {1979: 1})


FINGERPRINT = "fd11af50a58a5475243ea0142444e8b53cb4a9bd795b973c265e13fef7a61d6e"
