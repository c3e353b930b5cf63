"""Pack a folder of text: tokenize each document once, so that reading it is only a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.destination import is_occupied
from vflops.data.new_file import NewFile
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import Policy, ShardTask, check_omissions, group_by_split, make_shards
from vflops.data.process_pool import OnProgress, Reporter, no_progress
from vflops.data.text.document_split import VALIDATION_SHARE, check_share, is_held_out
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_folder import (
    ONE_DOCUMENT_PER_FILE,
    BadText,
    TextFolder,
    TextFormat,
    TextPart,
    read_documents,
)
from vflops.data.text.token_index import SkippedText, TokenPart, TokenShard, stored_type
from vflops.data.text.token_writer import block_digests, finish, hash_tokens
from vflops.data.text.tokenizer import TextTokenizer
from vflops.data.workspace import Workspace
from vflops.errors import Hint, UsageError
from vflops.machine.system.cpu_share import pool_processes

_SHARD_TEXT_BYTES = 1 << 25
"""Text per shard: all of it is in memory, and all processes have work."""
_BATCH_DOCUMENTS = 256
"""Number of documents that are tokenized at a time."""
SPLITS = ("train", "val")


@dataclass(frozen=True)
class TextPacking:
    """What determines the packed tokens, besides the text."""

    tokenizer: TextTokenizer
    validation: float = VALIDATION_SHARE
    """The share of documents that is held out."""
    format: TextFormat = ONE_DOCUMENT_PER_FILE

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        tokenizer = self.tokenizer.description
        return {
            "tokenizer": tokenizer.name,
            "sha256": tokenizer.sha256,
            "validation": self.validation,
            **asdict(self.format),
        }


def pack(
    folder: TextFolder,
    destination: Path,
    packing: TextPacking,
    *,
    workers: int | None = None,
    policy: Policy = "fail",
    on_progress: OnProgress = no_progress,
) -> PackedText:
    """Pack the text of ``folder`` into ``destination``; finished shards are kept."""
    tasks = plan(folder, packing, policy)
    settings = packing.settings()
    record = PackingRecord(source=str(folder.path.resolve()), settings=settings)
    workspace = Workspace(destination, record)
    if is_occupied(destination):
        return _packed_before(workspace, tasks, policy)
    with workspace.locked():
        parts = make_shards(
            _make_shard,
            tasks,
            workspace,
            workers=workers or pool_processes(),
            on_progress=on_progress,
        )
        by_split = group_by_split(SPLITS, tasks, parts)
        _require_both_splits(folder, packing, by_split)
        tokenizer = packing.tokenizer
        index = {
            "origin": folder.path.resolve().name,
            "synthetic": False,
            "recipe": None,
            "vocabulary": tokenizer.vocabulary,
            "token_type": tokenizer.token_type,
            "tokenizer": tokenizer.description,
            "separator": tokenizer.separator,
        }
        finish(workspace, index, by_split, identity_of(tasks))
    return PackedText.open(destination)


@dataclass(frozen=True)
class TextShardTask(ShardTask):
    """The parts of files whose documents of one split are in one shard."""

    root: Path
    parts: tuple[TextPart, ...]
    packing: TextPacking
    policy: Policy

    @property
    def samples(self) -> int:
        """Number of files or parts of files; they are counted once, for training."""
        return len(self.parts) if self.split == SPLITS[0] else 0

    def source_digest(self) -> str:
        """Return a digest of what determines the shard's bytes, without reading text."""
        stats = [_size_and_time(self.root / part.file) for part in self.parts]
        parts = [asdict(part) for part in self.parts]
        return digest([self.split, parts, stats, self.packing.settings()])


def plan(folder: TextFolder, packing: TextPacking, policy: Policy) -> list[TextShardTask]:
    """Return the shards to write, in order: about as much text in each.

    Each group of files is read twice: once per split, because only a document's content says
    which one it belongs to.
    """
    check_share(packing.validation)
    groups: list[list[TextPart]] = []
    size = _SHARD_TEXT_BYTES
    for part in folder.parts():
        if size >= _SHARD_TEXT_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.stop - part.start
    return [
        TextShardTask(split, number, folder.path, tuple(group), packing, policy)
        for split in SPLITS
        for number, group in enumerate(groups)
    ]


