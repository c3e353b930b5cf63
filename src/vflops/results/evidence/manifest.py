"""``manifest.json``: the hash of every file that a run folder held when its run was concluded."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from vflops.errors import FolderError
from vflops.record.files.digest import file_digest
from vflops.record.files.document import Data, Document
from vflops.record.folder import RunFolder
from vflops.results.evidence.evidence_names import DERIVED, MANIFEST, SIGNATURE, is_page, listing
from vflops.results.evidence.line_marks import WIDTH, marks, whole_lines

_SHA256 = r"^[0-9a-f]{64}$"
MOST_BYTES = 1 << 26
"""Of a manifest that is read: marks of 16 million lines."""


class FilePin(Data):
    """A file, as it was."""

    path: str
    sha256: str = Field(pattern=_SHA256)
    size_bytes: int = Field(ge=0)


class LogPin(Data):
    """The lines of a log, as they were."""

    path: str
    last_sha256: str | None = Field(pattern=_SHA256)
    """Of the last whole line: what the next one would be chained to. None: it has none."""
    marks: str
    """Four signs a line, the first 24 bits of its SHA-256 in base64: to name those that changed."""

    @property
    def lines(self) -> int:
        """How many it has, a torn last one included."""
        return len(self.marks) // WIDTH


class Manifest(Document):
    """Everything that a run is judged by, pinned; checkpoints, weights and locks are not in it."""

    schema_name: ClassVar[str] = "vflops.manifest"

    run: str
    files: tuple[FilePin, ...]
    """What was recorded. A pin is never renewed: a later one only adds files."""
    logs: tuple[LogPin, ...]
    """Of the recorded files, those that are written line by line."""
    derived: tuple[FilePin, ...]
    """What follows from the record: ``vflops score``, ``check`` and ``report`` make it again."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for pins in ([*self.files, *self.derived], self.logs):
            names = [pin.path for pin in pins]
            if len(names) != len(set(names)):
                raise ValueError("a file is in it twice")
        return self


def manifest_file(folder: Path) -> Path:
    """Where the manifest of a run folder is."""
    return folder / MANIFEST


def signature_file(folder: Path) -> Path:
    """Where the signature of the manifest is."""
    return folder / SIGNATURE


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a run folder; None without one."""
    path = manifest_file(folder)
    if not path.exists():
        return None
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise FolderError(f"{path} is no file of at most {MOST_BYTES >> 20} MiB")
    return Manifest.read(path)


def write_manifest(folder: RunFolder) -> Manifest:
    """Pin every file of a run that came to its end; what was pinned before keeps its pin.

    So nobody makes an edit good by concluding a run once more. A signature of other pins is
    removed.
    """
    before, found = read_manifest(folder.path), listing(folder.path).files
    recorded = [name for name in found if name not in DERIVED and not is_page(name)]
    files = {name: pin_file(folder.path, name) for name in recorded}
    logs = {name: pin_log(folder.path, name) for name in recorded if is_log(name)}
    if before is not None:
        files |= {pin.path: pin for pin in before.files}
        logs |= {pin.path: pin for pin in before.logs}
    manifest = Manifest(
        run=folder.record.id,
        files=tuple(files[name] for name in sorted(files)),
        logs=tuple(logs[name] for name in sorted(logs)),
        derived=tuple(pin_file(folder.path, name) for name in found if name in DERIVED),
    )
    if manifest != before:
        with suppress(FileNotFoundError):
            signature_file(folder.path).unlink()
        manifest.write(manifest_file(folder.path))
    return manifest


def is_log(name: str) -> bool:
    """Whether a file is written line by line."""
    return name.endswith(".jsonl")


def pin_file(folder: Path, name: str, *, size_bytes: int | None = None) -> FilePin:
    """A file as it is now, or as far as ``size_bytes``."""
    found = file_digest(folder / name, size_bytes)
    return FilePin(path=name, sha256=found.sha256, size_bytes=found.size_bytes)


def pin_log(folder: Path, name: str) -> LogPin:
    """The lines of a log as they are now."""
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise FolderError(f"cannot read {folder / name}: {error.strerror or error}") from error
    lines = whole_lines(data)
    ended = data.split(b"\n")[:-1]
    last = hashlib.sha256(ended[-1]).hexdigest() if ended else None
    return LogPin(path=name, last_sha256=last, marks=marks(lines))
