"""Shards of llm.c and modded-nanogpt are read in place; damaged ones are named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.data_text import bin_folder, write_bin
from vflops.data.text.bin_shards import BinFolder, DamagedShard, read_header, split_of
from vflops.data.text.check_text import check_shards
from vflops.data.text.floor import floor_of
from vflops.data.text.index_shards import linked_shards, pack_shards
from vflops.data.text.text_recipe import TextRecipe
from vflops.data.text.token_windows import TokenWindows
from vflops.errors import FolderError, UsageError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path / "cache"))


def test_shards_are_read_in_place(tmp_path: Path) -> None:
    folder = bin_folder(tmp_path / "bin")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    linked = linked_shards(BinFolder.open(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    copied = pack_shards(BinFolder.open(folder), tmp_path / "copied", copy=True)
    assert linked.fingerprint == copied.fingerprint and linked.contents == copied.contents
    used = sum(p.stat(follow_symlinks=False).st_size for p in linked.path.iterdir())
    assert used < 8_000  # links, digests, tables and the index
    windows = TokenWindows(linked.split("val").compare_contents(), 1000)
    out = np.empty((len(windows), 1001), np.int64)
    windows.read(np.arange(len(windows)), out)
    stored = np.fromfile(folder / "fw_val_000000.bin", np.uint16, offset=1024)
    assert np.array_equal(out[:, 1:].reshape(-1), stored[1 : windows.predicted + 1])
    assert linked_shards(BinFolder.open(folder)).path == linked.path
    linked.verify()
    linked.verify_contents()


def test_changed_shards_are_indexed_anew_or_reported(tmp_path: Path) -> None:
    folder = bin_folder(tmp_path / "bin")
    linked = linked_shards(BinFolder.open(folder))
    file = folder / "fw_val_000000.bin"
    status = file.stat()
    data = bytearray(file.read_bytes())
    data[2000] ^= 1
    file.write_bytes(data)
    assert linked_shards(BinFolder.open(folder)).fingerprint != linked.fingerprint
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # a change that hides itself
    windows = TokenWindows(linked.split("val").compare_contents(), 1000)
    with pytest.raises(FolderError, match=r"sample 0 of val .* differs from what was packed"):
        windows.read([0], np.empty((1, 1001), np.int64))


def test_llama_shards_have_32_bits(tmp_path: Path) -> None:
    tokens = np.arange(120_000, 120_500)
    tokens[0] = 128_000
    for name in ("train", "val"):
        write_bin(tmp_path / "bin" / f"{name}.bin", tokens, llama=True)
    linked = linked_shards(BinFolder.open(tmp_path / "bin"))
    assert linked.index.token_type == "uint32" and linked.index.vocabulary == 128_256
    out = np.empty(500, np.int64)
    linked.split("val").read(0, out)
    assert np.array_equal(out, tokens)
    assert linked.split("val").starts.tolist() == [0]


def damaged(data: bytes, change: str) -> bytes:
    header = np.frombuffer(data[:1024], np.int32).copy()
    match change:
        case "truncated":
            return data[:-3]
        case "longer":
            return data + b"\0\0"
        case "headless":
            return data[:1000]
        case "empty":
            return b""
        case "magic":
            header[0] = 7
        case "version":
            header[1] = 2
        case "negative":
            header[2] = -5
    return header.tobytes() + data[1024:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("truncated", "its header says 17,000 tokens, but the file holds 16,998"),
        ("longer", "its header says 17,000 tokens, but the file holds 17,001"),
        ("headless", "has 1000 bytes, fewer than the header"),
        ("empty", "has 0 bytes, fewer than the header"),
        ("magic", "its magic number and version are 7/1"),
        ("version", "its magic number and version are 20240520/2"),
        ("negative", "its header says -5 tokens"),
    ],
)
def test_damaged_shards_are_named(tmp_path: Path, change: str, message: str) -> None:
    folder = bin_folder(tmp_path / "bin")
    file = folder / "fw_val_000000.bin"
    file.write_bytes(damaged(file.read_bytes(), change))
    with pytest.raises(DamagedShard, match=message) as error:
        BinFolder.open(folder)
    assert "fw_val_000000.bin" in error.value.message and error.value.hint


def test_a_pipe_is_not_a_shard(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a_train.bin")
    with pytest.raises(DamagedShard, match="not a regular file"):
        read_header(tmp_path / "a_train.bin")


def test_tokens_beyond_the_vocabulary_are_named(tmp_path: Path) -> None:
    folder = bin_folder(tmp_path / "bin")
    tokens = np.arange(100)
    tokens[42] = 60_000
    write_bin(folder / "fw_val_000000.bin", tokens)
    opened = BinFolder.open(folder)
    with pytest.raises(UsageError, match=r"fw_val_000000\.bin: token 42 is 60000, but the voc"):
        pack_shards(opened, tmp_path / "packed", copy=True)
    report = check_shards(opened, workers=1)
    assert report.problems == (
        "fw_val_000000.bin has the token 60000, but the vocabulary has 50,257 tokens "
        "(--vocabulary N gives that of another tokenizer)",
    )
    assert pack_shards(BinFolder.open(folder, 60_001), tmp_path / "other", copy=True)


@pytest.mark.parametrize("vocabulary", [1, 65_537])
def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path, vocabulary: int) -> None:
    with pytest.raises(UsageError, match=f"vocabulary of {vocabulary:,} tokens does not fit"):
        BinFolder.open(bin_folder(tmp_path / "bin"), vocabulary)


def test_incomplete_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no \.bin file for train"):
        BinFolder.open(tmp_path)
    write_bin(tmp_path / "x_train.bin", np.arange(10))
    with pytest.raises(UsageError, match=r"has 1 \.bin files, but no tokens for val"):
        BinFolder.open(tmp_path)
    write_bin(tmp_path / "x_val.bin", np.arange(10), llama=True)
    with pytest.raises(UsageError, match="mixes shards of gpt2 and llama3"):
        BinFolder.open(tmp_path)


@pytest.mark.parametrize("change", [{"vocabulary": "many"}, {"version": 99}, {"generator": None}])
def test_a_recipe_that_cannot_be_drawn_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    folder = bin_folder(tmp_path / "bin")
    recipe = TextRecipe().as_dict() | change
    (folder / "synthetic.json").write_text(json.dumps(recipe))
    with pytest.raises(FolderError, match="is not a recipe of synthetic text"):
        BinFolder.open(folder)


def test_real_tokens_that_are_called_synthetic_have_no_floor(tmp_path: Path) -> None:
    folder = bin_folder(tmp_path / "bin")
    recipe = TextRecipe(vocabulary=50_257).as_dict()
    (folder / "synthetic.json").write_text(json.dumps(recipe))
    packed = linked_shards(BinFolder.open(folder))
    with pytest.raises(FolderError, match="is not what its recipe draws"):
        floor_of(TokenWindows(packed.split("val"), 64))


def test_documents_in_both_splits_are_found(tmp_path: Path) -> None:
    folder = bin_folder(tmp_path / "bin")
    assert check_shards(BinFolder.open(folder), workers=1).ok
    train = np.fromfile(folder / "fw_train_000001.bin", np.uint16, offset=1024)
    val = np.fromfile(folder / "fw_val_000000.bin", np.uint16, offset=1024)
    val[1000:1500] = train[500:1000]
    write_bin(folder / "fw_val_000000.bin", val)
    report = check_shards(BinFolder.open(folder), workers=2)
    (leak,) = report.leaks
    assert (leak.sample, leak.same_as) == (
        "fw_val_000000.bin, document 3",
        "fw_train_000001.bin, document 2",
    )
    assert not report.ok and report.splits["val"].size == 17_000


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("fineweb_train_000001.bin", "train"),
        ("medieval-train.bin", "train"),
        ("Retrieval_Validation_7.bin", "val"),
        ("tiny.valid.bin", "val"),
    ],
)
def test_the_name_of_a_shard_says_its_split(name: str, split: str) -> None:
    assert split_of(Path(name)) == split


@pytest.mark.parametrize(
    ("name", "message"),
    [("train_val_0.bin", "names both splits"), ("interval_1.bin", "names no split")],
)
def test_a_shard_of_both_splits_or_none_is_refused(name: str, message: str, tmp_path: Path) -> None:
    folder = bin_folder(tmp_path / "bin")
    next(iter(sorted(folder.glob("*train*.bin")))).rename(folder / name)
    with pytest.raises(UsageError, match=message) as error:
        BinFolder.open(folder)
    assert "rename" in str(error.value.hint)
