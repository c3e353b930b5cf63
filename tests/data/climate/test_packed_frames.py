"""Packed frames are read back by any thread; statistics are exact; damage is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.data_climate import HEIGHT, OFFSET, SCALE, WIDTH, boxes, fields, frames
from tests.support.data_images import contents
from vflops.data.climate import packed_frames
from vflops.data.climate.field_names import CHANNELS, CLASSES
from vflops.data.climate.frame_encoding import to_half
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.climate.moments import Moments, frame_moments, row_moments
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.images.packed_images import PackedImages
from vflops.data.open_shards import OpenShards, is_local
from vflops.data.staging import stage
from vflops.errors import CheckFailed, FolderError, RunFailed, UsageError

Layout = Literal["half", "raw"]
YEARS = {"train": (1979, 1980), "validation": (1981,), "test": ()}


def writer(folder: Path, layout: Layout = "half", **changes: Any) -> FrameWriter:
    about: dict[str, Any] = {
        "origin": "noise",
        "height": HEIGHT,
        "width": WIDTH,
        "layout": layout,
        "offset": OFFSET,
        "scale": SCALE,
        "synthetic": True,
        "recipe": {"seed": 1},
        "years": YEARS,
    }
    return FrameWriter(folder, **{**about, **changes})


def write(
    folder: Path, layout: Layout = "half", train: int = 5, validation: int = 2
) -> PackedFrames:
    rows = boxes(train + validation)
    with writer(folder, layout) as out:
        for number in range(train + validation):
            split = "train" if number < train else "validation"
            of_frame = rows[number, : number % 4]
            out.add(split, fields(number), of_frame[of_frame[:, 4] >= 0])
        return out.finish()


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shards of at most two frames, and several pieces per frame."""
    monkeypatch.setattr("vflops.data.climate.frame_encoding.SHARD_BYTES", 1 << 16)
    monkeypatch.setattr(packed_frames, "_PIECE_BYTES", 5000)


@pytest.mark.usefixtures("small_shards")
def test_raw_frames_come_back_bit_for_bit(tmp_path: Path) -> None:
    packed = write(tmp_path / "p", "raw")
    split = packed.split("train")
    assert len(split) == 5 and len(packed.index.splits["train"].shards) == 5
    order = [4, 0, 0, 3]
    out = np.zeros((4, HEIGHT, WIDTH, 16), np.float32)
    split.read(order, out)
    for index, number in enumerate(order):
        np.testing.assert_array_equal(np.moveaxis(out[index], -1, 0), fields(number))
    np.testing.assert_array_equal(split.fields(2), fields(2))
    np.testing.assert_array_equal(packed.split("validation").fields(1), fields(6))
    assert (packed.index.offset, packed.index.scale) == ((0.0,) * 16, (1.0,) * 16)


@pytest.mark.usefixtures("small_shards")
def test_half_frames_are_as_near_as_float16_can_be(tmp_path: Path) -> None:
    packed = write(tmp_path / "p")
    assert len(packed.index.splits["train"].shards) == 3
    scale, offset = np.array(packed.index.scale), np.array(packed.index.offset)
    np.testing.assert_allclose(offset, OFFSET, rtol=1e-7)
    for number in range(5):
        exact = (fields(number).astype(np.float64) - offset[:, None, None]) / scale[:, None, None]
        actual = packed.split("train").fields(number).astype(np.float64)
        stored = (actual - offset[:, None, None]) / scale[:, None, None]
        # 11 bits of float16, plus the rounding of a large offset in float32
        lost = np.spacing(np.abs(OFFSET).astype(np.float32)) / SCALE
        assert (np.abs(stored - exact) <= 2.0**-11 * np.abs(exact) + 3 * lost[:, None, None]).all()


@pytest.mark.usefixtures("small_shards")
@settings(max_examples=10, deadline=None)
@given(order=st.lists(st.integers(0, 6), min_size=1, max_size=12), threads=st.integers(1, 5))
def test_threads_read_what_one_reads(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], threads: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "threads"
    packed = PackedFrames.open(folder) if folder.is_dir() else write(folder, train=7)
    split = packed.split("train")
    one, many = (np.zeros((len(order), HEIGHT, WIDTH, 16), np.float16) for _ in range(2))
    split.read(order, one)
    with ThreadPoolExecutor(threads) as pool:
        split.read_with(pool, np.array(order), many)
    np.testing.assert_array_equal(one, many)
    assert one.any(axis=(1, 2, 3)).all()


