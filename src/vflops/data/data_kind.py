"""Which kind of data a folder holds, by the names in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vflops.data.packed import INDEX, refuse_unpacked
from vflops.errors import FolderError, UsageError
from vflops.record.files.document import read_json

Content = Literal["images", "years"]

_LAYOUT = "images are DIR/train/<class>/*.jpg and DIR/val/…, years are DIR/climo_1979.h5 and so on"
_PACKED: dict[str, Content] = {"vflops.packed-images": "images", "vflops.packed-frames": "years"}
WORDS: dict[Content, str] = {"images": "images", "years": "years of climate fields"}


@dataclass(frozen=True)
class Kind:
    """What is in a folder, as people have it or packed."""

    content: Content
    packed: bool


def kind_of(folder: Path) -> Kind:
    """The kind of data in ``folder``, or an error that says what was expected."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}; expected a folder of data", hint=_LAYOUT)
    if (folder / INDEX).is_file():
        return Kind(_packed(folder), packed=True)
    names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    hdf5 = [name for name in names if name.lower().endswith((".h5", ".hdf5"))]
    # Images may have a file of somebody's features beside them: a year is named as one.
    if any(name.lower().startswith("climo") for name in hdf5) or (hdf5 and "train" not in names):
        return Kind("years", packed=False)
    if "train" in names:
        return Kind("images", packed=False)
    holds = f"; it holds {', '.join(names[:3])}" if names else ": it is empty"
    raise UsageError(f"{folder} has no data that is known here{holds}", hint=_LAYOUT)


def source_kind(folder: Path) -> Content:
    """The kind of data in ``folder``; packed data is refused."""
    kind = kind_of(folder)
    if kind.packed:
        raise UsageError(
            f"{folder} holds packed {WORDS[kind.content]}, expected the files that they come from",
            hint=f"to check packed ones: vflops data verify {folder}",
        )
    return kind.content


def packed_kind(folder: Path) -> Content:
    """The kind of packed data in ``folder``; other data is refused."""
    refuse_unpacked(folder, "packed data")
    return _packed(folder)


def _packed(folder: Path) -> Content:
    tag = str(read_json(folder / INDEX).get("schema"))
    content = _PACKED.get(tag.rpartition("/")[0])
    if content is None:
        raise FolderError(
            f"{folder / INDEX} is no index of packed data: its schema is {tag!r}",
            hint=f"expected one of {', '.join(_PACKED)}",
        )
    return content
