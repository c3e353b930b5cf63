"""Check a folder of images: decode every file completely and report what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vflops.data.data_report import DataReport
from vflops.data.duplicates import Sample, content_digest, find_duplicates
from vflops.data.images.decode import EMPTY, BadImage, decode, read_file
from vflops.data.images.image_folder import ImageFolder, ImageSplit, first_few
from vflops.data.process_pool import OnProgress, Reporter, no_progress, run_all
from vflops.machine.system.cpu_share import pool_processes
from vflops.record.files.document import Data
from vflops.record.formats.job import EqualSamples

_FILES_PER_TASK = 64


class SizeRange(Data):
    """Minimum, median and maximum of sizes in pixels."""

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
    """What ``train`` or ``val`` contains."""

    images: int
    readable: int
    ignored_files: int
    """Hidden files and files without the suffix of an image."""
    by_class: dict[str, int]
    width: SizeRange | None
    height: SizeRange | None
    modes: dict[str, int]
    """Number of images by Pillow's colour mode; all but RGB are converted when packed."""


class ImageReport(DataReport):
    """The result of decoding every image of a folder."""

    schema_name: ClassVar[str] = "vflops.data-report"

    classes: int
    splits: dict[str, SplitReport]
    unreadable: tuple[Unreadable, ...]
    zero_byte: tuple[str, ...]
    empty_classes: tuple[str, ...]
    missing_from_val: tuple[str, ...]
    only_in_val: tuple[str, ...]
    leaks: tuple[Leak, ...]
    contradictions: tuple[EqualSamples, ...] = ()
    """Files that occur before, byte for byte, in another class."""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """What is known about one file after reading it."""

    size: tuple[int, int] | None
    mode: str
    content: str
    """A digest of the file's bytes; empty if it cannot be read."""
    reason: str | None
    """Why the image cannot be decoded."""


def check(
    folder: ImageFolder, *, workers: int | None = None, on_progress: OnProgress = no_progress
) -> ImageReport:
    """Decode every image of ``folder`` and report what is there and what is wrong."""
    starts = [
        (split, start) for split in folder.splits for start in range(0, len(split), _FILES_PER_TASK)
    ]
    tasks = [(folder.path, split.files[start : start + _FILES_PER_TASK]) for split, start in starts]
    results = run_all(
        _check_files,
        tasks,
        workers=workers or pool_processes(),
        total=sum(len(split) for split in folder.splits),
        on_progress=on_progress,
        done="groups of files are checked",
        hint="no results were saved: the same command starts again from the beginning",
    )
    checked: dict[str, list[CheckedFile]] = {split.name: [] for split in folder.splits}
    for (split, _), files in zip(starts, results, strict=True):
        checked[split.name] += files
    return _report(folder, checked)


def _check_files(task: tuple[Path, Sequence[str]], report: Reporter) -> list[CheckedFile]:
    root, files = task
    checked = []
    for file in files:
        checked.append(_check_file(root / file))
        report()
    return checked


def _check_file(path: Path) -> CheckedFile:
    content = ""
    try:
        data = read_file(path)
        content = content_digest(data)
        image = decode(data)
    except BadImage as bad:
        return CheckedFile(None, "", content, bad.reason)
    return CheckedFile(image.size, image.mode, content, None)


def _report(folder: ImageFolder, checked: dict[str, list[CheckedFile]]) -> ImageReport:
    bad = [
        Unreadable(file=name, reason=file.reason)
        for split in folder.splits
        for name, file in zip(split.files, checked[split.name], strict=True)
        if file.reason is not None
    ]
    zero_byte = [file.file for file in bad if file.reason == EMPTY]
    unreadable = [file for file in bad if file.reason != EMPTY]
    duplicates = find_duplicates(*(_samples(split, checked) for split in folder.splits))
    leaks = [Leak(val=pair.sample, train=pair.same_as) for pair in duplicates.leaks]
    contradictions = duplicates.contradictions
    problems = _problems(folder, unreadable, zero_byte, leaks, contradictions)
    return ImageReport(
        source=str(folder.path),
        ok=not problems,
        problems=tuple(problems),
        notes=tuple(_notes(folder, checked)),
        classes=len(folder.classes),
        splits={split.name: _split_report(split, checked[split.name]) for split in folder.splits},
        unreadable=tuple(unreadable),
        zero_byte=tuple(zero_byte),
        empty_classes=tuple(folder.empty_classes),
        missing_from_val=tuple(folder.missing_from_val),
        only_in_val=tuple(folder.only_in_val),
        leaks=tuple(leaks),
        contradictions=tuple(contradictions),
    )


def _split_report(split: ImageSplit, checked: Sequence[CheckedFile]) -> SplitReport:
    sizes = [file.size for file in checked if file.size is not None]
    modes = Counter(file.mode for file in checked if file.size is not None)
    return SplitReport(
        images=len(split),
        readable=len(sizes),
        ignored_files=split.ignored,
        by_class=split.counts,
        width=_size_range([width for width, _ in sizes]),
        height=_size_range([height for _, height in sizes]),
        modes=dict(sorted(modes.items())),
    )


def _size_range(sizes: list[int]) -> SizeRange | None:
    if not sizes:
        return None
    ordered = sorted(sizes)
    return SizeRange(min=ordered[0], median=ordered[(len(ordered) - 1) // 2], max=ordered[-1])


def _samples(split: ImageSplit, checked: dict[str, list[CheckedFile]]) -> list[Sample]:
    rows = zip(split.files, checked[split.name], split.class_of, strict=True)
    return [Sample(name, file.content, label) for name, file, label in rows if file.content]


def _problems(
    folder: ImageFolder,
    unreadable: Sequence[Unreadable],
    zero_byte: list[str],
    leaks: Sequence[Leak],
    contradictions: Sequence[EqualSamples],
) -> list[str]:
    faults = (
        ("{} cannot be decoded", "file", [file.file for file in unreadable]),
        ("{} {is} empty", "file", zero_byte),
        ("{} of train {has} no image", "class", folder.empty_classes),
        ("{} {is} in val but not in train", "class", folder.only_in_val),
        ("{} of val {is} also in train", "image", [leak.val for leak in leaks]),
        ("{} {occurs} in two classes", "image", [pair.sample for pair in contradictions]),
    )
    return [
        f"{_agree(what, noun, len(names))}: {first_few(names)}"
        for what, noun, names in faults
        if names
    ]


def _agree(sentence: str, noun: str, number: int) -> str:
    """Return ``sentence`` with the number of things, and verbs that agree with it."""
    if number == 1:
        return sentence.format(f"1 {noun}", **{"is": "is", "has": "has", "occurs": "occurs"})
    many = f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"
    return sentence.format(many, **{"is": "are", "has": "have", "occurs": "occur"})


def _notes(folder: ImageFolder, checked: dict[str, list[CheckedFile]]) -> list[str]:
    notes = []
    missing = [name for name in folder.missing_from_val if name not in folder.empty_classes]
    if missing:
        without = _agree("{} {has} no image in val", "class", len(missing))
        notes.append(f"{without}: {first_few(missing)}")
    modes = Counter(file.mode for files in checked.values() for file in files if file.size)
    others = [f"{count:,} {mode}" for mode, count in sorted(modes.items()) if mode != "RGB"]
    if others:
        notes.append(f"packing converts to RGB: {', '.join(others)}")
    ignored = sum(split.ignored for split in folder.splits)
    if ignored:
        notes.append(
            _agree("{} {is} ignored: hidden, or without the suffix of an image", "file", ignored)
        )
    return notes
