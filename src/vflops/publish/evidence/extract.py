"""Extraction of archives from untrusted sources: a complete run folder, or nothing.

The headers are read one by one. Only plain files and folders are accepted; every other type of
entry (links, devices, sparse files, extended headers that rename the next entry) is refused.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from vflops.errors import FolderError, UsageError
from vflops.publish.evidence.archive_limits import LIMITS, ArchiveRefused, Limits
from vflops.publish.evidence.bounded_bz2 import BoundedStream
from vflops.record.files import atomic
from vflops.record.files.file_names import fold_name, name_fault
from vflops.record.folder import RunFolder
from vflops.record.own_runs import mark_foreign
from vflops.results.evidence.evidence_names import is_excluded, is_state

_BLOCK = tarfile.BLOCKSIZE
_FILES, _FOLDER = (tarfile.REGTYPE, tarfile.AREGTYPE), tarfile.DIRTYPE
_REFUSED_TYPES = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}
_MAX_RUN_BYTES = 16 << 20
"""The maximum size of ``run.json``, which is read here."""


def extract(file: Path, into: Path, limits: Limits = LIMITS) -> Path:
    """Extract an archive into ``into``, completely or not at all, and return the run folder."""
    if not file.is_file():
        what = "is not a file" if file.exists() else "does not exist"
        raise UsageError(f"{file} {what}", hint="give a file that `vflops archive` made")
    atomic.make_folder(into)
    try:
        temporary = Path(mkdtemp(prefix=".extract-", dir=into))
    except OSError as error:
        raise atomic.cannot_write(into, error) from error
    try:
        with BoundedStream(file, limits) as stream:
            root = _Entries(file, stream, temporary, limits).unpack()
        return _move_into_place(file, temporary / root, into / root)
    except OSError as error:
        raise atomic.cannot_write(into, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_into_place(file: Path, extracted: Path, target: Path) -> Path:
    """Check the extracted run folder, and move it to ``target``, which must not exist."""
    if (extracted / "run.json").stat().st_size > _MAX_RUN_BYTES:
        raise ArchiveRefused(f"{file}: its run.json is larger than {_MAX_RUN_BYTES >> 20} MiB")
    try:
        record = RunFolder.open(extracted).record
    except FolderError as error:
        raise ArchiveRefused(f"{file}: {error.message}", hint=error.hint) from error
    if record.id != extracted.name:
        raise ArchiveRefused(
            f"{file} holds the folder {extracted.name}, but the run in it is {record.id}"
        )
    if target.exists() or target.is_symlink():
        raise UsageError(
            f"{target} already exists", hint="remove it first, or choose another --out"
        )
    mark_foreign(extracted)
    extracted.rename(target)
    atomic.sync_folder(target.parent)
    return target


class _Entries:
    """The entries of one archive; each is checked before it is written."""

    def __init__(self, file: Path, stream: BoundedStream, folder: Path, limits: Limits) -> None:
        self._file, self._stream, self._folder, self._limits = file, stream, folder, limits
        self._root: str | None = None
        self._files: set[str] = set()
        self._folders: dict[str, str] = {}
        """Names as case-insensitive file systems see them, mapped to the names in the archive."""
        self._size_bytes = self._state_bytes = 0

    def unpack(self) -> str:
        """Write every file below the temporary folder, and return the name of the run folder."""
        for entry in self._headers():
            is_file = entry.type != _FOLDER
            self._check_name(entry.name, is_file=is_file)
            if is_state(entry.name.partition("/")[2]):
                self._state_bytes += entry.size
            else:
                self._size_bytes += entry.size
            self._limits.check(
                str(self._file),
                files=len(self._files) + len(self._folders),
                size_bytes=self._size_bytes,
                state_bytes=self._state_bytes,
            )
            if is_file:
                self._limits.check_file(entry.name.partition("/")[2], entry.size)
                self._write(entry.name, entry.size)
        if self._root is None or fold_name(f"{self._root}/run.json") not in self._files:
            raise self._refused("it holds no run.json")
        return self._root

    def _headers(self) -> Iterator[tarfile.TarInfo]:
        while any(block := self._stream.read(_BLOCK)):
            try:
                entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
            except (tarfile.HeaderError, UnicodeDecodeError, ValueError) as error:
                raise self._refused(f"it is not a tar file: {error}") from error
            if entry.type not in (*_FILES, _FOLDER):
                kind = _REFUSED_TYPES.get(entry.type, f"an entry of type {entry.type!r}")
                raise self._refused(f"{entry.name!r} is {kind}")
            if entry.size < 0 or (entry.type == _FOLDER and entry.size):
                raise self._refused(f"{entry.name!r} has the size {entry.size}")
            yield entry
        if any(any(rest) for rest in self._stream.rest()):
            raise self._refused("data follows its end")

    def _check_name(self, name: str, *, is_file: bool) -> None:
        """Raise if a name leads elsewhere, is a duplicate, or belongs to a second run."""
        problem = name_fault(name)
        if problem:
            raise self._refused(f"{name!r} is {problem}")
        root, _, inside = name.partition("/")
        if self._root not in (None, root) or (is_file and not inside):
            raise self._refused(f"{name!r} is not in the folder of the run, {self._root or root}")
        self._root = root
        excluded = is_excluded(inside) or is_excluded(fold_name(inside))
        if excluded and not (is_file and is_state(inside)):
            raise self._refused(f"{name!r} is neither part of a result nor a state for audits")
        if is_file and inside != "run.json" and fold_name(name).endswith("/run.json"):
            raise self._refused(f"{name!r} belongs to a second run")
        key = fold_name(name)
        folders = [str(parent) for parent in list(Path(name).parents)[:-1]]
        folders += [] if is_file else [name]
        keys = {fold_name(folder): folder for folder in folders}
        is_also_folder = is_file and key in self._folders
        if key in self._files or is_also_folder or keys.keys() & self._files:
            raise self._refused(f"{name!r} is a duplicate, at least on some file systems")
        for folder_key, folder in keys.items():
            if self._folders.setdefault(folder_key, folder) != folder:
                first = self._folders[folder_key]
                raise self._refused(f"{folder!r} and {first!r} are the same on some file systems")
        if is_file:
            self._files.add(key)

    def _write(self, name: str, size: int) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for part in self._stream.parts(size):
                file.write(part)
        self._stream.read(-size % _BLOCK)

    def _refused(self, why: str) -> ArchiveRefused:
        return ArchiveRefused(
            f"{self._file} was not extracted: {why}",
            hint="ask for an archive that `vflops archive` made",
        )
