"""The kind of data in a folder, recognised by the file names in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from vflops.data.packed_folder import require_packed
from vflops.data.packed_index import INDEX
from vflops.errors import FolderError, Hint, UsageError
from vflops.record.files.document import read_json

Content = Literal["images", "years", "text", "tokens"]
"""``text`` is files to tokenize; ``tokens`` is shards of tokens, or any packed text."""

TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst", ".jsonl", ".ndjson")
"""Suffixes of text files, in lower or upper case."""

_LAYOUT = (
    "expected DIR/train/<class>/*.jpg and DIR/val/…, years as DIR/climo_1979.h5 and so on, text as "
    "DIR/*.txt or DIR/*.jsonl, or tokens as DIR/*train*.bin and DIR/*val*.bin"
)
_PACKED: dict[str, Content] = {
    "vflops.packed-images": "images",
    "vflops.packed-frames": "years",
    "vflops.packed-text": "tokens",
}
CONTENT_NAMES: dict[Content, str] = {
    "images": "images",
    "years": "years of climate fields",
    "text": "text",
    "tokens": "tokens",
}
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
_SEARCHED_FILES = 1000
"""Number of files among which text is searched, if the names in the folder itself say nothing."""


@dataclass(frozen=True)
class DataKind:
    """The content of a folder, and whether it is packed."""

    content: Content
    packed: bool


def require_folder(path: Path, content: str, layout: str) -> None:
    """Raise ``UsageError`` with the expected ``layout`` if ``path`` is not a folder."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}; expected a folder of {content}", hint=layout)


def kind_of(folder: Path) -> DataKind:
    """Return the kind of data in ``folder``; raise ``UsageError`` if it is not recognised."""
    require_folder(folder, "data", _LAYOUT)
    if (folder / INDEX).is_file():
        return DataKind(_packed_content(folder), packed=True)
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    hdf5 = [name for name in names if name.lower().endswith((".h5", ".hdf5"))]
    # A folder of images may also hold HDF5 files; the name of a year's file starts with climo.
    if any(name.lower().startswith("climo") for name in hdf5) or (hdf5 and "train" not in names):
        return DataKind("years", packed=False)
    if not (folder / "train").is_dir():
        if any(name.lower().endswith(".bin") for name in names):
            return DataKind("tokens", packed=False)
        if any(name.lower().endswith(TEXT_SUFFIXES) for name in names):
            return DataKind("text", packed=False)
    searched = folder / "train" if (folder / "train").is_dir() else folder
    below = [file.name.lower() for file in islice(walk_files(searched), _SEARCHED_FILES)]
    has_images = any(name.endswith(_IMAGE_SUFFIXES) for name in below)  # some with a text beside
    if not has_images and any(name.endswith(TEXT_SUFFIXES) for name in below):
        return DataKind("text", packed=False)
    if "train" in names:
        return DataKind("images", packed=False)
    holds = f"; it holds {', '.join(names[:3])}" if names else ": it is empty"
    raise UsageError(f"{folder} has no data of a known kind{holds}", hint=_LAYOUT)


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield the files in and below ``folder``, sorted by name in each folder; follow no links.

    Raise ``UsageError`` if a folder cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(
            f"cannot read {folder}: {error.strerror or error}",
            hint="check the permissions of the folder and that its disk is mounted",
        ) from error
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith("."):
                yield from walk_files(folder / entry.name)
        else:
            yield folder / entry.name


def source_kind(folder: Path) -> Content:
    """Return the kind of data in ``folder``; raise ``UsageError`` if it is packed."""
    kind = kind_of(folder)
    if kind.packed:
        raise UsageError(
            f"{folder} holds packed {CONTENT_NAMES[kind.content]}; expected the original files",
            hint=Hint("to check packed data", f"vflops data verify {folder}"),
        )
    return kind.content


def packed_kind(folder: Path) -> Content:
    """Return the kind of packed data in ``folder``; raise ``UsageError`` if it is not packed."""
    require_packed(folder, "packed data")
    return _packed_content(folder)


def _packed_content(folder: Path) -> Content:
    tag = str(read_json(folder / INDEX).get("schema"))
    content = _PACKED.get(tag.rpartition("/")[0])
    if content is None:
        raise FolderError(
            f"{folder / INDEX} is not an index of packed data: its schema is {tag!r}",
            hint=f"expected one of {', '.join(_PACKED)}",
        )
    return content
