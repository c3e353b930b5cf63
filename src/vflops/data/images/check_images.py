"""Checks a folder of images: every file decoded to its last pixel, all that is odd named."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vflops.data.images.decode import EMPTY, BadImage, decode, read_file
from vflops.data.images.image_folder import ImageFolder, ImageSplit, some
from vflops.data.process_pool import OnProgress, Reporter, silent, spread, usable_cpus
from vflops.errors import Interrupted
from vflops.record.files.document import Data, Document

_FILES_A_TASK = 64
_DIGEST_BYTES = 16
"""Two of a thousand million different files get the same digest once in 10²⁰ times."""


class Spread(Data):
    """The smallest, the middle and the largest of some sizes in pixels."""

    min: int
    median: int
    max: int


class Unreadable(Data):
    """A file that cannot be decoded."""

    file: str
    reason: str


class Leak(Data):
    """A file of ``val`` that is, byte for byte, also in ``train``."""

    val: str
    train: str


class SplitReport(Data):
    """What was found in ``train`` or ``val``."""

    images: int
    readable: int
    ignored_files: int
    """Hidden, or with a suffix that is no image's."""
    by_class: dict[str, int]
    width: Spread | None
    height: Spread | None
    modes: dict[str, int]
    """By Pillow's names; all but RGB are converted when packed."""


class DataReport(Document):
    """A folder of images, seen to the last pixel; ``ok`` when nothing in it would harm a run."""

    schema_name: ClassVar[str] = "vflops.data-report"

    source: str
    ok: bool
    problems: tuple[str, ...]
    """Why it is not ok, in words."""
    notes: tuple[str, ...]
    """What is odd but harmless."""
    classes: int
    splits: dict[str, SplitReport]
    unreadable: tuple[Unreadable, ...]
    zero_byte: tuple[str, ...]
    empty_classes: tuple[str, ...]
    missing_from_val: tuple[str, ...]
    only_in_val: tuple[str, ...]
    leaks: tuple[Leak, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one file turned out to be; a reason where it cannot be decoded."""

    size: tuple[int, int] | None
    mode: str
    content: bytes
    reason: str | None


def check(
    folder: ImageFolder, *, workers: int | None = None, on_progress: OnProgress = silent
) -> DataReport:
    """Decode every image of ``folder`` and say what is there and what is wrong."""
    starts = [
        (split, start) for split in folder.splits for start in range(0, len(split), _FILES_A_TASK)
    ]
    tasks = [(folder.path, split.files[start : start + _FILES_A_TASK]) for split, start in starts]
    found: dict[int, list[Seen]] = {}
    work = spread(
        _look,
        tasks,
        workers=workers or usable_cpus(),
        total=sum(len(split) for split in folder.splits),
        on_progress=on_progress,
    )
    try:
        with closing(work):
            found.update(work)
    except KeyboardInterrupt:
        raise Interrupted("stopped by the user; nothing was concluded") from None
    seen: dict[str, list[Seen]] = {split.name: [] for split in folder.splits}
    for position, (split, _) in enumerate(starts):
        seen[split.name] += found.pop(position)
    return _report(folder, seen)


def _look(task: tuple[Path, Sequence[str]], report: Reporter) -> list[Seen]:
    root, files = task
    seen = []
    for file in files:
        seen.append(_look_at(root / file))
        report()
    return seen


def _look_at(path: Path) -> Seen:
    content = b""
    try:
        data = read_file(path)
        content = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        image = decode(data)
    except BadImage as bad:
        return Seen(None, "", content, bad.reason)
    return Seen(image.size, image.mode, content, None)


def _report(folder: ImageFolder, seen: dict[str, list[Seen]]) -> DataReport:
    bad = [
        Unreadable(file=file, reason=one.reason)
        for split in folder.splits
        for file, one in zip(split.files, seen[split.name], strict=True)
        if one.reason is not None
    ]
    zero_byte = [one.file for one in bad if one.reason == EMPTY]
    unreadable = [one for one in bad if one.reason != EMPTY]
    leaks = _leaks(folder, seen)
    problems = _problems(folder, unreadable, zero_byte, leaks)
    return DataReport(
        source=str(folder.path),
        ok=not problems,
        problems=tuple(problems),
        notes=tuple(_notes(folder, seen)),
        classes=len(folder.classes),
        splits={split.name: _split_report(split, seen[split.name]) for split in folder.splits},
        unreadable=tuple(unreadable),
        zero_byte=tuple(zero_byte),
        empty_classes=tuple(folder.empty_classes),
        missing_from_val=tuple(folder.missing_from_val),
        only_in_val=tuple(folder.only_in_val),
        leaks=tuple(leaks),
    )


def _split_report(split: ImageSplit, seen: Sequence[Seen]) -> SplitReport:
    sizes = [one.size for one in seen if one.size is not None]
    modes = Counter(one.mode for one in seen if one.size is not None)
    return SplitReport(
        images=len(split),
        readable=len(sizes),
        ignored_files=split.ignored,
        by_class=split.counts,
        width=_spread([width for width, _ in sizes]),
        height=_spread([height for _, height in sizes]),
        modes=dict(sorted(modes.items())),
    )


def _spread(sizes: list[int]) -> Spread | None:
    if not sizes:
        return None
    ordered = sorted(sizes)
    return Spread(min=ordered[0], median=ordered[(len(ordered) - 1) // 2], max=ordered[-1])


def _leaks(folder: ImageFolder, seen: dict[str, list[Seen]]) -> list[Leak]:
    """Files of val that train has too: a network that learnt them by heart would look good."""
    wanted = {one.content for one in seen["val"] if one.content}
    in_train: dict[bytes, str] = {}
    for file, one in zip(folder.train.files, seen["train"], strict=True):
        if one.content in wanted:
            in_train.setdefault(one.content, file)
    return [
        Leak(val=file, train=in_train[one.content])
        for file, one in zip(folder.val.files, seen["val"], strict=True)
        if one.content in in_train
    ]


def _problems(
    folder: ImageFolder,
    unreadable: Sequence[Unreadable],
    zero_byte: list[str],
    leaks: Sequence[Leak],
) -> list[str]:
    found = {
        "files cannot be decoded": [one.file for one in unreadable],
        "files are empty": zero_byte,
        "classes of train have no image": folder.empty_classes,
        "classes are in val but not in train": folder.only_in_val,
        "images of val are also in train": [leak.val for leak in leaks],
    }
    return [f"{len(names):,} {what}: {some(names)}" for what, names in found.items() if names]


def _notes(folder: ImageFolder, seen: dict[str, list[Seen]]) -> list[str]:
    notes = []
    missing = [name for name in folder.missing_from_val if name not in folder.empty_classes]
    if missing:
        notes.append(f"{len(missing):,} classes have no image in val: {some(missing)}")
    modes = Counter(one.mode for of_split in seen.values() for one in of_split if one.size)
    others = [f"{count:,} {mode}" for mode, count in sorted(modes.items()) if mode != "RGB"]
    if others:
        notes.append(f"packing converts to RGB: {', '.join(others)}")
    ignored = sum(split.ignored for split in folder.splits)
    if ignored:
        notes.append(f"{ignored:,} files are hidden or end in no image's suffix: left out")
    return notes
