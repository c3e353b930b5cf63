"""The floor is the loss of the source on exactly the tokens that windows predict."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.support.text_oracle import TextOracle
from vflops.data.text.bin_shards import BinFolder
from vflops.data.text.entropy import entropy_rate
from vflops.data.text.floor import Floor, floor_of, floor_of_recipe
from vflops.data.text.index_shards import pack_shards
from vflops.data.text.packed_text import PackedText
from vflops.data.text.synthetic_text import cached_text, pack, write_folder
from vflops.data.text.text_drawing import draw_block
from vflops.data.text.text_recipe import BLOCK_TOKENS, TextRecipe
from vflops.data.text.token_windows import TokenWindows
from vflops.errors import FolderError, UsageError

RECIPE = TextRecipe(vocabulary=64, seed=9)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedText:
    return pack(RECIPE, tmp_path_factory.mktemp("floor") / "text", 2 * BLOCK_TOKENS, 40_000)


def test_sizes_are_rounded_up_to_blocks(packed: PackedText) -> None:
    assert packed.index.splits["train"].tokens == 2 * BLOCK_TOKENS
    assert packed.index.splits["val"].tokens == 3 * BLOCK_TOKENS
    assert packed.index.synthetic and packed.index.vocabulary == 64
    assert packed.index.token_type == "uint8"
    packed.verify()
    packed.verify_contents()


def test_stored_tokens_are_those_that_are_drawn(packed: PackedText) -> None:
    tokens = np.empty(3 * BLOCK_TOKENS, np.int64)
    split = packed.split("val").compare_contents()
    split.read(0, tokens)
    blocks = [draw_block(RECIPE, "val", number) for number in range(3)]
    assert np.array_equal(tokens, np.concatenate([block.tokens for block in blocks]))
    starts = [block.starts + n * BLOCK_TOKENS for n, block in enumerate(blocks)]
    assert np.array_equal(split.starts, np.concatenate(starts))


@pytest.mark.parametrize("context", [3, 128, 20_000])
def test_the_floor_covers_the_predicted_tokens(packed: PackedText, context: int) -> None:
    windows = TokenWindows(packed.split("val"), context)
    floor = floor_of(windows)
    assert floor is not None and floor.tokens == len(windows) * context
    nats = np.concatenate([draw_block(RECIPE, "val", number).nats for number in range(3)])
    expected = math.fsum(nats[1 : floor.tokens + 1]) / floor.tokens
    assert floor.loss == pytest.approx(expected, rel=1e-12)
    assert floor == floor_of_recipe(RECIPE, "val", windows.predicted)
    assert abs(floor.loss - entropy_rate(RECIPE)) < 5 * floor.standard_error


def test_the_best_predictor_of_windows_gets_no_less_than_the_floor(packed: PackedText) -> None:
    """A predictor that knows the source, but not what came before its window, loses more."""
    oracle = TextOracle(RECIPE)
    windows = TokenWindows(packed.split("val"), 64)
    out = np.empty((40, 65), np.int64)
    windows.read(np.arange(40), out)
    marginal = np.bincount(out.reshape(-1), minlength=64) + 1.0
    marginal /= marginal.sum()
    nats = []
    for row in out.tolist():
        start: int | None = None
        for position, token in enumerate(row):
            if position:
                known = marginal if start is None else oracle.next_token(row[start:position])
                nats.append(-math.log(known[token]))
            if token == 0:
                start = position
    floor = floor_of_recipe(RECIPE, "val", 40 * 64)
    assert len(nats) == floor.tokens
    assert np.mean(nats) > floor.loss - floor.margin()
    # Where the document's start is visible, it pays what the source pays.
    assert np.mean(nats) < np.log(64)


def test_the_margin_bounds_the_luck_of_any_model() -> None:
    """Models of random odds beat the source by the margin less often than the probability says."""
    rng = np.random.default_rng(0)
    tokens, trials, probability = 50, 4000, 0.05
    p = np.array([0.6, 0.3, 0.1])
    q = np.array([0.45, 0.35, 0.2])
    drawn = rng.choice(3, size=(trials, tokens), p=p)
    model, source = -np.log(q)[drawn].mean(axis=1), -np.log(p)[drawn].mean(axis=1)
    margin = Floor(1.0, 0.0, tokens).margin(probability)
    lucky = float(np.mean(model < source - margin))
    assert lucky <= probability
    assert Floor(1.0, 0.0, 10**6).margin(1e-9) == pytest.approx(2.0723e-5, rel=1e-3)


def test_real_text_has_no_floor_and_altered_text_is_refused(
    packed: PackedText, tmp_path: Path
) -> None:
    import shutil

    path = Path(shutil.copytree(packed.path, tmp_path / "altered"))
    data = bytearray((path / "val-00000.bin").read_bytes())
    data[100] ^= 1
    (path / "val-00000.bin").write_bytes(data)
    with pytest.raises(FolderError, match=r"block 0 of val .* is not what its recipe draws"):
        floor_of(TokenWindows(PackedText.open(path).split("val"), 64))


def test_shards_and_packed_text_hold_the_same_tokens(packed: PackedText, tmp_path: Path) -> None:
    folder = write_folder(RECIPE, tmp_path / "drawn", 2 * BLOCK_TOKENS, 40_000)
    shards = BinFolder.open(folder)
    assert (shards.vocabulary, shards.separator) == (64, 0)
    again = pack_shards(shards, tmp_path / "packed", copy=True)
    assert again.index.synthetic and again.index.recipe == packed.index.recipe
    for name in ("train", "val"):
        one, other = (np.empty(t.index.splits[name].tokens, np.int64) for t in (packed, again))
        packed.split(name).read(0, one)
        again.split(name).read(0, other)
        assert np.array_equal(one, other)
    windows = TokenWindows(again.split("val"), 100)
    assert floor_of(windows) == floor_of_recipe(RECIPE, "val", windows.predicted)
    with pytest.raises(UsageError, match="exists and is not empty"):
        write_folder(RECIPE, folder, 1, 1)


def test_the_cache_holds_one_folder_per_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    folder = cached_text(RECIPE, 1, 1)
    assert cached_text(RECIPE, BLOCK_TOKENS, 1) == folder  # the same after rounding up
    assert cached_text(TextRecipe(vocabulary=64, seed=10), 1, 1) != folder
    assert PackedText.open(folder).index.splits["train"].tokens == BLOCK_TOKENS


def test_the_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    one = pack(RECIPE, tmp_path / "one", 20 * BLOCK_TOKENS, 1, workers=1)
    two = pack(RECIPE, tmp_path / "two", 20 * BLOCK_TOKENS, 1, workers=2)
    assert one.fingerprint == two.fingerprint and one.contents == two.contents


@pytest.mark.parametrize(("train", "val"), [(0, 1), (1, -5)])
def test_no_tokens_are_refused(tmp_path: Path, train: int, val: int) -> None:
    with pytest.raises(UsageError, match=r"synthetic text: (0 train|-5 validation) tokens"):
        pack(RECIPE, tmp_path / "text", train, val)
