"""Files of audits below a folder, read as untrusted input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import FolderError, UsageError
from vflops.publish.ranking.bounded_fields import Name, Sentence
from vflops.record.files.document import Data, read_json
from vflops.results.evidence.audit_record import AUDIT_FILE, AuditRecord

MAX_AUDIT_BYTES = 8 << 20
"""The maximum size of an ``audit.json``, enough for about ten thousand parts."""
MAX_AUDITS = 10_000
_MAX_DEPTH = 4
"""How many levels of folders are searched for audits."""


class UnusableAudit(Data):
    """An audit that cannot be read, or whose run was not submitted."""

    place: Sentence
    """Its path below the folder that was searched."""
    run: Name = ""
    reason: Sentence


@dataclass(frozen=True)
class AuditFile:
    """An audit and where it was read from."""

    path: Path
    place: str
    record: AuditRecord


def read_audits(folder: Path) -> Iterator[AuditFile | UnusableAudit]:
    """Yield every audit below ``folder``, sorted by path; raise if there is no such folder."""
    if not folder.is_dir():
        raise UsageError(
            f"--audits {folder} is not a folder", hint="name the folder with the audits"
        )
    for number, path in enumerate(_files(folder.resolve(), _MAX_DEPTH)):
        place = str(path.relative_to(folder.resolve()))
        if number >= MAX_AUDITS:
            reason = f"not read: there are more than {MAX_AUDITS:,} audits"
            yield UnusableAudit(place=place, reason=reason)
            return
        try:
            yield AuditFile(path, place, _read(path))
        except FolderError as error:
            yield UnusableAudit(place=place, reason=error.message)


def _read(path: Path) -> AuditRecord:
    """Return the audit; its errors do not name the folder, which only this machine has."""
    try:
        size = path.stat(follow_symlinks=False).st_size
    except OSError as error:
        raise FolderError(f"cannot read {AUDIT_FILE}: {error.strerror or error}") from error
    if size > MAX_AUDIT_BYTES:
        raise FolderError(
            f"{AUDIT_FILE} has {size >> 20} MiB, but the limit is {MAX_AUDIT_BYTES >> 20} MiB"
        )
    name = Path(AUDIT_FILE)
    return AuditRecord.parse(read_json(path, name), name)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files of audits below ``folder`` without following links."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:  # another user's folder
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth and not entry.name.startswith("."):
                yield from _files(folder / entry.name, depth - 1)
        elif entry.name == AUDIT_FILE and entry.is_file(follow_symlinks=False):
            yield folder / entry.name
