"""A folder of text: files of one document each, and JSONL files of one document per line.

The order of documents depends on the names of files alone. Everything is UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vflops.data.data_kind import TEXT_SUFFIXES, require_folder, walk_files
from vflops.errors import UsageError
from vflops.record.files.regular_file import open_regular, read_regular
from vflops.record.files.strict_json import parse_json

LINE_SUFFIXES = (".jsonl", ".ndjson")
"""Suffixes of files with one document per line."""

_PART_BYTES = 1 << 25
"""Larger JSONL files are read in parts of this size, by several processes."""
_MAX_FILE_BYTES = 1 << 31
_MAX_LINE_BYTES = 1 << 30
_LAYOUT = f"expected files that end in {', '.join(TEXT_SUFFIXES)}, in it or below"


@dataclass(frozen=True)
class TextFormat:
    """How files are divided into documents."""

    separator: str | None = None
    """Text between the documents of a file; None if a file is one document."""
    field: str = "text"
    """The field of a JSONL line that holds the document."""


ONE_DOCUMENT_PER_FILE = TextFormat()


@dataclass(frozen=True)
class TextPart:
    """A file, or the lines of a file that begin at ``start`` or later and before ``stop``."""

    file: str
    """The path relative to the folder, with ``/``."""
    start: int
    stop: int


@dataclass(frozen=True)
class Document:
    """A document: where it is from, and its text in UTF-8."""

    name: str
    data: bytes


@dataclass(frozen=True)
class BadText:
    """A file or a line that is not text, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class TextFolder:
    """The text files of a folder, in order."""

    path: Path
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    ignored: int
    """Number of files that are hidden or have another suffix."""

    @classmethod
    def open(cls, path: Path) -> TextFolder:
        """List the text files in ``path`` and below; raise ``UsageError`` if there are none."""
        require_folder(path, "text", _LAYOUT)
        files, ignored = [], 0
        for file in walk_files(path):
            if file.name.lower().endswith(TEXT_SUFFIXES) and not file.name.startswith("."):
                files.append(file)
            else:
                ignored += 1
        if not files:
            what = f"holds {ignored} files, but no text" if ignored else "is empty"
            raise UsageError(f"{path} {what}", hint=_LAYOUT)
        names = tuple(file.relative_to(path).as_posix() for file in files)
        return cls(path, names, tuple(_size(file) for file in files), ignored)

    @property
    def size_bytes(self) -> int:
        """Bytes of all text files."""
        return sum(self.sizes)

    def parts(self) -> list[TextPart]:
        """Return all files in order, large JSONL files in several parts."""
        parts = []
        for file, size in zip(self.files, self.sizes, strict=True):
            step = _PART_BYTES if file.lower().endswith(LINE_SUFFIXES) else max(size, 1)
            starts = range(0, max(size, 1), step)
            parts += [TextPart(file, start, min(start + step, size)) for start in starts]
        return parts


def read_documents(root: Path, part: TextPart, format: TextFormat) -> Iterator[Document | BadText]:
    """Yield the documents of a part, and what is not text; empty documents are left out."""
    path = root / part.file
    try:
        if part.file.lower().endswith(LINE_SUFFIXES):
            yield from _line_documents(path, part, format)
        else:
            yield from _file_documents(path, part, format)
    except OSError as error:
        yield BadText(part.file, error.strerror or str(error))


def _file_documents(path: Path, part: TextPart, format: TextFormat) -> Iterator[Document | BadText]:
    data = read_regular(path, max_bytes=_MAX_FILE_BYTES)
    fault = _not_utf8(data, 0)
    if fault:
        yield BadText(part.file, fault)
        return
    pieces = [data] if format.separator is None else data.split(format.separator.encode())
    for number, piece in enumerate(pieces):
        if piece.strip():
            name = part.file if len(pieces) == 1 else f"{part.file}, document {number + 1}"
            yield Document(name, piece)


def _line_documents(path: Path, part: TextPart, format: TextFormat) -> Iterator[Document | BadText]:
    with open_regular(path) as raw, os.fdopen(os.dup(raw.fileno()), "rb") as file:
        if part.start:
            file.seek(part.start - 1)
            file.readline()  # the line that began before this part
        else:
            file.seek(0)
        while (start := file.tell()) < part.stop and (line := file.readline(_MAX_LINE_BYTES)):
            if line.strip():
                found = _line_document(f"{part.file}, line at byte {start}", line, start, format)
                if isinstance(found, BadText) or found.data.strip():
                    yield found


def _line_document(name: str, line: bytes, start: int, format: TextFormat) -> Document | BadText:
    fault = _not_utf8(line, start)
    if fault:
        return BadText(name, fault)
    try:
        row = parse_json(line)
    except ValueError as error:
        return BadText(name, f"the line is not JSON: {error}")
    text = row.get(format.field) if isinstance(row, dict) else None
    if not isinstance(text, str):
        return BadText(name, f"the line has no text in the field {format.field!r}")
    try:
        return Document(name, text.encode())
    except UnicodeEncodeError as error:
        return BadText(name, f"character {error.start} of the text is half a surrogate pair")


def _not_utf8(data: bytes, start: int) -> str | None:
    """Return why ``data``, at ``start`` in its file, is not UTF-8; None if it is."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"byte {start + error.start} (0x{data[error.start]:02x}) is not UTF-8"
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading the file will report the reason
