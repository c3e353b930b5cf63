"""Packed images are read back unchanged by any thread; damaged files are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.data_images import contents
from vflops.data.batch_memory import BatchMemory
from vflops.data.images.image_writer import ImageWriter
from vflops.data.images.packed_images import PackedImages, PackedImageSplit
from vflops.errors import CheckFailed, RunFailed, UsageError, VflopsError
from vflops.workloads.image_classification.data import ImageSamples

Image = NDArray[np.uint8]
CLASSES = ("a", "b", "c")


def noise(count: int, seed: int = 0, most: int = 12) -> list[Image]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most, (count, 2))
    return [rng.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in sizes.tolist()]


def write(path: Path, train: list[Image], val: list[Image], shard_bytes: int = 1000) -> Path:
    with ImageWriter(
        path,
        origin="noise",
        short_side=1,
        classes=CLASSES,
        recipe={"seed": 0},
        shard_bytes=shard_bytes,
    ) as writer:
        for split, images in (("train", train), ("val", val)):
            for number, image in enumerate(images):
                writer.add(image, number % 3, split=split)
    return path


def pieces(
    split: PackedImageSplit, indices: list[int], out: Image, starts: NDArray[np.int64]
) -> list[Image]:
    return [
        out[start : start + split.sizes_bytes[i]].reshape(split.heights[i], split.widths[i], 3)
        for i, start in zip(indices, starts.tolist(), strict=True)
    ]


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 20),
    seed=st.integers(0, 99),
    shard_bytes=st.sampled_from([1, 300, 5000]),
    data=st.data(),
)
def test_images_come_back_in_the_order_asked(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    seed: int,
    shard_bytes: int,
    data: st.DataObject,
) -> None:
    images = noise(count, seed)
    path = write(tmp_path_factory.mktemp("packed") / "p", images, images[:1], shard_bytes)
    split = PackedImages.open(path).split("train")
    indices = data.draw(st.lists(st.integers(0, count - 1), max_size=80))
    out = np.zeros(sum(images[i].size for i in indices) + 5, np.uint8)
    starts = split.read(indices, out)
    assert starts.dtype == np.int64
    for actual, index in zip(pieces(split, indices, out, starts), indices, strict=True):
        np.testing.assert_array_equal(actual, images[index])
    assert not out[
        sum(images[i].size for i in indices) :
    ].any()  # back to back, and nothing after them
    with ThreadPoolExecutor(3) as pool:
        again = np.zeros_like(out)
        np.testing.assert_array_equal(split.read_with(pool, indices, again), starts)
    np.testing.assert_array_equal(again, out)


@pytest.fixture(params=["mapped", "on a network"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Folders are on a local disk, or seem to be on a network file system."""
    local = request.param == "mapped"
    monkeypatch.setattr("vflops.data.open_shards.is_local", lambda folder: local)
    return str(request.param)


def test_many_threads_may_read_at_once(tmp_path: Path, storage: str) -> None:
    images = noise(300, most=40)
    split = PackedImages.open(write(tmp_path / "p", images, images[:1], 50_000)).split("train")

    def read(seed: int) -> bool:
        indices = np.random.default_rng(seed).integers(0, 300, 100)
        out = np.empty(int(split.sizes_bytes[indices].sum()), np.uint8)
        actual = pieces(split, indices.tolist(), out, split.read(indices, out))
        return all(
            np.array_equal(a, images[i]) for a, i in zip(actual, indices.tolist(), strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(40)))
    assert any(data is not None for data in split.shards.maps) == (storage == "mapped")


def test_one_panorama_does_not_multiply_the_buffers_of_all_batches(tmp_path: Path) -> None:
    panorama = np.full((30, 4000, 3), 7, np.uint8)
    images = [*noise(40, most=10), panorama]
    split = PackedImages.open(write(tmp_path / "p", images, images[:1])).split("train")
    samples = ImageSamples(split, readers=2)
    memory = BatchMemory()
    buffers = []
    for indices in ([3, 1, 1, 8], [20, 5, 5, 39], [2, 40, 7, 9], [3, 1, 1, 8]):
        pixels, table = samples.read(np.array(indices), memory)
        needed = sum(images[index].size for index in indices)
        used = memory.used_part(pixels).numpy()
        assert used.size == needed
        np.testing.assert_array_equal(used, np.concatenate([images[i].ravel() for i in indices]))
        assert table[3].tolist() == [index % 3 for index in indices]
        buffers.append((pixels.numel(), needed))
    assert all(size <= 2 * 4 * 300 for size, _ in buffers[:2])  # not 4 × 360,000
    assert panorama.size < buffers[2][0] <= 1.125 * buffers[2][1]
    assert buffers[3][0] == buffers[2][0]  # pinned memory is not allocated for every batch


def test_a_split_knows_its_images(tmp_path: Path) -> None:
    images = noise(20)
    packed = PackedImages.open(write(tmp_path / "p", images, images[:5]))
    split = packed.split("train")
    assert len(split) == 20 and len(packed.split("val")) == 5
    assert split.classes == CLASSES
    assert split.labels.tolist() == [number % 3 for number in range(20)]
    assert split.heights.tolist() == [image.shape[0] for image in images]
    assert split.widths.tolist() == [image.shape[1] for image in images]
    assert packed.index.synthetic and packed.index.recipe == {"seed": 0}
    np.testing.assert_array_equal(split.image(7), images[7])
    with pytest.raises(UsageError, match="no split 'test'"):
        packed.split("test")