def test_all_threads_work_on_a_single_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr(packed_frames, "_PIECE_BYTES", 5000)
    split = write(tmp_path / "p").split("train")
    seen = set()
    meeting = threading.Barrier(3, timeout=20)
    plain = OpenShards.read

    def read(self: OpenShards, number: int, offset: int, memory: NDArray[np.uint8]) -> None:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            meeting.wait()  # passes only if three threads read at the same time
        plain(self, number, offset, memory)

    monkeypatch.setattr(OpenShards, "read", read)
    out = np.zeros((1, HEIGHT, WIDTH, 16), np.float16)
    with ThreadPoolExecutor(3) as pool:
        split.read_with(pool, [2], out)
    assert len(seen) == 3


def test_boxes_and_labels(tmp_path: Path) -> None:
    split = write(tmp_path / "p").split("train")
    rows = boxes(7)
    assert split.boxes.shape == (5, 15, 4) and split.labels.shape == (5, 15)
    assert split.boxes.dtype == np.float32 and split.labels.dtype == np.int64
    assert (split.labels[4] == -1).all() and (split.labels[0] == -1).all()
    ymin, xmin, ymax, xmax, label = rows[3, 2].tolist()
    assert split.boxes[3, 2].tolist() == [xmin, ymin, xmax, ymax] and split.labels[3, 2] == label


def test_statistics_are_those_of_numpy_over_training_alone(tmp_path: Path) -> None:
    index = write(tmp_path / "p", train=6).index
    exact = frames(6).astype(np.float64)
    assert np.allclose(index.mean, exact.mean(axis=(0, 2, 3)), rtol=1e-12, atol=0)
    assert np.allclose(index.std, exact.std(axis=(0, 2, 3)), rtol=1e-12, atol=0)
    assert index.channels == CHANNELS and index.classes == CLASSES


def test_a_small_spread_on_a_large_mean_is_not_lost() -> None:
    values = np.random.default_rng(3).normal(1e5, 1e-2, (16, 50, 60)).astype(np.float32)
    exact = values.astype(np.float64).reshape(16, -1)
    actual = frame_moments(values)
    np.testing.assert_allclose(actual.std, exact.std(axis=1), rtol=1e-9)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_moments_of_parts_are_those_of_the_whole(rows: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(7, 2, (16, size, 5)) for size in (rows, more))
    joined = frame_moments(first).merged(frame_moments(second))
    whole = np.concatenate([first, second], axis=1).reshape(16, -1)
    assert joined.count == whole.shape[1]
    np.testing.assert_allclose(joined.mean, whole.mean(axis=1))
    np.testing.assert_allclose(joined.std, whole.std(axis=1), atol=1e-12)


def test_bands_of_rows_give_the_same_bits() -> None:
    values = fields(1)
    whole = row_moments(values)
    parts = [row_moments(values[:, start : start + 5]) for start in range(0, HEIGHT, 5)]
    joined = Moments(
        WIDTH,
        np.concatenate([part.mean for part in parts], axis=1),
        np.concatenate([part.squares for part in parts], axis=1),
    )
    assert joined.mean.tobytes() == whole.mean.tobytes()
    assert joined.squares.tobytes() == whole.squares.tobytes()


def sum_of_squares(values: list[float], mean: float) -> float:
    """Return the sum in the documented order: lanes of two, four pairs at a time from the last."""
    squares = [(value - mean) * (value - mean) for value in values]
    squares += [0.0] * (len(squares) % 2)
    in_fours = len(values) // 8 * 4
    order = [first + pair for first in range(0, in_fours, 4) for pair in (3, 2, 1, 0)]
    order += range(in_fours, len(squares) // 2)
    lanes = [0.0, 0.0]
    for pair in order:
        for lane in (0, 1):
            lanes[lane] += squares[2 * pair + lane]
    return lanes[0] + lanes[1]


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 24, 31, 144])
def test_squares_are_added_in_the_same_order_on_every_machine(width: int) -> None:
    values = np.random.default_rng(width).normal(300.0, 20.0, (2, 3, width)).astype(np.float32)
    rows = row_moments(values)
    for channel in range(2):
        for row in range(3):
            expected = sum_of_squares(
                values[channel, row].astype(np.float64).tolist(), float(rows.mean[channel, row])
            )
            assert rows.squares[channel, row] == expected


