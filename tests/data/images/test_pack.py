"""Packing gives the pixels of Pillow and always the same bytes, and resumes after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.data_images import contents, every_kind, image_folder, picture, save, spoil
from vflops.data.images import pack_images as packing
from vflops.data.images.decode import BadImage, resized_size
from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.pack_images import images_per_shard, pack
from vflops.data.images.packed_images import PackedImages
from vflops.data.synthetic_folder import MARK
from vflops.errors import Interrupted, RunFailed, UsageError

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make shards of two images, so that few files are many shards."""
    monkeypatch.setattr(packing, "images_per_shard", lambda short_side: 2)


@pytest.mark.parametrize("enlarge", [False, True])
def test_pixels_are_those_of_pillow(tmp_path: Path, enlarge: bool) -> None:
    source = image_folder(tmp_path / "images", train=1, val=1)
    every_kind(source / "train" / "dog")
    packed = pack(source, tmp_path / "packed", short_side=32, enlarge=enlarge, workers=1)
    folder = ImageFolder.open(source)
    split = packed.split("train")
    assert len(split) == 13
    for number, file in enumerate(folder.train.files):
        image = Image.open(source / file).convert("RGB")
        scale = 32 / (min(image.size) if enlarge else max(32, min(image.size)))
        size = int(image.width * scale + 1e-9), int(image.height * scale + 1e-9)
        expected = np.asarray(image.resize(size, Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(split.image(number), expected, err_msg=file)
    assert split.labels.tolist() == folder.labels(folder.train)
    assert packed.index.origin == "images" and not packed.index.synthetic


def test_grey_of_16_bits_keeps_its_shades(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images", train=1, val=1)
    shades = np.arange(256, dtype=np.uint8).reshape(16, 16)
    save(source / "train/cat/0.png", Image.fromarray(shades.astype(np.uint16) * 257))
    split = pack(source, tmp_path / "packed", short_side=16, workers=1).split("train")
    np.testing.assert_array_equal(split.image(0), np.repeat(shades[:, :, None], 3, axis=2))


def test_orientation_in_exif_is_ignored(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images", train=1, val=1)
    image = picture(1, (40, 20))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(source / "train/cat/000.jpg", exif=exif)
    split = pack(source, tmp_path / "packed", short_side=20, workers=1).split("train")
    assert (split.widths[0], split.heights[0]) == (40, 20)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 512))
def test_the_short_side_is_exact_and_the_shape_kept(width: int, height: int, short: int) -> None:
    try:
        new = resized_size((width, height), short, enlarge=True)
    except BadImage:
        assert max(width, height) / min(width, height) > 500
        return
    assert min(new) == short
    longer = short * max(width, height) / min(width, height)
    assert longer - 1 < max(new) <= longer + 1e-6
    assert (new[0] >= new[1]) == (width >= height) or new[0] == new[1]
    small = min(width, height) <= short
    assert resized_size((width, height), short, enlarge=False) == (
        (width, height) if small else new
    )


@pytest.mark.parametrize("short_side", [1, 32, 256, 512, 8192])
def test_shards_are_no_larger_than_about_256_mb(short_side: int) -> None:
    images = images_per_shard(short_side)
    assert images == 1 or images * short_side**2 * 4 <= 1 << 28
    assert 1 <= images <= 1024


@pytest.mark.usefixtures("small_shards")
def test_the_number_of_workers_does_not_show(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images", train=5, val=2)
    spoil(source)
    one = pack(source, tmp_path / "one", short_side=16, workers=1, policy="skip")
    two = pack(source, tmp_path / "two", short_side=16, workers=2, policy="skip")
    assert contents(one.path) == contents(two.path)
    assert one.fingerprint == two.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "one", "two"]


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("workers", [1, 2])
def test_policy_fail_names_the_file(tmp_path: Path, workers: int) -> None:
    source = image_folder(tmp_path / "images")
    (source / "train/dog/003.jpg").write_text("text")
    with pytest.raises(UsageError, match=r"train/dog/003.jpg: it is not a JPEG") as caught:
        pack(source, tmp_path / "packed", short_side=16, workers=workers)
    assert "--policy skip" in str(caught.value.hint)
    assert not (tmp_path / "packed").exists()


@pytest.mark.usefixtures("small_shards")
def test_policy_skip_leaves_out_counts_and_names(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    bad = spoil(source)
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1, policy="skip")
    train = packed.index.splits["train"]
    assert {one.file for one in train.skipped} == bad.keys()
    assert train.images == 12 and packed.split("train").labels.tolist() == [0] * 6 + [1] * 6
    assert packed.index.splits["val"].skipped == ()
    packed.verify()


@pytest.mark.usefixtures("small_shards")
def test_a_mended_file_makes_only_its_shard_again(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    bad = source / "train/dog/005.jpg"
    bad.write_bytes(b"")
    with pytest.raises(UsageError, match="the file is empty"):
        pack(source, tmp_path / "packed", short_side=16, workers=1)
    made = {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "packed.partial").glob("*.bin")
    }
    assert len(made) == 5
    save(bad, picture(77))
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    for name, time_ns in made.items():
        assert (packed.path / name).stat().st_mtime_ns == time_ns
    clean = pack(source, tmp_path / "clean", short_side=16, workers=1)
    assert contents(clean.path) == contents(packed.path)


@pytest.mark.usefixtures("small_shards")
def test_a_source_file_that_changed_is_read_again(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    (source / "val/dog/001.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match="the file is empty"):
        pack(source, tmp_path / "packed", short_side=16, workers=1)
    for file in ("val/dog/001.jpg", "train/cat/000.jpg"):
        save(source / file, picture(78))
    (source / "train/dog/005.jpg").unlink()
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    clean = pack(source, tmp_path / "clean", short_side=16, workers=1)
    assert contents(clean.path) == contents(packed.path)


@pytest.mark.usefixtures("small_shards")
def test_a_damaged_shard_is_made_again(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    clean = pack(source, tmp_path / "clean", short_side=16, workers=1)
    bad = source / "val/dog/001.jpg"
    whole, time_ns = bad.read_bytes(), bad.stat().st_mtime_ns
    bad.write_bytes(b"")
    with pytest.raises(UsageError):
        pack(source, tmp_path / "packed", short_side=16, workers=1)
    partial = tmp_path / "packed.partial"
    data = bytearray((partial / "train-00001.bin").read_bytes())
    data[9] ^= 255
    (partial / "train-00001.bin").write_bytes(data)
    os.truncate(partial / "train-00002.bin", 5)
    bad.write_bytes(whole)
    os.utime(bad, ns=(time_ns, time_ns))
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    assert contents(clean.path) == contents(packed.path)


SLOW = """
import sys, time
from pathlib import Path
from vflops.data.images import decode, pack_images

def slow(data, short_side, *, enlarge):
    time.sleep(0.02)
    return decode.pixels(data, short_side, enlarge=enlarge)

pack_images.images_per_shard = lambda short_side: 2
pack_images.pixels = slow
if __name__ == "__main__":
    pack_images.pack(Path(sys.argv[1]), Path(sys.argv[2]), short_side=16, workers=2)
"""


def start_slow(tmp_path: Path, source: Path, destination: Path) -> subprocess.Popen[str]:
    """Start a packing of two processes that is slow enough to be stopped half-way."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    return subprocess.Popen(
        [sys.executable, str(script), str(source), str(destination)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("small_shards")
def test_killed_in_the_middle_its_workers_end_and_it_goes_on(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images", train=30, val=2)
    destination = tmp_path / "packed"
    process = start_slow(tmp_path, source, destination)
    partial = tmp_path / "packed.partial"
    wait_until(lambda: len(list(partial.glob(".parts/*.json"))) >= 3)
    workers = children(process.pid)
    assert len(workers) >= 2
    with pytest.raises(UsageError, match="in use by process"):
        pack(source, destination, short_side=16, workers=1)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_alive, workers)))
    assert not destination.exists()
    made = {path.name[:-5]: path.stat().st_mtime_ns for path in partial.glob(".parts/*.json")}
    assert 3 <= len(made) < 32
    packed = pack(source, destination, short_side=16, workers=1)
    clean = pack(source, tmp_path / "clean", short_side=16, workers=1)
    assert contents(clean.path) == contents(packed.path)
    for name, time_ns in made.items():
        assert (packed.path / name).stat().st_mtime_ns <= time_ns, f"{name} was made again"


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = image_folder(tmp_path / "images")

    def press(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        pack(source, tmp_path / "packed", short_side=16, workers=1, on_progress=press)
    assert caught.value.hint == "the same command resumes where it stopped"
    assert list((tmp_path / "packed.partial").glob(".*.tmp")) == []


def test_an_interrupt_of_many_processes_shows_no_traceback(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images", train=30, val=2)
    process = start_slow(tmp_path, source, tmp_path / "packed")
    wait_until(lambda: len(children(process.pid)) >= 3)  # two workers and a resource tracker
    time.sleep(0.2)  # during their imports, before any handler is installed
    os.killpg(process.pid, signal.SIGINT)  # to the whole group, as a terminal does
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "\nvflops.errors.Interrupted: stopped by" in errors
    assert errors.count("Traceback") == 1  # that of the script, which does not catch the error


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_is_the_runs_failure(tmp_path: Path, small_disk: Path, workers: int) -> None:
    source = image_folder(tmp_path / "images", train=4)
    with pytest.raises(RunFailed, match="No space left"):
        pack(source, small_disk / "packed", short_side=500, enlarge=True, workers=workers)
    assert list((small_disk / "packed.partial").glob(".*.tmp")) == []


def test_what_is_packed_already_is_left_alone(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    first = pack(source, tmp_path / "packed", short_side=16, workers=1)
    before = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    assert pack(source, tmp_path / "packed", short_side=16, workers=1).fingerprint
    assert {path: path.stat().st_mtime_ns for path in first.path.iterdir()} == before
    with pytest.raises(UsageError, match="other images or was packed with other settings"):
        pack(source, tmp_path / "packed", short_side=17, workers=1)
    save(source / "train/cat/new.jpg", picture(5))
    with pytest.raises(UsageError, match="source has changed") as caught:
        pack(source, tmp_path / "packed", short_side=16, workers=1)
    assert "remove it" in str(caught.value.hint)


def test_what_is_not_ours_is_never_written_to(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    for name in ("thesis", "thesis2.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chapter.tex").write_text("words")
    with pytest.raises(UsageError, match="holds something else"):
        pack(source, tmp_path / "thesis", short_side=8, workers=1)
    with pytest.raises(UsageError, match="was not created by vflops"):
        pack(source, tmp_path / "thesis2", short_side=8, workers=1)
    assert contents(tmp_path / "thesis") == {"chapter.tex": b"words"}


def test_a_partial_packing_of_another_source_is_refused(tmp_path: Path) -> None:
    one, two = (image_folder(tmp_path / name) for name in ("one", "two"))
    (one / "train/cat/000.jpg").write_bytes(b"")
    with pytest.raises(UsageError, match="empty"):
        pack(one, tmp_path / "packed", short_side=8, workers=1)
    with pytest.raises(UsageError, match=r"packed.partial holds a packing of .*one"):
        pack(two, tmp_path / "packed", short_side=8, workers=1)


def test_the_commands_end_to_end(tmp_path: Path, vflops: Vflops) -> None:
    spoil(image_folder(tmp_path / "images"))
    refused = vflops("data", "pack", "images", "--short-side", 16, "--workers", 1)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert "--policy skip" in refused.stderr
    done = vflops("data", "pack", "images", "--short-side", 16, "--policy", "skip")
    assert done.returncode == 0, done.stderr
    assert "12 images in 1 shard, " in done.stdout and "4 left out" in done.stdout
    assert "next: vflops run image-classification --profile" in done.stderr
    assert "--data images-packed-16 --set target=0.8 --set size=16 --set resize=16" in done.stderr
    assert len(PackedImages.open(tmp_path / "images-packed-16").split("train")) == 12
    verified = vflops("data", "verify", "images-packed-16")
    assert verified.returncode == 0 and "all hashes match" in verified.stdout
    with (tmp_path / "images-packed-16/train-00000.bin").open("r+b") as file:
        file.write(b"\x00\x01\x02\x03")
    assert vflops("data", "verify", "images-packed-16").returncode == 1


def test_no_torch_is_imported() -> None:
    code = (
        "import sys; from vflops.data.images import check_images, image_folder, pack_images; "
        "from vflops.data.images import packed_images; "
        "import vflops.cli.train.data; "
        "print([m for m in ('torch', 'PIL', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_destination_that_is_a_link_is_followed_and_a_mount_point_refused(
    tmp_path: Path, small_disk: Path
) -> None:
    source = image_folder(tmp_path / "images")
    (tmp_path / "disk" / "empty").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "empty")
    assert pack(source, tmp_path / "link", short_side=8, workers=1).verify()
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(UsageError, match="small is a mount point") as caught:
        pack(source, small_disk, short_side=8, workers=1)
    assert "name a folder inside it" in str(caught.value.hint)
    assert not (tmp_path / "small.partial").exists()


def test_images_of_val_in_train_and_images_with_two_labels_are_named(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    shutil.copy(source / "train/cat/002.jpg", source / "val/cat/copy.jpg")
    shutil.copy(source / "train/dog/001.jpg", source / "train/cat/wrong.jpg")
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    found = packed.index.duplicates
    assert found is not None and (found.leaked, found.contradictory) == (1, 1)
    assert found.leak_text.endswith("trained on: val/cat/copy.jpg equals train/cat/002.jpg")
    assert found.contradiction_text.endswith("labels: train/dog/001.jpg equals train/cat/wrong.jpg")
    clean = pack(image_folder(tmp_path / "clean"), tmp_path / "two", short_side=16, workers=1)
    assert clean.index.duplicates is not None and clean.index.duplicates.warnings == []


def test_files_that_were_left_out_do_not_shift_the_names(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    shutil.copy(source / "train/dog/005.jpg", source / "val/dog/copy.jpg")
    (source / "train/cat/000.jpg").write_bytes(b"no image")
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1, policy="skip")
    assert packed.index.duplicates is not None
    (leak,) = packed.index.duplicates.leaks
    assert (leak.sample, leak.same_as) == ("val/dog/copy.jpg", "train/dog/005.jpg")


def test_synthetic_images_are_not_compared_and_keep_the_index_that_they_had(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "images")
    (source / MARK).write_text('{"seed": 1}')
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    assert packed.index.synthetic and packed.index.duplicates is None
    assert "duplicates" not in (packed.path / "index.json").read_text()
