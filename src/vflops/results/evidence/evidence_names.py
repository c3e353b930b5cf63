"""Names of files in a run folder: which are evidence, and which are not allowed in archives."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vflops.errors import FolderError
from vflops.record.files.file_names import MAX_PARTS, name_fault
from vflops.record.files.read_once import folder_entries

MANIFEST, SIGNATURE = "manifest.json", "manifest.json.sig"
DERIVED = ("score.json", "findings.json", "report.html")
"""Files derived from the record by ``vflops score``, ``check`` and ``report``."""
_SCRATCH = ("weights", "staging", "join")
"""Scratch folders of a running job: weights, scheduler scripts, staged data."""
_STATE = re.compile(
    r"jobs/[0-9]{1,9}/checkpoint/step-[0-9]{9,12}\.state|weights/r[0-9]{5,9}-w[0-9]{5,9}\.state"
)
_PAGES = (".html", ".svg", ".png")
_MAX_CACHED_NAMES = 1024
"""Most names are the same in all runs, and a ranking reads many runs."""


@dataclass(frozen=True)
class Listing:
    """The files in a run folder, sorted, with ``/`` in their names."""

    files: tuple[str, ...]
    odd: tuple[str, ...]
    """Entries that cannot be evidence, with the reason: links, devices, odd names."""
    empty_folders: tuple[str, ...] = ()
    """Folders without any such file or entry, at any depth."""


@lru_cache(maxsize=_MAX_CACHED_NAMES)
def is_excluded(name: str) -> bool:
    """Whether a file is never part of a result.

    These are checkpoints, weights, predictions during training, scratch files and locks.
    """
    parts = name.split("/")
    hidden = any(part.startswith(".") for part in parts)
    checkpoint = parts[0] == "jobs" and parts[2:3] == ["checkpoint"]
    evaluations = parts[0] == "jobs" and parts[3:4] == ["evaluations"]
    return hidden or checkpoint or evaluations or parts[0] in _SCRATCH or "__pycache__" in parts


def is_state(name: str) -> bool:
    """Whether a file is a checkpoint or the weights of a candidate, which audits start from.

    These are excluded from results, but archives may hold them.
    """
    return _STATE.fullmatch(name) is not None


def is_page(name: str) -> bool:
    """Whether a file is a page or picture, as ``vflops roofline`` writes, and so not evidence."""
    return "/" not in name and name.endswith(_PAGES) and name not in DERIVED


def listing(folder: Path) -> Listing:
    """Return all files in ``folder`` that belong to the evidence, without following links."""
    files: list[str] = []
    odd: list[str] = []
    empty_folders: list[str] = []
    for name, entry in walk(folder):
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.is_symlink():
            odd.append(f"{_printable(name)}: a link, not a file")
        elif wrong := name_fault(name) if is_folder or entry.is_file() else "not a file":
            odd.append(f"{_printable(name)}: {wrong}")
        elif is_folder:
            empty_folders.append(name)
        elif name not in (MANIFEST, SIGNATURE):
            files.append(name)
    return Listing(tuple(sorted(files)), tuple(sorted(odd)), tuple(sorted(empty_folders)))


def walk(folder: str | Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the name and entry of every file and every empty folder that is not excluded.

    Folders with excluded entries alone count as empty, and so do those too deep to be allowed.
    Names are relative to the outermost folder, sorted by name within each folder.
    """
    try:
        entries = folder_entries(folder)
    except OSError as error:
        raise FolderError(f"cannot read {folder}: {error.strerror or error}") from error
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if is_excluded(name):
            continue
        inside: Iterator[tuple[str, os.DirEntry[str]]] = iter(())
        if entry.is_dir(follow_symlinks=False) and name.count("/") < MAX_PARTS:
            inside = walk(entry.path, f"{name}/")
        first = next(inside, None)
        yield (name, entry) if first is None else first
        yield from inside


def _printable(name: str) -> str:
    """Return a name in a form that is safe to print."""
    return name if name.isprintable() else ascii(name)