def identity_of(tasks: Sequence[TextShardTask]) -> str:
    """Return a digest of the source's file names, sizes and times, and of the settings."""
    return digest([task.source_digest() for task in tasks])


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return -1, -1  # reading the file will report the reason
    return status.st_size, status.st_mtime_ns


def _make_shard(job: tuple[TextShardTask, Workspace], report: Reporter) -> TokenPart:
    """Write one shard, unless it is complete and from the same files."""
    task, workspace = job
    source_digest = task.source_digest()
    part = workspace.finished_part(TokenPart, task.shard, source_digest)
    if part is None:
        part = _write_shard(workspace, task, source_digest, report)
    else:
        report(task.samples)
    if part.skipped and task.policy == "fail":
        raise _unusable(task.root, part.skipped[0].file, part.skipped[0].reason)
    return part


def _write_shard(
    workspace: Workspace, task: TextShardTask, source_digest: str, report: Reporter
) -> TokenPart:
    skipped: list[SkippedText] = []
    documents: list[NDArray[Any]] = []
    text_bytes = 0
    batch: list[bytes] = []
    for data in _documents(task, skipped, report):
        text_bytes += len(data)
        batch.append(data)
        if len(batch) == _BATCH_DOCUMENTS:
            documents += task.packing.tokenizer.encode(batch)
            batch.clear()
    documents += task.packing.tokenizer.encode(batch)
    documents = [document for document in documents if len(document)]
    kind = task.packing.tokenizer.token_type
    tokens = np.concatenate([np.empty(0, stored_type(kind)), *documents])
    file = NewFile(workspace.path / task.shard)
    try:
        file.write(tokens.view(np.uint8).data)
        file.close()
    except BaseException:
        file.abandon()
        raise
    ends = np.cumsum([0, *map(len, documents)])
    part = TokenPart(
        source_digest=source_digest,
        shard=TokenShard(
            file=task.shard, tokens=len(tokens), bytes=tokens.nbytes, sha256=hash_tokens(tokens)
        ),
        starts=tuple(ends[:-1].tolist()),
        text_bytes=text_bytes,
        # The same files are read for both splits; one of them names what was left out.
        skipped=tuple(skipped) if task.split == SPLITS[0] else (),
        digests=block_digests(tokens, kind),
    )
    workspace.add_part(part)
    return part


def _documents(
    task: TextShardTask, skipped: list[SkippedText], report: Reporter
) -> Iterator[bytes]:
    """Yield the documents of the task's split; add what is not text to ``skipped``."""
    held_out = task.split == "val"
    for part in task.parts:
        for found in read_documents(task.root, part, task.packing.format):
            if isinstance(found, BadText):
                if task.policy == "fail":
                    raise _unusable(task.root, found.name, found.reason)
                skipped.append(SkippedText(file=found.name, reason=found.reason))
            elif is_held_out(found.data, task.packing.validation) == held_out:
                yield found.data
        report(1 if task.samples else 0)


def _unusable(root: Path, name: str, reason: str) -> UsageError:
    return UsageError(
        f"cannot use {root / name}: {reason}",
        hint="repair or remove it and run the same command again, or leave such text out with "
        f"--policy skip; to list it all: vflops data check {root}",
    )


def _require_both_splits(
    folder: TextFolder, packing: TextPacking, parts: dict[str, list[TokenPart]]
) -> None:
    documents = {name: sum(len(part.starts) for part in parts[name]) for name in SPLITS}
    total = sum(documents.values())
    if not total:
        raise UsageError(
            f"no text of {folder.path} can be used",
            hint=Hint("see why", f"vflops data check {folder.path}"),
        )
    for name, count in documents.items():
        if not count:
            share = f"{packing.validation:g}"
            raise UsageError(
                f"{folder.path} has {total:,} documents, none of which is for {name} with "
                f"--validation {share}",
                hint="hold out another share, for example --validation 0.1; or divide files into "
                "documents, for example at empty lines: --separator '\\n\\n'",
            )


def _packed_before(
    workspace: Workspace, tasks: Sequence[TextShardTask], policy: Policy
) -> PackedText:
    """Open the packing that is already there; raise ``UsageError`` if it differs from this one."""
    workspace.require_same_packing("text", lambda: identity_of(tasks))
    text = PackedText.open(workspace.destination)
    omitted = [
        f"{skipped.file}: {skipped.reason}"
        for split in text.index.splits.values()
        for skipped in split.skipped
    ]
    check_omissions(text.path, omitted, "documents", policy)
    return text
