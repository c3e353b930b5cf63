"""Check text or token shards: read everything and report what is there and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vflops.data.data_report import DataReport
from vflops.data.duplicates import Sample, content_digest, find_duplicates
from vflops.data.process_pool import OnProgress, Reporter, no_progress, run_all
from vflops.data.text.bin_shards import BinFolder, BinShard
from vflops.data.text.document_split import VALIDATION_SHARE, is_held_out
from vflops.data.text.text_folder import (
    ONE_DOCUMENT_PER_FILE,
    BadText,
    TextFolder,
    TextFormat,
    TextPart,
    read_documents,
)
from vflops.data.text.token_index import SkippedText
from vflops.machine.system.cpu_share import pool_processes
from vflops.record.files.document import Data
from vflops.record.formats.job import EqualSamples

_RESTART = "no results were saved: the same command starts again from the beginning"
_CHUNK_TOKENS = 1 << 22
_MIN_LEAK_TOKENS = 32
"""Shorter documents are equal by chance."""


class LengthRange(Data):
    """Minimum, median and maximum of the lengths of documents."""

    min: int
    median: int
    max: int


class TextSplitReport(Data):
    """What ``train`` or ``val`` contains."""

    documents: int
    size: int
    """Bytes of text, or tokens of shards."""
    length: LengthRange | None
    """Of a document, in the same unit."""


class TextReport(DataReport):
    """The result of reading all text or all tokens of a folder."""

    schema_name: ClassVar[str] = "vflops.text-report"

    unit: str
    """``bytes`` or ``tokens``."""
    files: int
    splits: dict[str, TextSplitReport]
    unusable: tuple[SkippedText, ...]
    repeated: int
    """Number of documents that occur before; of shards, only those of 32 tokens or more count."""
    leaks: tuple[EqualSamples, ...] = ()
    """Documents of ``val`` of 32 tokens or more that are also in ``train``; only shards can have
    any."""
    largest_token: int | None = None
    vocabulary: int | None = None


@dataclass(frozen=True)
class _Found:
    """What a task found: the lengths and digests of documents by split, and what is not text."""

    lengths: dict[str, list[int]]
    contents: dict[str, list[str]]
    unusable: list[SkippedText]
    largest_token: int = 0
    separators: int = 0


def check_text(
    folder: TextFolder,
    format: TextFormat = ONE_DOCUMENT_PER_FILE,
    *,
    validation: float = VALIDATION_SHARE,
    workers: int | None = None,
    on_progress: OnProgress = no_progress,
) -> TextReport:
    """Read every document of ``folder`` and report what is there and what is wrong."""
    parts = folder.parts()
    found = run_all(
        _check_part,
        [(folder.path, part, format, validation) for part in parts],
        workers=workers or pool_processes(),
        total=len(parts),
        on_progress=on_progress,
        done="files are checked",
        hint=_RESTART,
    )
    unusable = tuple(bad for one in found for bad in one.unusable)
    counts = Counter(c for one in found for contents in one.contents.values() for c in contents)
    repeated = sum(counts.values()) - len(counts)
    splits = {name: _split_report(found, name) for name in ("train", "val")}
    problems = []
    if unusable:
        first = unusable[0]
        what = "1 file or line" if len(unusable) == 1 else f"{len(unusable):,} files or lines"
        problems.append(f"{what} cannot be used: {first.file}: {first.reason}")
    if not counts:
        problems.append("there is no document with text")
    notes = []
    if repeated:
        notes.append(f"{repeated:,} of {sum(counts.values()):,} documents occur before")
    if counts and not all(split.documents for split in splits.values()):
        empty = " and ".join(name for name, split in splits.items() if not split.documents)
        notes.append(
            f"with --validation {validation:g}, no document is for {empty}: hold out another share"
        )
    if folder.ignored:
        what = "1 file is" if folder.ignored == 1 else f"{folder.ignored:,} files are"
        notes.append(f"{what} ignored: hidden, or without the suffix of a text file")
    return TextReport(
        source=str(folder.path),
        ok=not problems,
        problems=tuple(problems),
        notes=tuple(notes),
        unit="bytes",
        files=len(folder.files),
        splits=splits,
        unusable=unusable,
        repeated=repeated,
    )


def _check_part(task: tuple[Path, TextPart, TextFormat, float], report: Reporter) -> _Found:
    root, part, format, validation = task
    found = _Found({"train": [], "val": []}, {"train": [], "val": []}, [])
    for document in read_documents(root, part, format):
        if isinstance(document, BadText):
            found.unusable.append(SkippedText(file=document.name, reason=document.reason))
            continue
        split = "val" if is_held_out(document.data, validation) else "train"
        found.lengths[split].append(len(document.data))
        found.contents[split].append(content_digest(document.data))
    report()
    return found


def check_shards(
    folder: BinFolder, *, workers: int | None = None, on_progress: OnProgress = no_progress
) -> TextReport:
    """Read every token of ``folder`` and report what is there and what is wrong."""
    tasks = [(split, shard, folder.separator) for split, _, shard in folder.shards]
    found = run_all(
        _check_shard,
        tasks,
        workers=workers or pool_processes(),
        total=sum(shard.tokens for _, shard, _ in tasks),
        on_progress=on_progress,
        done="shards are checked",
        hint=_RESTART,
    )
    samples: dict[str, list[Sample]] = {"train": [], "val": []}
    for (split, shard, _), one in zip(tasks, found, strict=True):
        named = enumerate(zip(one.lengths[split], one.contents[split], strict=True))
        samples[split] += [
            Sample(f"{shard.path.name}, document {number + 1}", content)
            for number, (length, content) in named
            if length >= _MIN_LEAK_TOKENS
        ]
    leaks = find_duplicates(samples["train"], samples["val"]).leaks
    contents = [sample.content for split in samples.values() for sample in split]
    largest = max(one.largest_token for one in found)
    separated = any(one.separators for one in found)
    notes = () if separated else (f"no document begins with the token {folder.separator}",)
    problems = []
    if largest >= folder.vocabulary:
        name = next(
            task[1].path.name
            for task, one in zip(tasks, found, strict=True)
            if one.largest_token == largest
        )
        problems.append(
            f"{name} has the token {largest}, but the vocabulary has {folder.vocabulary:,} tokens "
            "(--vocabulary N gives that of another tokenizer)"
        )
    if leaks:
        pair = leaks[0]
        problems.append(
            f"{len(leaks):,} documents of val are also in train: {pair.sample} equals "
            f"{pair.same_as}"
        )
    return TextReport(
        source=str(folder.path),
        ok=not problems,
        problems=tuple(problems),
        notes=notes,
        unit="tokens",
        files=len(tasks),
        splits={name: _split_report(found, name) for name in samples},
        unusable=(),
        repeated=len(contents) - len(set(contents)),
        leaks=tuple(leaks),
        largest_token=largest,
        vocabulary=folder.vocabulary,
    )


def _check_shard(task: tuple[str, BinShard, int], report: Reporter) -> _Found:
    """Return the documents of one shard; one that goes on in the next shard counts as two."""
    split, shard, separator = task
    found: dict[str, list[int]] = {"train": [], "val": []}
    contents: dict[str, list[str]] = {"train": [], "val": []}
    if not shard.tokens:
        return _Found(found, contents, [])
    tokens, largest = shard.map(), 0
    starts: list[NDArray[np.int64]] = []
    for first in range(0, shard.tokens, _CHUNK_TOKENS):
        chunk = tokens[first : first + _CHUNK_TOKENS]
        largest = max(largest, int(chunk.max()))
        starts.append(np.flatnonzero(chunk == separator) + first)
        report(len(chunk))
    separators = np.concatenate(starts).tolist()
    bounds = [*separators, shard.tokens]
    if bounds[0] > 0:
        bounds = [0, *bounds]
    documents = list(pairwise(bounds))
    found[split] = [stop - start for start, stop in documents]
    contents[split] = [content_digest(tokens[start:stop].tobytes()) for start, stop in documents]
    return _Found(found, contents, [], largest, len(separators))


def _split_report(found: Sequence[_Found], name: str) -> TextSplitReport:
    lengths = sorted(length for one in found for length in one.lengths[name])
    length = None
    if lengths:
        middle = lengths[(len(lengths) - 1) // 2]
        length = LengthRange(min=lengths[0], median=middle, max=lengths[-1])
    return TextSplitReport(documents=len(lengths), size=sum(lengths), length=length)
