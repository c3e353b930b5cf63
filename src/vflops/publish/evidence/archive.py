"""Archives of runs: the same folder gives the same bytes on any machine, at any time.

An archive is a tar (POSIX ustar, the plainest headers) of sorted names with fixed owner, mode and
time, compressed with bzip2: the output of libbz2 has not changed since 2000, while that of zlib, xz
and zstd depends on version and build.
"""

from __future__ import annotations

import bz2
import os
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.errors import FolderError, UsageError
from vflops.publish.evidence.anonymous import anonymous_copy
from vflops.publish.evidence.archive_limits import LIMITS
from vflops.publish.evidence.require_intact import require_intact
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.record.files.file_names import name_fault
from vflops.record.files.regular_file import open_regular
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.evidence.committed_states import CommittedStates
from vflops.results.evidence.evidence_names import is_page, listing
from vflops.results.evidence.manifest import manifest_file, signature_file

SUFFIX = ".tar.bz2"
_TIME = 315532800
"""1980-01-01, the earliest day that every archive format can express."""
_MAX_FILE_BYTES = (8 << 30) - 1
"""The largest file that the headers of the archive can describe."""


def archive(
    folder: RunFolder,
    target: Path | None = None,
    states: Sequence[str] = (),
    *,
    anonymous: bool = False,
) -> Path:
    """Write a run into one file without locks, and return its path.

    ``target`` is the file or its folder; by default, the file is next to the run folder. Of the
    checkpoints and weights, it has only ``states``. If ``anonymous``, it has no host names, paths
    and output of programs. Raise if the run is unfinished or altered.
    """
    path = _target(folder, target, "-anonymous" if anonymous else "")
    _names(folder, states)  # cheap, so names are checked before the run is verified
    require_intact(folder, "packed")
    if not anonymous:
        pack(folder, path, states)
        return path
    with TemporaryDirectory() as temporary:
        copy = anonymous_copy(folder, Path(temporary) / folder.record.id)
        for name in states:
            atomic.make_folder((copy.path / name).parent)
            (copy.path / name).symlink_to((folder.path / name).resolve())
        pack(copy, path, states)
    return path


def states_for_audits(folder: RunFolder) -> dict[str, int]:
    """Return the checkpoints and weights that audits start from, with their sizes in bytes.

    Raise if there are none, or if the log did not commit to one of them.
    """
    states = CommittedStates(Contents(folder))
    if not states.kept:
        raise UsageError(
            f"{folder.path} has no checkpoints for audits",
            hint="runs keep them with train.segments, until `vflops audit --discard`; "
            "archive it without --checkpoints",
        )
    for name in states.kept:
        if fault := states.fault(name):
            raise FolderError(f"{folder.path} cannot be packed: {fault}", hint="remove this file")
    return states.kept


def pack(folder: RunFolder, path: Path, states: Sequence[str] = ()) -> None:
    """Write the content of a run folder into the file ``path`` without verifying it.

    Raise if the file exists with another content.
    """
    names = _names(folder, states)
    temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
    try:
        with temporary.open("xb") as file:
            with bz2.open(file, "wb", compresslevel=9) as packed:
                _write(folder, names, packed)
            file.flush()
            os.fsync(file.fileno())
        LIMITS.check_ratio(temporary, _size(folder, names))
        if path.exists() and file_digest(path) != file_digest(temporary):
            raise UsageError(
                f"{path} exists and is not this archive: another run, or an earlier state of it",
                hint="choose another --out, or remove the file",
            )
        temporary.replace(path)
        atomic.sync_folder(path.parent)
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _target(folder: RunFolder, target: Path | None, suffix: str) -> Path:
    path = folder.path.absolute().parent if target is None else target
    if path.is_dir():
        path /= f"{folder.record.id}{suffix}{SUFFIX}"
    if path.resolve().is_relative_to(folder.path.resolve()):
        raise UsageError(
            f"{path} is inside the run folder and would alter it", hint="choose another --out"
        )
    return path


def _names(folder: RunFolder, states: Sequence[str]) -> list[str]:
    """Return the names of the files to archive; raise for one that extraction would refuse."""
    content = listing(folder.path)
    if content.odd:
        raise FolderError(
            f"{folder.path} holds something that cannot be archived: {content.odd[0]}",
            hint="remove or rename it",
        )
    if id_fault := name_fault(folder.record.id) or ("/" in folder.record.id and "a path"):
        raise FolderError(f"the id of {folder.path}, {folder.record.id!r}, is {id_fault}")
    evidence_files = (manifest_file(folder.path), signature_file(folder.path))
    files = [name for name in content.files if not is_page(name)]
    files += [path.name for path in evidence_files if path.is_file()]
    LIMITS.check(
        str(folder.path),
        files=len(files) + len(states),
        size_bytes=_size(folder, files),
        state_bytes=_size(folder, states),
    )
    for name in states:
        if (folder.path / name).stat().st_size > _MAX_FILE_BYTES:
            raise FolderError(f"{folder.path / name} is too large for an archive: over 8 GiB")
    return sorted([*files, *states])


def _size(folder: RunFolder, names: Sequence[str]) -> int:
    return sum((folder.path / name).stat().st_size for name in names)


def _write(folder: RunFolder, names: list[str], packed: bz2.BZ2File) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            entry = tarfile.TarInfo(f"{folder.record.id}/{name}")
            entry.size = (folder.path / name).stat().st_size
            entry.mtime, entry.mode = _TIME, 0o644
            try:
                with open_regular(folder.path / name) as file:
                    tar.addfile(entry, file)
            except ValueError as error:
                raise FolderError(f"{folder.path / name}: {error}") from error
