"""Write the tables, the digests and the index of packed text for shards that are complete."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.content_hash import as_digests, values_digest, write_digests
from vflops.data.packed_index import SplitContents
from vflops.data.split_table import write_table
from vflops.data.text.text_recipe import BLOCK_TOKENS
from vflops.data.text.token_index import (
    TokenIndex,
    TokenPart,
    TokenSplitEntry,
    TokenType,
    block_annotation,
    block_header,
    blocks_of,
)
from vflops.data.workspace import Workspace


def block_digests(tokens: NDArray[Any], name: TokenType) -> tuple[str, ...]:
    """Return the values digest of each block of stored tokens."""
    digests = []
    for start in range(0, len(tokens), BLOCK_TOKENS):
        block = tokens[start : start + BLOCK_TOKENS]
        header = block_header(name, len(block))
        digests.append(values_digest(header, block.view(np.uint8).data).hex())
    return tuple(digests)


def finish(
    workspace: Workspace,
    index_fields: Mapping[str, Any],
    parts: Mapping[str, Sequence[TokenPart]],
    identity: str,
) -> None:
    """Write the tables and the index for the shards of each split, and rename the folder."""
    splits = {
        name: _write_split(workspace.path, name, split_parts) for name, split_parts in parts.items()
    }
    contents = {
        name: _write_digests(workspace.path, name, split_parts)
        for name, split_parts in parts.items()
    }
    index = TokenIndex.model_validate({**index_fields, "splits": splits, "contents": contents})
    workspace.finish(index, identity)


def _write_split(folder: Path, name: str, parts: Sequence[TokenPart]) -> TokenSplitEntry:
    firsts = np.cumsum([0, *(part.shard.tokens for part in parts)])
    starts = [
        np.asarray(part.starts, np.int64) + first
        for part, first in zip(parts, firsts[:-1], strict=True)
    ]
    sizes = [part.text_bytes for part in parts]
    return TokenSplitEntry(
        tokens=int(firsts[-1]),
        documents=sum(map(len, starts)),
        text_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        skipped=tuple(skipped for part in parts for skipped in part.skipped),
        table=write_table(
            folder, name, {"starts": np.concatenate([np.empty(0, np.int64), *starts])}
        ),
        shards=tuple(part.shard for part in parts if part.shard.tokens),
    )


def _write_digests(folder: Path, name: str, parts: Sequence[TokenPart]) -> SplitContents:
    digests = as_digests([content for part in parts for content in part.digests])
    blocks = sum(blocks_of(part.shard.tokens) for part in parts)
    return write_digests(folder, name, digests, map(block_annotation, range(blocks)))


def hash_tokens(tokens: NDArray[Any]) -> str:
    """Return the SHA-256 of stored tokens."""
    return hashlib.sha256(tokens.view(np.uint8).data).hexdigest()
