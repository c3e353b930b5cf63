"""``manifest.json``: the hashes of all files in a run folder when the run was concluded."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from vflops.errors import FolderError
from vflops.record.files.digest import file_digest
from vflops.record.files.document import Data, Document
from vflops.record.files.read_once import is_file, read_bytes
from vflops.record.folder import RunFolder
from vflops.record.formats.bounded_numbers import NonNegative
from vflops.record.formats.recorded_names import RecordedPath
from vflops.results.evidence.evidence_names import DERIVED, MANIFEST, SIGNATURE, is_page, listing
from vflops.results.evidence.line_marks import WIDTH, marks, split_lines

_SHA256 = r"^[0-9a-f]{64}$"
MAX_MANIFEST_BYTES = 1 << 26
"""The largest manifest that is read, enough for 16 million log lines."""


class FilePin(Data):
    """Path, hash and size of a file when it was pinned."""

    path: RecordedPath
    sha256: str = Field(pattern=_SHA256)
    size_bytes: NonNegative


class LogPin(Data):
    """The lines of a log when it was pinned."""

    path: RecordedPath
    last_sha256: str | None = Field(pattern=_SHA256)
    """The hash of the last complete line; None if there is no complete line."""
    marks: str
    """Four characters per line to locate changes: 24 bits of its SHA-256 in base64."""

    @property
    def lines(self) -> int:
        """The number of lines, including an incomplete last line."""
        return len(self.marks) // WIDTH


class Manifest(Document):
    """The pins of all files that are evidence, which excludes checkpoints, weights and locks."""

    schema_name: ClassVar[str] = "vflops.manifest"

    run: str
    files: tuple[FilePin, ...]
    """Recorded files. A pin is never replaced: a later manifest only adds files."""
    logs: tuple[LogPin, ...]
    """The lines of those files that are written line by line."""
    derived: tuple[FilePin, ...]
    """Files derived from the record by ``vflops score``, ``check`` and ``report``."""
    empty_folders: tuple[str, ...] | None = None
    """Folders without files of the record; None in manifests of vflops 0.2 and earlier."""

    @model_validator(mode="after")
    def _require_unique_paths(self) -> Self:
        for pins in ([*self.files, *self.derived], self.logs):
            names = [pin.path for pin in pins]
            if len(names) != len(set(names)):
                raise ValueError("a file is listed twice")
        return self


def manifest_file(folder: Path) -> Path:
    """Return the path of the manifest of a run folder."""
    return folder / MANIFEST


def signature_file(folder: Path) -> Path:
    """Return the path of the signature of the manifest."""
    return folder / SIGNATURE


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a run folder; None if it has no manifest."""
    path = manifest_file(folder)
    if not is_file(path) and not path.exists():
        return None
    if not is_file(path) or path.stat().st_size > MAX_MANIFEST_BYTES:
        raise FolderError(f"{path} is not a file of at most {MAX_MANIFEST_BYTES >> 20} MiB")
    return Manifest.read(path)


def write_manifest(folder: RunFolder, previous: Manifest | None = None) -> Manifest:
    """Write the hashes of all files of a finished run, but keep earlier pins.

    Concluding a run again therefore does not hide an edit. Earlier pins are those of ``previous``,
    by default those of the folder. If the pins change, the signature is removed.
    """
    previous, content = previous or read_manifest(folder.path), listing(folder.path)
    names, empty_folders = content.files, set(content.empty_folders)
    recorded = [name for name in names if name not in DERIVED and not is_page(name)]
    files = {name: pin_file(folder.path, name) for name in recorded}
    logs = {name: pin_log(folder.path, name) for name in recorded if is_log(name)}
    if previous is not None:
        files |= {pin.path: pin for pin in previous.files}
        logs |= {pin.path: pin for pin in previous.logs}
        empty_folders |= set(previous.empty_folders or ())
    manifest = Manifest(
        run=folder.record.id,
        files=tuple(files[name] for name in sorted(files)),
        logs=tuple(logs[name] for name in sorted(logs)),
        derived=tuple(pin_file(folder.path, name) for name in names if name in DERIVED),
        empty_folders=tuple(sorted(empty_folders)),
    )
    if manifest != previous or not is_file(manifest_file(folder.path)):
        with suppress(FileNotFoundError):
            signature_file(folder.path).unlink()
        manifest.write(manifest_file(folder.path))
    return manifest


def is_log(name: str) -> bool:
    """Whether a file is written line by line."""
    return name.endswith(".jsonl")


def pin_file(folder: Path, name: str, *, size_bytes: int | None = None) -> FilePin:
    """Return the pin of a file as it is now, or of its first ``size_bytes``."""
    digest = file_digest(folder / name, size_bytes)
    return FilePin(path=name, sha256=digest.sha256, size_bytes=digest.size_bytes)


def pin_log(folder: Path, name: str) -> LogPin:
    """Return the pin of the lines of a log as they are now."""
    try:
        data = read_bytes(folder / name)
    except OSError as error:
        raise FolderError(f"cannot read {folder / name}: {error.strerror or error}") from error
    lines = split_lines(data)
    complete = lines if data.endswith(b"\n") else lines[:-1]
    last = hashlib.sha256(complete[-1]).hexdigest() if complete else None
    return LogPin(path=name, last_sha256=last, marks=marks(lines))