def test_the_format_can_be_read_without_this_package(tmp_path: Path) -> None:
    images = noise(30)
    path = write(tmp_path / "p", images, images[:1])
    index = json.loads((path / "index.json").read_text())
    assert index["schema"] == "vflops.packed-images/1"
    table = np.load(path / "train.npz", allow_pickle=False)
    shards = index["splits"]["train"]["shards"]
    assert len(shards) > 1
    shard_of = np.repeat(np.arange(len(shards)), [shard["images"] for shard in shards])
    for number, image in enumerate(images):
        data = (path / shards[shard_of[number]]["file"]).read_bytes()
        h, w, offset = (int(table[key][number]) for key in ("heights", "widths", "offsets"))
        actual = np.frombuffer(data, np.uint8, h * w * 3, offset).reshape(h, w, 3)
        np.testing.assert_array_equal(actual, image)


def test_sha256sum_agrees(tmp_path: Path) -> None:
    path = write(tmp_path / "p", noise(30), noise(3))
    index = PackedImages.open(path).index
    files = index.files()
    sums = "".join(f"{file.sha256}  {file.file}\n" for file in files)
    subprocess.run(["sha256sum", "--check", "--quiet"], input=sums, text=True, cwd=path, check=True)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    one = write(tmp_path / "1", noise(30), noise(3))
    two = write(tmp_path / "2", noise(30), noise(3))
    assert contents(one) == contents(two)
    assert PackedImages.open(one).fingerprint == PackedImages.open(two).fingerprint


def test_out_that_is_too_small_or_of_another_type_is_refused(tmp_path: Path) -> None:
    split = PackedImages.open(write(tmp_path / "p", noise(9), noise(1))).split("train")
    needed = int(split.sizes_bytes.sum())
    for out in (np.empty(needed - 1, np.uint8), np.empty((needed, 1), np.uint8)):
        with pytest.raises(ValueError, match=f"flat uint8 array of {needed}"):
            split.read(range(9), out)
    with pytest.raises(IndexError):
        split.read([9], np.empty(needed, np.uint8))


def truncate(path: Path) -> None:
    os.truncate(path / "train-00001.bin", 10)


def remove(path: Path) -> None:
    (path / "val-00000.bin").unlink()


def other_index(path: Path) -> None:
    text = (path / "index.json").read_text()
    (path / "index.json").write_text(text.replace("packed-images/1", "packed-images/2"))


def escape(path: Path) -> None:
    text = (path / "index.json").read_text()
    (path / "index.json").write_text(text.replace("train-00000.bin", "../train-00000.bin"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"train-00001.bin has 10 bytes, but index.json says \d+"),
        (remove, "val-00000.bin is missing"),
        (other_index, "written by a newer vflops"),
        (escape, "expected the name of a file"),
        (lambda path: (path / "index.json").unlink(), "it has no index.json"),
        (lambda path: (path / "index.json").write_text("{"), "index.json is not JSON"),
    ],
)
def test_damage_is_seen_at_once(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    path = write(tmp_path / "p", noise(30), noise(3))
    damage(path)
    with pytest.raises(VflopsError, match=message) as caught:
        PackedImages.open(path)
    assert caught.value.exit_code == 2


def test_a_changed_byte_is_found_by_verify(tmp_path: Path) -> None:
    path = write(tmp_path / "p", noise(30), noise(3))
    calls: list[tuple[int, int]] = []
    total = PackedImages.open(path).verify(lambda done, of: calls.append((done, of)))
    assert calls[-1] == (total, total)
    shard = path / "train-00001.bin"
    data = bytearray(shard.read_bytes())
    data[5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CheckFailed, match=r"1 of \d+ files .* train-00001.bin"):
        PackedImages.open(path).verify()


def test_a_table_that_points_outside_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "p", noise(9), noise(1))
    table = dict(np.load(path / "train.npz"))
    table["offsets"][4] = 1 << 40
    np.savez(path / "train.npz", **table)
    with pytest.raises(VflopsError, match="image 4 lies outside its shard"):
        PackedImages.open(path).split("train")


def test_a_pickle_in_the_table_is_never_loaded(tmp_path: Path) -> None:
    path = write(tmp_path / "p", noise(9), noise(1))
    np.savez(path / "train.npz", offsets=np.array([object()], dtype=object))
    index = json.loads((path / "index.json").read_text())
    index["splits"]["train"]["table"]["bytes"] = (path / "train.npz").stat().st_size
    (path / "index.json").write_text(json.dumps(index))
    with pytest.raises(VflopsError, match="not a table of images"):
        PackedImages.open(path).split("train")


def test_nothing_appears_when_the_making_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        ImageWriter(tmp_path / "p", origin="x", short_side=1, classes=CLASSES) as writer,
    ):
        writer.add(noise(1)[0], 0, split="train")
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []


def test_an_occupied_place_and_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine.txt").write_text("keep")
    with pytest.raises(UsageError, match="exists and is not empty"):
        write(tmp_path / "p", noise(1), noise(1))
    big = [np.zeros((600, 600, 3), np.uint8)] * 2
    with pytest.raises(RunFailed, match="No space left"):
        write(small_disk / "p", big, big, shard_bytes=1 << 30)
    assert list(small_disk.iterdir()) == []


def test_more_shards_than_files_may_be_open(tmp_path: Path) -> None:
    path = write(tmp_path / "p", noise(80), noise(1), shard_bytes=1)
    code = (
        "import resource, sys; from pathlib import Path; import numpy as np\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))\n"
        "from vflops.data.images.packed_images import PackedImages\n"
        "split = PackedImages.open(Path(sys.argv[1])).split('train')\n"
        "split.read(range(80), np.empty(80 * int(split.sizes_bytes.max()), np.uint8))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