def test_half_precision_is_rounded_as_numpy_does() -> None:
    """Compare all sums of a half, its neighbours and the ties between them, and random floats."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = halves[np.isfinite(halves)].view(np.uint32)
    offsets = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    near = (bits[:, None] + offsets).ravel()
    random = np.random.default_rng(1).integers(0, 1 << 32, 1 << 17, np.uint32)
    values = np.concatenate([near, random]).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16)
        actual = to_half(values)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(actual.view(np.uint16)[number], expected.view(np.uint16)[number])
    assert np.isnan(actual[~number]).all()


def test_frames_are_aligned(tmp_path: Path) -> None:
    with writer(tmp_path / "p", height=8, width=8) as out:
        for number in range(3):
            out.add("train", fields(number, 8, 8), np.zeros((0, 5)))
        packed = out.finish()
    assert packed.index.stride_bytes == 4096 > packed.index.frame_bytes == 2048
    assert (packed.path / "train-00000.bin").stat().st_size == 3 * 4096
    np.testing.assert_allclose(packed.split("train").fields(2), fields(2, 8, 8), rtol=0.1)


def test_the_same_frames_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one"), write(tmp_path / "two")
    assert contents(one.path) == contents(two.path) and one.fingerprint == two.fingerprint
    assert sorted(path.name for path in one.path.iterdir()) == [
        "index.json",
        "packing.json",
        "train-00000.bin",
        "train.digests",
        "train.npz",
        "validation-00000.bin",
        "validation.digests",
        "validation.npz",
    ]


def test_a_block_without_finish_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), writer(tmp_path / "p") as out:
        out.add("train", fields(1), np.zeros((0, 5)))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "p")
    with pytest.raises(UsageError, match="exists and is not empty"):
        writer(tmp_path / "p")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"split": "val"}, "split is 'val'"),
        ({"fields": fields(0)[:15]}, r"frame 0 of train: fields are float32\[15, 24, 40\]"),
        ({"fields": fields(0).astype(np.float64)}, "fields are float64"),
        ({"boxes": np.array([[1, 2, 1, 4, 0]])}, "has no area"),
        ({"boxes": np.array([[1, 2, 3, 4, 4]])}, "class 4"),
        ({"boxes": np.tile([1, 2, 3, 4, 0], (16, 1))}, "16 boxes, at most 15"),
        ({"fields": np.where(fields(0) > 5e4, np.nan, fields(0))}, "NaN or infinite"),
    ],
)
def test_a_frame_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    good: dict[str, Any] = {"split": "train", "fields": fields(0), "boxes": boxes(1)[0, :2]}
    with writer(tmp_path / "p") as out, pytest.raises(ValueError, match=says):
        out.add(**{**good, **change})


def test_what_half_precision_cannot_hold_is_refused(tmp_path: Path) -> None:
    wild = fields(0)
    wild[3, 2, 1] = OFFSET[3] + 70_000 * SCALE[3]
    with writer(tmp_path / "p") as out, pytest.raises(UsageError, match=r"QREFHT .*half prec") as e:
        out.add("train", wild, np.zeros((0, 5)))
    assert "--layout raw" in str(e.value.hint)


def test_no_frame_to_train_on(tmp_path: Path) -> None:
    with writer(tmp_path / "p") as out:
        out.add("test", fields(1), np.zeros((0, 5)))
        with pytest.raises(UsageError, match="has no training frames"):
            out.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_the_runs_failure(small_disk: Path) -> None:
    with pytest.raises(RunFailed, match="No space left"), writer(small_disk / "p", "raw") as out:
        for number in range(40):
            out.add("train", fields(number), np.zeros((0, 5)))
    assert list(small_disk.iterdir()) == []


def cut_shard(path: Path) -> None:
    os.truncate(path / "train-00000.bin", 9000)


def drop_table(path: Path) -> None:
    (path / "train.npz").unlink()


def lie_in_index(path: Path) -> None:
    index = json.loads((path / "index.json").read_text())
    index["splits"]["train"]["frames"] = 4
    (path / "index.json").write_text(json.dumps(index))


def other_size_in_index(path: Path) -> None:
    index = json.loads((path / "index.json").read_text())
    index["height"] = HEIGHT * 9
    (path / "index.json").write_text(json.dumps(index))


def another_table(path: Path) -> None:
    size = (path / "train.npz").stat().st_size
    (path / "train.npz").write_bytes(b"x" * size)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (cut_shard, "train-00000.bin has 9000 bytes"),
        (drop_table, "train.npz is missing"),
        (lie_in_index, "shards of train do not have"),
        (other_size_in_index, "train-00000.bin has .* bytes for 5 frames"),
        (another_table, "train.npz is not a table of frames"),
    ],
)
def test_damage_is_named(tmp_path: Path, harm: Callable[[Path], None], says: str) -> None:
    packed = write(tmp_path / "p")
    harm(packed.path)
    with pytest.raises(FolderError, match=says) as caught:
        PackedFrames.open(packed.path).split("train")
    assert "pack it again" in str(caught.value.hint)


@pytest.fixture
def on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that folders are on a network file system, where shards are not mapped."""
    monkeypatch.setattr("vflops.data.open_shards.is_local", lambda folder: False)


