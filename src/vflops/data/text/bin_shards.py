"""The ``.bin`` shards of llm.c and modded-nanogpt: a header of 256 int32, then the tokens."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflops.data.data_kind import require_folder
from vflops.data.synthetic_folder import recipe_of
from vflops.data.text.text_recipe import DOCUMENT, TextRecipe
from vflops.data.text.token_index import TokenType, stored_type
from vflops.errors import UsageError
from vflops.record.files.regular_file import open_regular

HEADER_BYTES = 256 * 4
_HEADER = struct.Struct("<3i")
SPLITS = ("train", "val")
_SPLIT_WORDS = {"train": {"train", "training"}, "val": {"val", "valid", "validation"}}
_LAYOUT = "expected files such as {0}/NAME_train_000001.bin and {0}/NAME_val_000000.bin"
_RESTORE = "copy or download the file again"


class DamagedShard(UsageError):
    """A ``.bin`` file that is not a complete token shard."""


@dataclass(frozen=True)
class ShardFormat:
    """One of the known kinds of shards, and the tokenizer that it is usually made with."""

    name: str
    magic: int
    version: int
    token_type: TokenType
    vocabulary: int
    separator: int
    """The token that begins a document."""


FORMATS = (
    ShardFormat("gpt2", 20240520, 1, "uint16", 50257, 50256),
    ShardFormat("llama3", 20240801, 7, "uint32", 128256, 128000),
)


@dataclass(frozen=True)
class BinShard:
    """A shard whose header and size are valid."""

    path: Path
    format: ShardFormat
    tokens: int

    def map(self) -> NDArray[np.unsignedinteger]:
        """Return the tokens, mapped into memory."""
        return np.memmap(
            self.path, stored_type(self.format.token_type), "r", HEADER_BYTES, (self.tokens,)
        )


@dataclass(frozen=True)
class BinFolder:
    """The shards of ``train`` and ``val`` in a folder, sorted by name."""

    path: Path
    splits: dict[str, tuple[BinShard, ...]]
    vocabulary: int
    separator: int

    @classmethod
    def open(
        cls, path: Path, vocabulary: int | None = None, separator: int | None = None
    ) -> BinFolder:
        """Open the shards in ``path``; raise ``UsageError`` if one is damaged or none is there.

        The vocabulary and the token that begins a document are those of GPT-2 or Llama 3 by
        default, according to the headers; synthetic text has its own.
        """
        require_folder(path, "token shards", _LAYOUT.format(path))
        files = sorted(file for file in path.glob("*.bin") if not file.name.startswith("."))
        named = [(split_of(file), file) for file in files]
        splits = {
            name: tuple(read_header(file) for split, file in named if split == name)
            for name in SPLITS
        }
        for name, shards in splits.items():
            if not sum(shard.tokens for shard in shards):
                what = f"{len(files)} .bin files, but no tokens" if files else "no .bin file"
                raise UsageError(f"{path} has {what} for {name}", hint=_LAYOUT.format(path))
        formats = {shard.format for shards in splits.values() for shard in shards}
        if len(formats) > 1:
            names = " and ".join(sorted(known.name for known in formats))
            raise UsageError(
                f"{path} mixes shards of {names}", hint="keep the shards of one tokenizer"
            )
        format = formats.pop()
        recipe = recipe_of(path)
        if vocabulary is None:
            vocabulary = TextRecipe.from_dict(recipe).vocabulary if recipe else format.vocabulary
        if separator is None:
            separator = DOCUMENT if recipe else format.separator
        limit = 1 << (8 * stored_type(format.token_type).itemsize)
        if not 2 <= vocabulary <= limit:
            raise UsageError(
                f"a vocabulary of {vocabulary:,} tokens does not fit the shards of {path}, which "
                f"hold {format.token_type}",
                hint=f"give that of the tokenizer, 2 to {limit:,}: --vocabulary N",
            )
        return cls(path, splits, vocabulary, separator)

    @property
    def format(self) -> ShardFormat:
        """The format of all shards."""
        return self.splits["train"][0].format

    @property
    def shards(self) -> list[tuple[str, int, BinShard]]:
        """Split, number and shard, in order."""
        return [(s, n, shard) for s in SPLITS for n, shard in enumerate(self.splits[s])]


def split_of(file: Path) -> str:
    """Return the split that the name of a shard says, a part of it between ``_``, ``-`` or dots.

    Raise ``UsageError`` if it names both or none: validating on training text gives a wrong loss.
    """
    parts = set(re.split(r"[_.\-]+", file.stem.lower()))
    found = [name for name, words in _SPLIT_WORDS.items() if parts & words]
    if len(found) != 1:
        what = "names both splits" if found else "names no split"
        raise UsageError(
            f"{file.name} {what}, of {' and '.join(SPLITS)}",
            hint=f"rename {file} to such as fineweb_train_000001.bin or fineweb_val_000000.bin, or "
            "move it out of the folder",
        )
    return found[0]


def header_bytes(format: ShardFormat, tokens: int) -> bytes:
    """Return the header of a shard."""
    return _HEADER.pack(format.magic, format.version, tokens).ljust(HEADER_BYTES, b"\0")


def read_header(path: Path) -> BinShard:
    """Return what the header of a shard says; raise ``DamagedShard`` if it does not match."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_HEADER.size)
    except OSError as error:
        reason = error.strerror or error
        raise DamagedShard(f"cannot read {path}: {reason}", hint=_RESTORE) from error
    if size < HEADER_BYTES or len(start) < _HEADER.size:
        raise DamagedShard(
            f"{path} has {size} bytes, fewer than the header of a token shard, {HEADER_BYTES}",
            hint=_RESTORE,
        )
    magic, version, tokens = _HEADER.unpack(start)
    known = [format for format in FORMATS if (format.magic, format.version) == (magic, version)]
    if not known:
        expected = " or ".join(f"{format.magic}/{format.version}" for format in FORMATS)
        raise DamagedShard(
            f"{path} is not a token shard: its magic number and version are {magic}/{version}",
            hint=f"expected {expected}, as llm.c and modded-nanogpt write them",
        )
    width = stored_type(known[0].token_type).itemsize
    if tokens < 0 or size != HEADER_BYTES + tokens * width:
        stored = (size - HEADER_BYTES) // width
        raise DamagedShard(
            f"{path} is truncated or damaged: its header says {tokens:,} tokens, but the file "
            f"holds {stored:,}",
            hint=_RESTORE,
        )
    return BinShard(path, known[0], tokens)
