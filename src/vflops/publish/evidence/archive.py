"""One file of a run: the same bytes from the same folder, on any machine, any day.

It is a tar (POSIX ustar: plain headers, nothing that a reader must interpret) of sorted names with
fixed owner, mode and time, compressed by bzip2: there is one libbz2, whose output has not changed
since 2000, while zlib, xz and zstd give other bytes from one version or build to the next.
"""

from __future__ import annotations

import bz2
import os
import tarfile
from contextlib import suppress
from pathlib import Path

from vflops.errors import FolderError, UsageError
from vflops.publish.evidence.archive_limits import LIMITS
from vflops.publish.evidence.whole import must_be_whole
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.results.evidence.evidence_names import fault, is_page, listing
from vflops.results.evidence.manifest import manifest_file, signature_file

SUFFIX = ".tar.bz2"
_TIME = 315532800
"""1980-01-01, the first day that every format of archives can hold."""


def archive(folder: RunFolder, target: Path | None = None) -> Path:
    """Write a run into one file without checkpoints, weights and locks; gives its path.

    ``target`` is the file or a folder for it; by default it is beside the run folder. A run that
    has not ended, or was altered, is refused.
    """
    path = _target(folder, target)
    _names(folder)  # what costs little is asked first
    must_be_whole(folder, "packed")
    pack(folder, path)
    return path


def pack(folder: RunFolder, path: Path) -> None:
    """Write what a run folder holds into the file ``path``, whatever that is worth."""
    names = _names(folder)
    temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
    atomic.make_folder(path.parent)
    try:
        with temporary.open("xb") as file:
            with bz2.open(file, "wb", compresslevel=9) as packed:
                _write(folder, names, packed)
            file.flush()
            os.fsync(file.fileno())
        LIMITS.refuse_ratio(temporary, _size(folder, names))
        temporary.replace(path)
        atomic.sync_folder(path.parent)
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _target(folder: RunFolder, target: Path | None) -> Path:
    place = folder.path.absolute().parent if target is None else target
    path = place / f"{folder.record.id}{SUFFIX}" if place.is_dir() else place
    if path.resolve().is_relative_to(folder.path.resolve()):
        raise UsageError(
            f"{path} is inside the run folder, which it would alter", hint="choose another --out"
        )
    return path


def _names(folder: RunFolder) -> list[str]:
    """The files that go into it; one that no reader would take is refused here already."""
    found = listing(folder.path)
    if found.odd:
        raise FolderError(
            f"{folder.path} holds what no archive may: {found.odd[0]}", hint="remove or rename it"
        )
    if wrong := fault(folder.record.id) or ("/" in folder.record.id and "a path"):
        raise FolderError(f"the id of {folder.path}, {folder.record.id!r}, is {wrong}")
    pins = (manifest_file(folder.path), signature_file(folder.path))
    files = [name for name in found.files if not is_page(name)]
    names = sorted([*files, *(path.name for path in pins if path.is_file())])
    LIMITS.refuse(str(folder.path), files=len(names), size_bytes=_size(folder, names))
    return names


def _size(folder: RunFolder, names: list[str]) -> int:
    return sum((folder.path / name).stat().st_size for name in names)


def _write(folder: RunFolder, names: list[str], packed: bz2.BZ2File) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            entry = tarfile.TarInfo(f"{folder.record.id}/{name}")
            entry.size = (folder.path / name).stat().st_size
            entry.mtime, entry.mode = _TIME, 0o644
            try:
                with (folder.path / name).open("rb") as file:
                    tar.addfile(entry, file)
            except ValueError as error:
                raise FolderError(f"{folder.path / name}: {error}") from error