def test_a_shard_cut_between_open_and_read(tmp_path: Path) -> None:
    split = write(tmp_path / "p").split("train")
    cut_shard(tmp_path / "p")
    with pytest.raises(FolderError, match=r"train-00000.bin has 9000 bytes"):
        split.fields(0)


@pytest.mark.usefixtures("on_a_network", "small_shards")
def test_without_a_mapping_the_same_is_read(tmp_path: Path) -> None:
    packed = write(tmp_path / "p", "raw")
    out = np.zeros((3, HEIGHT, WIDTH, 16), np.float32)
    with ThreadPoolExecutor(2) as pool:
        packed.split("train").read_with(pool, [3, 0, 4], out)
    for index, number in enumerate((3, 0, 4)):
        np.testing.assert_array_equal(np.moveaxis(out[index], -1, 0), fields(number))


def test_file_systems_of_this_machine_are_mapped(tmp_path: Path) -> None:
    assert is_local(Path("/dev/shm")) and not is_local(Path("/proc"))


@pytest.mark.usefixtures("on_a_network")
def test_a_shard_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    split = write(tmp_path / "p").split("train")
    split.fields(0)
    cut_shard(tmp_path / "p")
    with pytest.raises(FolderError, match=r"train-00000.bin ends at 9000 bytes"):
        split.fields(0)


def test_verify_finds_a_changed_bit(tmp_path: Path) -> None:
    packed = write(tmp_path / "p")
    calls: list[tuple[int, int]] = []
    size = packed.verify(lambda done, total: calls.append((done, total)))
    assert size == sum(file.bytes for file in packed.index.files()) and calls[-1] == (size, size)
    with (packed.path / "validation-00000.bin").open("r+b") as file:
        file.seek(4000)
        file.write(b"\x01")
    with pytest.raises(CheckFailed, match=r"1 of 6 files .*: validation-00000.bin"):
        packed.verify()


def test_kinds_of_packed_data_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "p")
    wrong = "p holds packed climate frames, but image-classification needs packed images"
    with pytest.raises(UsageError, match=wrong) as caught:
        PackedImages.open(tmp_path / "p")
    assert f"vflops run extreme-weather --data {tmp_path / 'p'}" in str(caught.value.hint)
    index = tmp_path / "i" / "index.json"
    index.parent.mkdir()
    index.write_text('{"schema": "vflops.packed-images/1"}')
    with pytest.raises(
        UsageError, match="i holds packed images, but extreme-weather needs packed cl"
    ):
        PackedFrames.open(index.parent)
    with pytest.raises(UsageError, match="is not a folder of packed frames: it does not exist"):
        PackedFrames.open(tmp_path / "q")
    with pytest.raises(UsageError, match="has no split 'val'") as caught:
        PackedFrames.open(tmp_path / "p").split("val")
    assert caught.value.hint == "it has train, validation"


@pytest.mark.parametrize("kind", ["dtype", "shape", "order"])
def test_memory_that_does_not_fit_is_refused(tmp_path: Path, kind: str) -> None:
    split = write(tmp_path / "p").split("train")
    out: NDArray[Any] = np.zeros((2, HEIGHT, WIDTH, 16), np.float16)
    if kind == "dtype":
        out = out.astype(np.float32)
    elif kind == "shape":
        out = out[:1]
    else:
        out = np.asfortranarray(out)
    with pytest.raises(ValueError, match="expected a contiguous float16"):
        split.read([0, 1], out)


