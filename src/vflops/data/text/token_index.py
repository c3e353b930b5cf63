"""The documents of packed text: ``index.json``, and the part file of a shard."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vflops.data.content_hash import values_header
from vflops.data.packed_index import IndexDocument, ShardEntry, SplitEntry
from vflops.data.text.text_recipe import BLOCK_TOKENS
from vflops.data.workspace import ShardPart
from vflops.errors import UsageError
from vflops.record.files.document import Data
from vflops.record.formats.bounded_numbers import NonNegative

TokenType = Literal["uint8", "uint16", "uint32"]
"""Types of stored tokens, little-endian."""
MAX_VOCABULARY = 1 << 31
"""Models index embeddings by signed 32-bit numbers."""
SHARD_BYTES = 1 << 26
"""The usual size of a shard: small enough that all processes have work."""

_BLOCK_NUMBER = Struct("<q")


def token_type(vocabulary: int) -> TokenType:
    """Return the smallest type that holds the tokens of a vocabulary."""
    if vocabulary > MAX_VOCABULARY:
        raise UsageError(
            f"a vocabulary of {vocabulary:,} tokens is too large",
            hint=f"expected at most {MAX_VOCABULARY:,}",
        )
    return "uint8" if vocabulary <= 1 << 8 else "uint16" if vocabulary <= 1 << 16 else "uint32"


def stored_type(name: TokenType) -> np.dtype[np.unsignedinteger]:
    """Return numpy's type of stored tokens: little-endian on every machine."""
    return np.dtype(name).newbyteorder("<")


def block_header(name: TokenType, tokens: int) -> bytes:
    """Return what is hashed before the tokens of a block."""
    return values_header(name, (tokens,))


def block_annotation(number: int) -> bytes:
    """Return what is hashed as the annotation of a block: where it is in the stream."""
    return _BLOCK_NUMBER.pack(number)


def blocks_of(tokens: int) -> int:
    """Return the number of blocks of a shard; the last may be shorter."""
    return -(-tokens // BLOCK_TOKENS)


class SkippedText(Data):
    """A file, or a line of a file, that was left out."""

    file: str
    reason: str


class Tokenizer(Data):
    """What made the tokens, for whoever compares losses."""

    name: str
    """``bytes``, ``synthetic``, ``tokenizers`` for a file of that library, or the kind of shard."""
    sha256: str | None = None
    """The hash of the tokenizer's file, if there is one."""


class TokenShard(ShardEntry):
    """A file of tokens back to back, after a header."""

    tokens: NonNegative
    header_bytes: int = Field(default=0, ge=0, le=1 << 12)

    @property
    def samples(self) -> int:
        """Number of blocks in the shard."""
        return blocks_of(self.tokens)


class TokenSplitEntry(SplitEntry):
    """The packed text of ``train`` or ``val``: one stream of tokens over its shards."""

    tokens: NonNegative
    documents: NonNegative
    text_bytes: NonNegative | None
    """Bytes of UTF-8 that the tokens stand for, without separators; None if that is not known."""
    skipped: tuple[SkippedText, ...] = ()
    shards: tuple[TokenShard, ...]

    @property
    def samples(self) -> int:
        """Number of blocks in the split."""
        return sum(shard.samples for shard in self.shards)

    @property
    def rows(self) -> int:
        """Number of documents, which the table has one row for."""
        return self.documents


class TokenIndex(IndexDocument):
    """``index.json``: what is packed, and the hash of every file."""

    schema_name: ClassVar[str] = "vflops.packed-text"

    vocabulary: int = Field(ge=2, le=MAX_VOCABULARY)
    token_type: TokenType
    tokenizer: Tokenizer
    separator: NonNegative | None
    """The token between documents; None if there is none."""
    splits: dict[str, TokenSplitEntry]


class TokenPart(ShardPart):
    """What the index and the table need from a finished shard."""

    schema_name: ClassVar[str] = "vflops.packed-part"

    shard: TokenShard
    starts: tuple[int, ...]
    """Where documents begin, counted from the start of the shard."""
    text_bytes: NonNegative | None
    skipped: tuple[SkippedText, ...] = ()


def stored_tokens(data: NDArray[np.uint8], shard: TokenShard, name: TokenType) -> NDArray[np.uint8]:
    """Return the bytes of a shard's tokens, without the header."""
    end = shard.header_bytes + shard.tokens * np.dtype(name).itemsize
    return data[shard.header_bytes : end]
