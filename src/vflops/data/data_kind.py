"""The kind of data in a folder, recognised by the file names in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vflops.data.packed_folder import require_packed
from vflops.data.packed_index import INDEX
from vflops.errors import FolderError, UsageError
from vflops.record.files.document import read_json

Content = Literal["images", "years"]

_LAYOUT = "expected DIR/train/<class>/*.jpg and DIR/val/…, or years as DIR/climo_1979.h5 and so on"
_PACKED: dict[str, Content] = {"vflops.packed-images": "images", "vflops.packed-frames": "years"}
CONTENT_NAMES: dict[Content, str] = {"images": "images", "years": "years of climate fields"}


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
    if "train" in names:
        return DataKind("images", packed=False)
    holds = f"; it holds {', '.join(names[:3])}" if names else ": it is empty"
    raise UsageError(f"{folder} has no data of a known kind{holds}", hint=_LAYOUT)


def source_kind(folder: Path) -> Content:
    """Return the kind of data in ``folder``; raise ``UsageError`` if it is packed."""
    kind = kind_of(folder)
    if kind.packed:
        raise UsageError(
            f"{folder} holds packed {CONTENT_NAMES[kind.content]}; expected the original files",
            hint=f"to check packed data: vflops data verify {folder}",
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
