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
from vflops.publish.evidence.archive_limits import Limits
from vflops.results.evidence.evidence_names import walk

ARCHIVE = ".tar.bz2"
"""The suffix of the files that ``vflops archive`` writes."""
MAX_ARCHIVE_BYTES = 1 << 30
MAX_FILES = 100_000
LIMITS = Limits(
    files=MAX_FILES,
    size_bytes=2 << 30,
    state_bytes=2 << 30,
    file_bytes={".jsonl": 128 << 20, ".json": 16 << 20},
)
"""Limits on a run, unpacked or not; a run of 1000 models stays far below them."""
_MAX_DEPTH = 4
"""How many levels of folders are searched for submissions."""


@dataclass(frozen=True)
class Submission:
    """A run folder or an archive of one."""

    path: Path
    place: str
    """The path of the submission below the folder that was searched."""
    source: str
    """The top-level subfolder that holds it, or an empty string.

    The ranking names this as the submitter unless a signature says who it is.
    """
    archive: bool

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and times of its files, without reading them.

        The status change time is included, which programs cannot set, so no edit goes unnoticed.
        """
        digest = hashlib.sha256(f"{self.place}\n{self.source}\n".encode(errors="backslashreplace"))
        try:
            for name, status in _files(self.path):
                times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
                line = f"{name} {status.st_size} {times} {status.st_mode}\n"
                digest.update(line.encode(errors="backslashreplace"))
        except (OSError, VflopsError) as error:  # reported when the submission is read
            digest.update(str(error).encode(errors="backslashreplace"))
        return digest.hexdigest()


def find(
    folders: Sequence[Path], leave_out: Path, skipped: list[Path] | None = None
) -> list[Submission]:
    """Return all submissions in ``folders``, sorted by their path below the folder.

    The folder ``leave_out``, where the site is written, is not searched. Files that are not
    submissions are added to ``skipped``.
    """
    submissions: dict[Path, Submission] = {}
    others: list[Path] = [] if skipped is None else skipped
    for folder in folders:
        if not folder.exists():
            raise UsageError(
                f"{folder} does not exist", hint="name folders that hold run folders or archives"
            )
        base = folder.resolve()  # symbolic links below it are not followed
        for path in _submissions(base, leave_out.resolve(), others):
            below = path.relative_to(base)
            place = base.name if path == base else str(below)
            source = below.parts[0] if len(below.parts) > 1 else ""
            submissions.setdefault(
                path, Submission(path, place, source, path.name.endswith(ARCHIVE))
            )
    return sorted(submissions.values(), key=lambda submission: (submission.place, submission.path))


def check_limits(folder: Path) -> None:
    """Raise if a file of a run folder is not a regular file, or if there is too much to read."""
    LIMITS.check_files("it", _sizes(folder))


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    for name, status in _files(folder):
        if stat.S_ISREG(status.st_mode):
            yield name, status.st_size
        elif not stat.S_ISDIR(status.st_mode):
            raise FolderError(f"{name} is not a regular file")


def _submissions(base: Path, leave_out: Path, others: list[Path]) -> Iterator[Path]:
    """Yield archives and run folders below ``base``, or ``base`` itself, sorted by name."""
    if not base.is_file():
        try:
            os.scandir(base).close()
        except OSError as error:
            raise UsageError(
                f"cannot read {base}: {error.strerror or error}",
                hint="allow reading it, or name another folder",
            ) from error
        yield from _walk(base, leave_out, _MAX_DEPTH, others)
    elif base.name.endswith(ARCHIVE):
        yield base
    else:
        others.append(base)


def _walk(path: Path, leave_out: Path, depth: int, others: list[Path]) -> Iterator[Path]:
    """Yield archives and run folders below the folder ``path``, or ``path`` itself."""
    try:
        with os.scandir(path) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:  # it may be a submission: it does not rank, and the reason is shown
        yield path
        return
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
    """Return the names and the status of the files of a submission, sorted by name.

    Of a run folder, these are the files that verification covers.
    """
    if path.is_file():
        return iter([("", path.stat())])
    files = sorted(islice(walk(path), MAX_FILES + 1), key=lambda pair: pair[0])
    return ((name, entry.stat(follow_symlinks=False)) for name, entry in files)
