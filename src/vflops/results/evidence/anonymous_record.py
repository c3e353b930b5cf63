"""``anonymous.json``: what was left out of a run when it was made anonymous."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from vflops.errors import FolderError
from vflops.record.files.document import Document
from vflops.record.files.read_once import is_file
from vflops.record.formats.recorded_names import RecordedPath

ANONYMOUS = "anonymous.json"


class AnonymousRecord(Document):
    """The files of a run that differ from what it recorded, and a commitment to the original.

    Names are replaced by numbers, the same name by the same number, and all hashes in the run were
    computed again, so that they hold.
    """

    schema_name: ClassVar[str] = "vflops.anonymous"

    original_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of a secret salt and of the original ``manifest.json``. Without the salt, names could
    be guessed and compared with the hash."""
    changed: tuple[RecordedPath, ...]
    """Files in which names were replaced."""
    omitted: tuple[RecordedPath, ...]
    """Files that were left out."""


def anonymous_file(folder: Path) -> Path:
    """Return the path of the record in a run folder."""
    return folder / ANONYMOUS


def anonymity_note(folder: Path) -> str | None:
    """Return what an anonymous run lacks, as a sentence; None for any other run."""
    if not is_file(anonymous_file(folder)):
        return None
    try:
        record = AnonymousRecord.read(anonymous_file(folder))
    except FolderError as error:
        return error.message
    return (
        "host names and paths were left out by its owner: they are replaced in "
        f"{len(record.changed)} files, and {len(record.omitted)} files are omitted"
    )
