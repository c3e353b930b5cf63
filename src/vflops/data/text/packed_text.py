"""Read packed text: one stream of tokens per split, compared block by block with its digests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.packed_folder import PackedFolder, PackedSplit
from vflops.data.packed_index import INDEX, REPAIR
from vflops.data.text.text_recipe import BLOCK_TOKENS
from vflops.data.text.token_index import (
    TokenIndex,
    block_annotation,
    block_header,
    stored_tokens,
    stored_type,
)
from vflops.errors import FolderError

_COLUMNS: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {"starts": (np.int64, ())}


class PackedText(PackedFolder[TokenIndex]):
    """A folder of packed text."""

    samples = "blocks"
    index_type = TokenIndex

    def check_index(self) -> None:
        """Raise ``FolderError`` if the index is inconsistent."""
        super().check_index()
        width = stored_type(self.index.token_type).itemsize
        limit = 1 << (8 * width)
        if self.index.vocabulary > limit:
            raise FolderError(
                f"{self.path / INDEX}: a vocabulary of {self.index.vocabulary:,} tokens does not "
                f"fit {self.index.token_type}",
                hint=REPAIR,
            )
        for name, split in self.index.splits.items():
            fits = all(s.bytes == s.header_bytes + s.tokens * width for s in split.shards)
            if not fits or split.tokens != sum(shard.tokens for shard in split.shards):
                raise FolderError(
                    f"{self.path / INDEX}: the shards of {name} do not have {split.tokens} tokens "
                    "in total",
                    hint=REPAIR,
                )

    def split(self, name: str) -> TokenSplit:
        """Return the tokens of ``train`` or ``val``."""
        return TokenSplit(self, name)


class TokenSplit(PackedSplit):
    """The tokens of one split, mapped from their files; safe to read from several threads.

    Its samples are blocks, which are hashed; ``TokenWindows`` has the samples of a training.
    """

    def __init__(self, text: PackedText, name: str) -> None:
        super().__init__(text, name, _COLUMNS)
        self.path = text.path
        self.index = text.index
        self.vocabulary = text.index.vocabulary
        self.tokens: int = text.index.splits[name].tokens
        """Number of tokens."""
        self.starts: NDArray[np.int64] = self.table["starts"]
        """Where documents begin."""
        self._shards = text.index.splits[name].shards
        self._type = stored_type(text.index.token_type)
        sizes = [shard.tokens for shard in self._shards]
        self._firsts: NDArray[np.int64] = np.cumsum([0, *sizes])
        """The first token of each shard, and the end of the last."""
        self._first_blocks = np.cumsum([0, *(shard.samples for shard in self._shards)])
        self._values: list[NDArray[Any] | None] = [None] * len(sizes)
        self._check_table()

    @property
    def longest_document(self) -> int | None:
        """Number of tokens of the longest document; None if it is not known where they begin."""
        if not len(self.starts):
            return None
        bounds = np.concatenate(([0], self.starts, [self.tokens]))
        return int(np.diff(bounds).max())

    def read(self, start: int, out: NDArray[Any]) -> None:
        """Copy the tokens from ``start`` on into ``out``, a flat array of integers."""
        self.compare_range(np.array([start]), len(out))
        self.copy(start, out)

    def copy(self, start: int, out: NDArray[Any]) -> None:
        """Do the same as ``read`` without comparing blocks with their digests."""
        shard = int(np.searchsorted(self._firsts, start, side="right")) - 1
        done = 0
        while done < len(out):
            tokens = self._shard(shard)
            first = start + done - int(self._firsts[shard])
            count = min(len(out) - done, len(tokens) - first)
            out[done : done + count] = tokens[first : first + count]
            done += count
            shard += 1

    def compare_range(self, starts: NDArray[np.int64], count: int) -> None:
        """Compare the blocks of ``count`` tokens from each of ``starts`` on, if they are new."""
        if self.check is None:
            return
        first, last = self._block_of(starts), self._block_of(starts + count - 1)
        widest = int((last - first).max(initial=0))
        touched = np.minimum(first[:, None] + np.arange(widest + 1), last[:, None]).reshape(-1)
        new = touched[~self.check.compared[touched]]
        for number in np.unique(new).tolist():
            self.stored_values(number)

    def header(self, number: int) -> bytes:
        """Return what is hashed before the tokens of a block."""
        return block_header(self.index.token_type, self._block_tokens(number))

    def stored_values(self, number: int) -> NDArray[np.uint8]:
        """Return the bytes of one block, after comparing them with their digest."""
        shard = int(self.shard_of[number])
        first = (number - int(self._first_blocks[shard])) * BLOCK_TOKENS
        values = self._shard(shard)[first : first + BLOCK_TOKENS]
        stored = values.view(np.uint8)
        if self.check is not None and not self.check.compared[number]:
            self.check.compare(number, self.header(number), stored)
            largest = int(values.max())
            if largest >= self.vocabulary:
                self.check.compared[number] = False
                raise FolderError(
                    f"{self.path / self._shards[shard].file} has the token {largest}, but the "
                    f"vocabulary has {self.vocabulary:,}",
                    hint=REPAIR,
                )
        return stored

    def annotations(self) -> Iterator[bytes]:
        """Yield the numbers of blocks as they are hashed: their order matters."""
        return map(block_annotation, range(len(self)))

    def _shard(self, number: int) -> NDArray[Any]:
        values = self._values[number]
        if values is None:
            stored = stored_tokens(
                self.shards.map(number), self._shards[number], self.index.token_type
            )
            values = self._values[number] = stored.view(self._type)
        return values

    def _block_of(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        shards = np.searchsorted(self._firsts, tokens, side="right") - 1
        blocks: NDArray[np.int64] = (
            self._first_blocks[shards] + (tokens - self._firsts[shards]) // BLOCK_TOKENS
        )
        return blocks

    def _block_tokens(self, number: int) -> int:
        shard = int(self.shard_of[number])
        first = (number - int(self._first_blocks[shard])) * BLOCK_TOKENS
        return min(BLOCK_TOKENS, self._shards[shard].tokens - first)

    def _check_table(self) -> None:
        """Raise ``FolderError`` if documents are not in order or lie outside the split."""
        starts = self.starts
        ordered = bool((np.diff(starts) > 0).all())
        if len(starts) and not (ordered and starts[0] >= 0 and starts[-1] < self.tokens):
            raise FolderError(
                f"{self.table_path}: the documents are not in order or lie outside the text",
                hint=REPAIR,
            )
