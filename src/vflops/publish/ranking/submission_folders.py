"""Submissions: run folders and archives below the named folders."""

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
"""The suffix of the files that ``vflops archive`` writes."""
MOST_JSON = 16 << 20
MOST_LOG = 128 << 20
MOST_ARCHIVE = 1 << 30
"""Maximum sizes of files in bytes; a run of a thousand models stays far below."""
MOST_FILES = 100_000
MOST_TOTAL = 2 << 30
"""The maximum size of all files of a run together, in bytes."""
_DEPTH = 4


@dataclass(frozen=True)
class Submission:
    """A run folder or an archive of one."""

    path: Path
    place: str
    """Its path below the named folder."""
    source: str
    """The folder that it is in; a signature takes precedence."""
    archive: bool

    def fingerprint(self) -> str:
        """Return a hash of names, sizes and times of its files, without reading them.

        Programs cannot reset the time of the last change, so every edited file is noticed.
        """
        digest = hashlib.sha256(f"{self.place}\n{self.source}\n".encode(errors="backslashreplace"))
        try:
            for name, status in _files(self.path):
                times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
                line = f"{name} {status.st_size} {times} {status.st_mode}\n"
                digest.update(line.encode(errors="backslashreplace"))
        except (OSError, VflopsError) as error:  # reading the entry will report it
            digest.update(str(error).encode(errors="backslashreplace"))
        return digest.hexdigest()


def find(
    folders: Sequence[Path], leave_out: Path, skipped: list[Path] | None = None
) -> list[Submission]:
    """Return all submissions by path; ``leave_out`` is the site itself.

    Files that are not submissions are added to ``skipped``.
    """
    submissions: dict[Path, Submission] = {}
    others: list[Path] = [] if skipped is None else skipped
    for folder in folders:
        if not folder.exists():
            raise UsageError(
                f"{folder} does not exist", hint="name folders that hold run folders or archives"
            )
        base = folder.resolve()  # links inside are not followed
        for path in _walk(base, leave_out.resolve(), _DEPTH, others):
            below = path.relative_to(base)
            place = base.name if path == base else str(below)
            source = below.parts[0] if len(below.parts) > 1 else ""
            submissions.setdefault(
                path, Submission(path, place, source, path.name.endswith(ARCHIVE))
            )
    return sorted(submissions.values(), key=lambda submission: (submission.place, submission.path))


def bounded(folder: Path) -> None:
    """Raise unless the files of a run folder are regular and small enough to read."""
    total = 0
    for count, (name, status) in enumerate(_files(folder)):
        most = (
            MOST_LOG if name.endswith(".jsonl") else MOST_JSON if name.endswith(".json") else None
        )
        if not stat.S_ISREG(status.st_mode):
            raise FolderError(f"{name} is not a regular file")
        if most is not None and status.st_size > most:
            raise FolderError(
                f"{name} has {status.st_size >> 20} MiB; at most {most >> 20} MiB are read"
            )
        total += status.st_size
        if total > MOST_TOTAL:
            raise FolderError(f"it holds more than {MOST_TOTAL >> 20} MiB")
        if count >= MOST_FILES:
            raise FolderError(f"it holds more than {MOST_FILES} files")


def _walk(path: Path, leave_out: Path, depth: int, others: list[Path]) -> Iterator[Path]:
    """Yield archives and run folders below ``path``, or ``path`` itself, sorted by name."""
    if path.is_file():
        if path.name.endswith(ARCHIVE):
            yield path
        else:
            others.append(path)
        return
    try:
        with os.scandir(path) as inside:
            entries = sorted(inside, key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if any(entry.name == "run.json" for entry in entries):
        yield path
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            hidden = entry.name.startswith(".")
            if depth and not hidden and (below := path / entry.name) != leave_out:
                yield from _walk(below, leave_out, depth - 1, others)
        elif entry.is_file(follow_symlinks=False) and entry.name.endswith(ARCHIVE):
            yield path / entry.name
        elif not entry.name.startswith("."):
            others.append(path / entry.name)


def _files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Return the files of a submission with their file status, sorted by name.

    For a folder these are the files that verification covers.
    """
    if path.is_file():
        return iter([("", path.stat())])
    files = sorted(islice(walk(path), MOST_FILES + 1), key=lambda pair: pair[0])
    return ((name, entry.stat(follow_symlinks=False)) for name, entry in files)
