"""Windows are slices of one stream, whatever its shards; damaged tokens are reported."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.data_text import bin_folder, write_bin
from vflops.data.sampler import Sampler
from vflops.data.text.bin_shards import BinFolder
from vflops.data.text.index_shards import pack_shards
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_recipe import BLOCK_TOKENS
from vflops.data.text.token_windows import TokenWindows
from vflops.errors import CheckFailed, FolderError, UsageError

Tokens = NDArray[np.int64]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedText:
    root = tmp_path_factory.mktemp("windows")
    return pack_shards(BinFolder.open(bin_folder(root / "bin")), root / "packed", copy=True)


def copied(packed: PackedText, destination: Path) -> Path:
    return Path(shutil.copytree(packed.path, destination))


def stream(packed: PackedText, name: str) -> Tokens:
    shards = packed.index.splits[name].shards
    stored = [np.fromfile(packed.path / s.file, "<u2", offset=s.header_bytes) for s in shards]
    return np.concatenate(stored).astype(np.int64)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), context=st.integers(1, 60_000))
def test_windows_are_slices_of_the_stream(
    packed: PackedText, data: st.DataObject, context: int
) -> None:
    tokens = stream(packed, "train")
    split = packed.split("train").compare_contents()
    windows = TokenWindows(split, context)
    assert len(windows) == (len(tokens) - 1) // context
    chosen = data.draw(st.lists(st.integers(0, len(windows) - 1), max_size=5))
    out = np.full((len(chosen), context + 1), -1, data.draw(st.sampled_from(["i4", "i8"])))
    windows.read(chosen, out)
    for row, number in zip(out, chosen, strict=True):
        assert np.array_equal(row, tokens[number * context : (number + 1) * context + 1])


def test_all_windows_predict_each_token_once(packed: PackedText) -> None:
    tokens = stream(packed, "train")
    windows = TokenWindows(packed.split("train"), 700)
    out = np.empty((len(windows), 701), np.int64)
    windows.read(np.arange(len(windows)), out)
    assert np.array_equal(out[:, 1:].reshape(-1), tokens[1 : windows.predicted + 1])
    assert len(tokens) - 1 - windows.predicted < 700


def test_the_order_of_windows_is_a_function_of_seed_and_position(packed: PackedText) -> None:
    windows = TokenWindows(packed.split("train"), 128)
    order = Sampler(len(windows), seed=7).epoch(0)
    assert sorted(order) == list(range(len(windows)))
    one, same = (np.empty((32, 129), np.int64) for _ in range(2))
    windows.read(order[:32], one)
    windows.read(Sampler(len(windows), seed=7).slice(0, 32), same)
    assert np.array_equal(one, same)


def test_threads_read_the_same(packed: PackedText) -> None:
    windows = TokenWindows(packed.split("train").compare_contents(), 64)
    orders = [np.random.default_rng(n).permutation(len(windows))[:100] for n in range(8)]

    def read(order: Tokens) -> Tokens:
        out = np.empty((len(order), 65), np.int64)
        windows.read(order, out)
        return out

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(read, orders))
    for order, result in zip(orders, results, strict=True):
        assert np.array_equal(result, read(order))


def test_blocks_are_compared_when_they_are_first_read(packed: PackedText) -> None:
    split = packed.split("train").compare_contents()
    assert split.check is not None and not split.check.compared.any()
    assert len(split) == 3 + 2  # 40,000 and 20,001 tokens in blocks of 16,384
    TokenWindows(split, 100).read([0], np.empty((1, 101), np.int64))
    assert split.check.compared.tolist() == [True, False, False, False, False]
    last_of_first_shard = (40_000 - 1) // 100
    TokenWindows(split, 100).read([last_of_first_shard], np.empty((1, 101), np.int64))
    assert split.check.compared.tolist() == [True, False, True, True, False]
    split.read(0, np.empty(split.tokens, np.int64))
    assert split.check.compared.all()


@pytest.mark.parametrize("position", [0, BLOCK_TOKENS - 1, BLOCK_TOKENS, 39_999])
def test_a_changed_token_is_reported_when_its_block_is_read(
    packed: PackedText, tmp_path: Path, position: int
) -> None:
    path = copied(packed, tmp_path / "packed")
    file = path / "train-00000.bin"
    data = bytearray(file.read_bytes())
    data[1024 + 2 * position] ^= 1
    file.write_bytes(data)
    text = PackedText.open(path)  # names and sizes are right
    windows = TokenWindows(text.split("train").compare_contents(), 50)
    with pytest.raises(
        FolderError, match=rf"sample {position // BLOCK_TOKENS} of train .* differs"
    ):
        windows.read([position // 50], np.empty((1, 51), np.int64))
    with pytest.raises(CheckFailed, match=r"1 of 7 files differ .*: train-00000\.bin"):
        text.verify()


def test_documents_begin_with_the_separator(packed: PackedText) -> None:
    split = packed.split("train")
    tokens = stream(packed, "train")
    assert np.array_equal(split.starts, np.flatnonzero(tokens == 50_256))
    assert len(split.starts) == packed.index.splits["train"].documents


def test_too_little_text_for_a_window_is_refused(packed: PackedText) -> None:
    split = packed.split("val")
    assert len(TokenWindows(split, 16_999)) == 1
    with pytest.raises(
        UsageError, match="has 17,000 tokens, too few for one window of 17,000"
    ) as e:
        TokenWindows(split, 17_000)
    assert "at most 16,999" in str(e.value.hint)
    with pytest.raises(UsageError, match="the context is 0 tokens"):
        TokenWindows(split, 0)


def test_wrong_buffers_and_numbers_are_refused(packed: PackedText) -> None:
    windows = TokenWindows(packed.split("val"), 10)
    for out in (np.empty((1, 10), np.int64), np.empty((1, 11), np.int16), np.empty((1, 11))):
        with pytest.raises(ValueError, match="expected 32 or 64-bit integers"):
            windows.read([0], out)
    for number in (-1, len(windows)):
        with pytest.raises(IndexError, match="windows are numbered"):
            windows.read([number], np.empty((1, 11), np.int64))


def test_tokens_beyond_the_vocabulary_of_a_forged_index_are_refused(
    packed: PackedText, tmp_path: Path
) -> None:
    path = copied(packed, tmp_path / "packed")
    index = json.loads((path / "index.json").read_text())
    index["vocabulary"] = 1000
    (path / "index.json").write_text(json.dumps(index))
    windows = TokenWindows(PackedText.open(path).split("val").compare_contents(), 10)
    with pytest.raises(FolderError, match=r"val-00000\.bin has the token \d+, but the vocab"):
        windows.read([0], np.empty((1, 11), np.int64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": 100_000}, "100,000 tokens does not fit uint16"),
        ({"token_type": "uint32"}, "do not have 60001 tokens in total"),
    ],
)
def test_inconsistent_indices_are_refused(
    packed: PackedText, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = copied(packed, tmp_path / "packed")
    index = json.loads((path / "index.json").read_text()) | change
    (path / "index.json").write_text(json.dumps(index))
    with pytest.raises(FolderError, match=message):
        PackedText.open(path)


def test_a_shard_without_a_separator_has_no_documents(tmp_path: Path) -> None:
    for name in ("train", "val"):
        write_bin(tmp_path / "bin" / f"{name}.bin", np.arange(300))
    packed = pack_shards(BinFolder.open(tmp_path / "bin"), tmp_path / "packed", copy=True)
    assert len(packed.split("train").starts) == 0
    assert len(TokenWindows(packed.split("train"), 299)) == 1
