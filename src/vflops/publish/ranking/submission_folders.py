"""Where submissions are: run folders and archives below the folders that are named."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vflops.errors import FolderError, UsageError, VflopsError
from vflops.results.evidence.evidence_names import walk

ARCHIVE = ".tar.bz2"
"""How the files end that ``vflops archive`` makes."""
MOST_JSON = 16 << 20
MOST_LOG = 128 << 20
MOST_ARCHIVE = 1 << 30
"""Bytes of a file; a run of a thousand models stays far below."""
MOST_FILES = 100_000
MOST_TOTAL = 2 << 30
"""Bytes of all files of a run that are evidence, together."""
_DEPTH = 4


@dataclass(frozen=True)
class Submission:
    """A run folder or an archive of one."""

    path: Path
    place: str
    """Below the folder that was named."""
    source: str
    """The folder that it lies in; a signature, where there is one, says it better."""
    archive: bool

    def fingerprint(self) -> str:
        """Changes when a file of it does: names, sizes and times, without reading any.

        The time of the last change cannot be set back by a program, so an edited file is seen.
        """
        digest = hashlib.sha256(f"{self.place}\n{self.source}\n".encode(errors="backslashreplace"))
        try:
            for name, found in _files(self.path):
                times = f"{found.st_mtime_ns} {found.st_ctime_ns}"
                line = f"{name} {found.st_size} {times} {found.st_mode}\n"
                digest.update(line.encode(errors="backslashreplace"))
        except (OSError, VflopsError) as error:  # the entry will say so
            digest.update(str(error).encode(errors="backslashreplace"))
        return digest.hexdigest()


def find(
    folders: Sequence[Path], leave_out: Path, skipped: list[Path] | None = None
) -> list[Submission]:
    """All submissions, by their places; ``leave_out`` is the site itself.

    Files that are none are added to ``skipped``.
    """
    found: dict[Path, Submission] = {}
    others: list[Path] = [] if skipped is None else skipped
    for folder in folders:
        if not folder.exists():
            raise UsageError(
                f"{folder} does not exist", hint="name folders that hold run folders or archives"
            )
        base = (
            folder.resolve()
        )  # links inside are not followed, so that all below is as it is named
        for path in _walk(base, leave_out.resolve(), _DEPTH, others):
            below = path.relative_to(base)
            place = base.name if path == base else str(below)
            source = below.parts[0] if len(below.parts) > 1 else ""
            found.setdefault(path, Submission(path, place, source, path.name.endswith(ARCHIVE)))
    return sorted(found.values(), key=lambda each: (each.place, each.path))


def bounded(folder: Path) -> None:
    """An error unless the files of a run folder are plain and of a size that one can read."""
    total = 0
    for count, (name, found) in enumerate(_files(folder)):
        most = (
            MOST_LOG if name.endswith(".jsonl") else MOST_JSON if name.endswith(".json") else None
        )
        if not stat.S_ISREG(found.st_mode):
            raise FolderError(f"{name} is a link or no plain file")
        if most is not None and found.st_size > most:
            raise FolderError(
                f"{name} has {found.st_size >> 20} MiB, at most {most >> 20} are read"
            )
        total += found.st_size
        if total > MOST_TOTAL:
            raise FolderError(f"it holds more than {MOST_TOTAL >> 20} MiB")
        if count >= MOST_FILES:
            raise FolderError(f"it holds more than {MOST_FILES} files")


def _walk(path: Path, leave_out: Path, depth: int, others: list[Path]) -> Iterator[Path]:
    """Archives and run folders below ``path``, or that itself, in the order of their names."""
    if path.is_file():
        if path.name.endswith(ARCHIVE):
            yield path
        else:
            others.append(path)
        return
    try:
        with os.scandir(path) as inside:
            entries = sorted(inside, key=lambda each: each.name)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if any(each.name == "run.json" for each in entries):
        yield path
        return
    for each in entries:
        if each.is_dir(follow_symlinks=False):
            hidden = each.name.startswith(".")
            if depth and not hidden and (below := path / each.name) != leave_out:
                yield from _walk(below, leave_out, depth - 1, others)
        elif each.is_file(follow_symlinks=False) and each.name.endswith(ARCHIVE):
            yield path / each.name
        elif not each.name.startswith("."):
            others.append(path / each.name)


def _files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a submission and what the file system knows of them, sorted.

    Of a folder those that verifying looks at: what is left out there is no part of a result.
    """
    if path.is_file():
        return iter([("", path.stat())])
    found = sorted(islice(walk(path), MOST_FILES + 1), key=lambda each: each[0])
    return ((name, entry.stat(follow_symlinks=False)) for name, entry in found)
