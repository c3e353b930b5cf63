"""Make ``.bin`` shards readable as packed text: hashed once, and linked to or copied.

The packed folder has digests, a table of documents and an index, as for any other data. Its shards
are links to the original files, which are read in place, or copies of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.cached_data import cached_data
from vflops.data.destination import is_occupied
from vflops.data.new_file import NewFile
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import ShardTask, group_by_split, make_shards
from vflops.data.process_pool import OnProgress, Reporter, no_progress
from vflops.data.synthetic_folder import recipe_of
from vflops.data.text.bin_shards import HEADER_BYTES, SPLITS, BinFolder, BinShard
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_recipe import BLOCK_TOKENS
from vflops.data.text.token_index import Tokenizer, TokenPart, TokenShard, blocks_of
from vflops.data.text.token_writer import block_digests, finish
from vflops.data.workspace import Workspace
from vflops.errors import UsageError
from vflops.machine.system.cpu_share import pool_processes
from vflops.record.files import atomic

_CHUNK_TOKENS = 64 * BLOCK_TOKENS


def linked_shards(folder: BinFolder, on_progress: OnProgress = no_progress) -> PackedText:
    """Return the shards as packed text that reads them in place; its index is in the cache."""
    tasks = _tasks(folder, copy=False)
    name = f"text-{digest([task.source_digest() for task in tasks])[:16]}"
    return PackedText.open(
        cached_data(name, partial(pack_shards, folder, copy=False, on_progress=on_progress))
    )


def pack_shards(
    folder: BinFolder,
    destination: Path,
    *,
    copy: bool,
    workers: int | None = None,
    on_progress: OnProgress = no_progress,
) -> PackedText:
    """Hash the shards of ``folder`` and index them in ``destination``, as links or copies."""
    tasks = _tasks(folder, copy=copy)
    settings = {"vocabulary": folder.vocabulary, "separator": folder.separator, "copy": copy}
    packing = PackingRecord(source=str(folder.path.resolve()), settings=settings)
    workspace = Workspace(destination, packing)
    identity = digest([task.source_digest() for task in tasks])
    if is_occupied(destination):
        workspace.require_same_packing("text", lambda: identity)
        return PackedText.open(destination)
    with workspace.locked():
        parts = make_shards(
            _make_shard,
            tasks,
            workspace,
            workers=workers or pool_processes(),
            on_progress=on_progress,
        )
        recipe = recipe_of(folder.path)
        index = {
            "origin": folder.path.resolve().name,
            "synthetic": recipe is not None,
            "recipe": recipe,
            "vocabulary": folder.vocabulary,
            "token_type": folder.format.token_type,
            "tokenizer": Tokenizer(name="synthetic" if recipe else folder.format.name),
            "separator": folder.separator,
        }
        finish(workspace, index, group_by_split(SPLITS, tasks, parts), identity)
    return PackedText.open(destination)


@dataclass(frozen=True)
class BinShardTask(ShardTask):
    """One shard to hash, and to link to or copy."""

    source: BinShard
    vocabulary: int
    separator: int
    copy: bool

    @property
    def samples(self) -> int:
        """Number of blocks."""
        return blocks_of(self.source.tokens)

    def source_digest(self) -> str:
        """Return a digest of what determines the part, without reading tokens."""
        status = self.source.path.stat()
        path = str(self.source.path.resolve())
        stamp: list[Any] = [path, status.st_size, status.st_mtime_ns, self.shard]
        return digest([*stamp, self.vocabulary, self.separator, self.copy])


def _tasks(folder: BinFolder, *, copy: bool) -> list[BinShardTask]:
    common = (folder.vocabulary, folder.separator, copy)
    return [BinShardTask(split, number, shard, *common) for split, number, shard in folder.shards]


def _make_shard(job: tuple[BinShardTask, Workspace], report: Reporter) -> TokenPart:
    """Hash one shard and link to it or copy it, unless an earlier call did."""
    task, workspace = job
    source_digest = task.source_digest()
    path = workspace.path / task.shard
    part = workspace.finished_part(TokenPart, task.shard, source_digest)
    if part is not None:
        report(task.samples)
        return part
    path.unlink(missing_ok=True)
    if task.copy:
        file = NewFile(path)
        try:
            part = _hash(task, source_digest, report, file)
            file.close()
        except BaseException:
            file.abandon()
            raise
    else:
        part = _hash(task, source_digest, report, None)
        try:
            path.symlink_to(task.source.path.resolve())
        except OSError as error:
            raise atomic.cannot_write(path, error) from error
    workspace.add_part(part)
    return part


def _hash(
    task: BinShardTask, source_digest: str, report: Reporter, copy: NewFile | None
) -> TokenPart:
    source = task.source
    with source.path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    whole = hashlib.sha256(header)
    digests: list[str] = []
    starts: list[int] = []
    if copy is not None:
        copy.write(memoryview(header))
    tokens = source.map() if source.tokens else np.empty(0, np.uint16)
    for first in range(0, source.tokens, _CHUNK_TOKENS):
        chunk = np.asarray(tokens[first : first + _CHUNK_TOKENS])
        _check_tokens(task, chunk, first)
        data = chunk.view(np.uint8).data
        whole.update(data)
        if copy is not None:
            copy.write(data)
        digests += block_digests(chunk, source.format.token_type)
        starts += (np.flatnonzero(chunk == task.separator) + first).tolist()
        report(blocks_of(len(chunk)))
    return TokenPart(
        source_digest=source_digest,
        shard=TokenShard(
            file=task.shard,
            tokens=source.tokens,
            header_bytes=HEADER_BYTES,
            bytes=source.path.stat().st_size,
            sha256=whole.hexdigest(),
        ),
        starts=tuple(starts),
        text_bytes=None,
        digests=tuple(digests),
    )


def _check_tokens(task: BinShardTask, tokens: Any, first: int) -> None:
    large = tokens >= task.vocabulary
    if large.any():
        position = int(np.argmax(large))
        raise UsageError(
            f"{task.source.path}: token {first + position:,} is {int(tokens[position])}, but the "
            f"vocabulary has {task.vocabulary:,} tokens",
            hint="replace the file, or give the vocabulary of the tokenizer that made the shards: "
            "--vocabulary N",
        )