@pytest.mark.parametrize("local", [True, False])
def test_files_are_closed_with_the_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr("vflops.data.open_shards.is_local", lambda folder: local)

    def opened() -> int:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
        return sum(link.readlink().is_relative_to(tmp_path) for link in links)

    split = write(tmp_path / "p").split("train")
    split.fields(0)
    assert opened() == 1
    del split
    assert opened() == 0


def test_readers_import_neither_torch_nor_h5py() -> None:
    code = (
        "import sys\n"
        "from vflops.data.climate import channel_statistics, check_years, pack_years\n"
        "from vflops.data.climate import packed_frames\n"
        "import vflops.cli.train.data\n"
        "print([m for m in ('torch', 'h5py', 'PIL', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_channel_with_one_value_is_refused(tmp_path: Path) -> None:
    dry, flat = fields(1), fields(1)
    dry[0], flat[2] = 0, OFFSET[2]
    with writer(tmp_path / "p") as out:
        with pytest.raises(ValueError, match="frame 0 of train: one value throughout in PSL"):
            out.add("train", flat, np.zeros((0, 5)))
        for _ in range(3):
            out.add("train", dry, np.zeros((0, 5)))  # no rain in some frames
        with pytest.raises(
            UsageError, match=r"channels are constant in all training frames of .*p: PRECT"
        ):
            out.finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["std", "scale"])
def test_an_index_without_spread_is_refused(tmp_path: Path, key: str) -> None:
    write(tmp_path / "p")
    index = json.loads((tmp_path / "p/index.json").read_text())
    index[key][2] = 0.0
    (tmp_path / "p/index.json").write_text(json.dumps(index))
    with pytest.raises(FolderError, match=f"{key} of PSL is not above 0"):
        PackedFrames.open(tmp_path / "p")


def test_fill_values_are_refused(tmp_path: Path) -> None:
    filled = fields(1)
    filled[4, 3, 3] = 9.96921e36
    with (
        writer(tmp_path / "p") as out,
        pytest.raises(ValueError, match=r"frame 0 of train: fill values .* in T200"),
    ):
        out.add("train", filled, np.zeros((0, 5)))


def test_a_table_with_any_byte_damaged_is_named(tmp_path: Path) -> None:
    table = write(tmp_path / "p").path / "train.npz"
    whole = table.read_bytes()
    offsets = [*range(0, 80), *range(len(whole) - 300, len(whole))]
    for damaged in (whole[: len(whole) // 2], *(spoilt(whole, offset) for offset in offsets)):
        table.write_bytes(damaged.ljust(len(whole), b"\0"))
        packed = PackedFrames.open(tmp_path / "p")
        with suppress(FolderError):  # some bytes do not matter
            packed.split("train")
    table.write_bytes(spoilt(whole, len(whole) - 22))
    with pytest.raises(FolderError, match=r"train.npz is not a table of frames"):
        PackedFrames.open(tmp_path / "p").split("train")


def spoilt(data: bytes, offset: int) -> bytes:
    """Return ``data`` with another byte at ``offset``."""
    return data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :]


def test_frames_are_copied_with_their_padding_and_absent_ones_cannot_be_read(
    tmp_path: Path, small_shards: None
) -> None:
    packed = write(tmp_path / "frames")
    size = len(packed.split("train"))
    needed = np.arange(size) % 3 == 1
    arguments = (str(tmp_path / "local"), tmp_path / "slots", 8, print)
    staged = stage(packed.path, packed.fingerprint, *arguments, needed)
    shards = packed.index.splits["train"].shards
    kept = sum(file.bytes for file in packed.index.files()) - sum(shard.bytes for shard in shards)
    assert staged.bytes == kept + needed.sum() * packed.index.stride_bytes
    assert packed.index.stride_bytes > packed.index.frame_bytes
    copy, source = PackedFrames.open(Path(staged.folder)).split("train"), packed.split("train")
    assert (copy.compare_contents().fields(1) == source.fields(1)).all()
    with pytest.raises(FolderError, match=r"sample 0 of train in .* is not in this copy"):
        copy.fields(0)
    with ThreadPoolExecutor(2) as pool, pytest.raises(FolderError, match="is not in this copy"):
        copy.read_with(pool, [1, 2], np.empty((2, *packed.index.frame_shape), copy.dtype))
