"""Synthetic text in the same forms as real text: ``.bin`` shards, or packed.

Both forms hold the same tokens and appear only when they are complete: they are built in
``DEST.partial``, then renamed. If a call is stopped, the same call resumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.cached_data import OnWait, cached_data, no_wait
from vflops.data.destination import (
    move_into_place,
    require_replaceable,
    require_unoccupied,
    resolve_link,
)
from vflops.data.drawn_shards import Drawing, DrawnShard, draw_shards, shards_of
from vflops.data.new_file import NewFile
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import group_by_split
from vflops.data.process_pool import OnProgress, Reporter, default_workers, no_progress, run_all
from vflops.data.synthetic_folder import begin_folder
from vflops.data.text.bin_shards import FORMATS, header_bytes
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_drawing import draw_block
from vflops.data.text.text_recipe import BLOCK_TOKENS, DOCUMENT, TextRecipe
from vflops.data.text.token_index import (
    SHARD_BYTES,
    Tokenizer,
    TokenPart,
    TokenShard,
    TokenType,
    block_header,
    blocks_of,
    stored_type,
    token_type,
)
from vflops.data.text.token_writer import finish
from vflops.data.workspace import Workspace
from vflops.errors import UsageError

ORIGIN = "synthetic text"

_SMALL_BLOCKS = 64  # drawing fewer is faster than starting other processes
_PIECE_BLOCKS = 8
_BIN_BLOCKS = 128  # blocks per .bin shard: few enough that all processes have work

Starts = tuple[int, ...]
"""Where documents begin in a block."""


def pack(
    recipe: TextRecipe,
    folder: Path,
    train: int,
    val: int,
    on_progress: OnProgress = no_progress,
    workers: int | None = None,
) -> PackedText:
    """Draw text of ``train`` and ``val`` tokens, rounded up to whole blocks, into ``folder``."""
    require_unoccupied(folder)
    splits = _splits(train, val)
    full_recipe = _full_recipe(recipe, splits)
    packing = PackingRecord(source=ORIGIN, settings=full_recipe)
    with Workspace(folder, packing).locked() as workspace:
        if workspace.finished_elsewhere():
            return PackedText.open(folder)
        drawing = TextDrawing(recipe)
        shards = shards_of(splits, SHARD_BYTES // drawing.stride_bytes)
        parts = draw_shards(
            drawing,
            shards,
            workspace,
            workers=workers or default_workers(sum(splits.values()), _SMALL_BLOCKS),
            on_progress=on_progress,
        )
        index = {
            "origin": ORIGIN,
            "synthetic": True,
            "recipe": full_recipe,
            "vocabulary": recipe.vocabulary,
            "token_type": token_type(recipe.vocabulary),
            "tokenizer": Tokenizer(name="synthetic"),
            "separator": DOCUMENT,
        }
        finish(workspace, index, group_by_split(splits, shards, parts), digest(full_recipe))
    return PackedText.open(folder)


def write_folder(
    recipe: TextRecipe,
    folder: Path,
    train: int,
    val: int,
    on_progress: OnProgress = no_progress,
    workers: int | None = None,
) -> Path:
    """Write the same text as ``.bin`` shards, ``train_000000.bin`` and so on, into ``folder``."""
    folder = resolve_link(folder)
    require_unoccupied(folder)
    require_replaceable(folder)
    splits = _splits(train, val)
    partial = begin_folder(folder, _full_recipe(recipe, splits), "tokens")
    tasks = [
        (partial / f"{shard.split}_{shard.number:06d}.bin", recipe, shard)
        for shard in shards_of(splits, _BIN_BLOCKS)
    ]
    blocks = sum(splits.values())
    run_all(
        _write_bin,
        tasks,
        workers=workers or default_workers(blocks, _SMALL_BLOCKS),
        total=blocks,
        on_progress=on_progress,
        done="shards are written",
    )
    move_into_place(partial, folder)
    return folder


def _write_bin(task: tuple[Path, TextRecipe, DrawnShard], report: Reporter) -> None:
    path, recipe, shard = task
    if path.exists():  # an earlier call wrote it
        report(shard.count)
        return
    format = next(f for f in FORMATS if recipe.vocabulary <= np.iinfo(f.token_type).max + 1)
    file = NewFile(path)
    try:
        file.write(memoryview(header_bytes(format, shard.count * BLOCK_TOKENS)))
        for number in range(shard.start, shard.start + shard.count):
            tokens = draw_block(recipe, shard.split, number).tokens
            file.write(tokens.astype(stored_type(format.token_type)).view(np.uint8).data)
            report()
        file.close()
    except BaseException:
        file.abandon()
        raise


def cached_text(
    recipe: TextRecipe,
    train: int,
    val: int,
    on_progress: OnProgress = no_progress,
    on_wait: OnWait = no_wait,
) -> Path:
    """Return the folder of this packed text in the cache; create it if it is missing."""
    name = f"text-{digest(_full_recipe(recipe, _splits(train, val)))[:16]}"
    return cached_data(name, lambda folder: pack(recipe, folder, train, val, on_progress), on_wait)


@dataclass(frozen=True)
class TextDrawing(Drawing[Starts, TokenPart]):
    """Blocks of a recipe, as they are stored."""

    part_type = TokenPart

    recipe: TextRecipe

    @property
    def token_type(self) -> TokenType:
        """The type of stored tokens."""
        return token_type(self.recipe.vocabulary)

    @property
    def stride_bytes(self) -> int:
        """Bytes of a block."""
        return BLOCK_TOKENS * stored_type(self.token_type).itemsize

    @property
    def sample_bytes(self) -> int:
        """Bytes of a block."""
        return self.stride_bytes

    @property
    def header(self) -> bytes:
        """What is hashed before the tokens of a block."""
        return block_header(self.token_type, BLOCK_TOKENS)

    @property
    def piece_samples(self) -> int:
        """Number of blocks that a process draws at a time."""
        return _PIECE_BLOCKS

    def draw(
        self, split: str, start: int, count: int
    ) -> Iterator[tuple[NDArray[Any], list[Starts]]]:
        """Yield the tokens of each block, and where its documents begin."""
        for number in range(start, start + count):
            block = draw_block(self.recipe, split, number)
            tokens = block.tokens.astype(stored_type(self.token_type))
            yield tokens, [tuple(block.starts.tolist())]

    def part(
        self, shard: DrawnShard, sha256: str, digests: tuple[str, ...], facts: Sequence[Starts]
    ) -> TokenPart:
        """Return the part of a complete shard."""
        starts = [
            np.asarray(starts, np.int64) + block * BLOCK_TOKENS
            for block, starts in enumerate(facts)
        ]
        return TokenPart(
            source_digest="",
            shard=TokenShard(
                file=shard.shard,
                tokens=shard.count * BLOCK_TOKENS,
                bytes=shard.count * self.stride_bytes,
                sha256=sha256,
            ),
            starts=tuple(np.concatenate(starts).tolist()),
            text_bytes=None,
            digests=digests,
        )


def _splits(train: int, val: int) -> dict[str, int]:
    """Return the number of blocks by split."""
    for name, tokens in (("train", train), ("validation", val)):
        if tokens < 1:
            raise UsageError(f"synthetic text: {tokens} {name} tokens", hint="give 1 or more")
    return {"train": blocks_of(train), "val": blocks_of(val)}


def _full_recipe(recipe: TextRecipe, blocks: dict[str, int]) -> dict[str, Any]:
    tokens = {name: count * BLOCK_TOKENS for name, count in blocks.items()}
    return {**recipe.as_dict(), "tokens": tokens}
