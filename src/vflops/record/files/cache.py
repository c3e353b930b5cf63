"""A cache on disk for data that can be regenerated; each entry is complete or absent."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vflops.errors import UsageError, VflopsError
from vflops.record.files import atomic

_STALE_AFTER_S = 24 * 3600.0
_HINT = "name a folder with space that you can write to: export VFLOPS_CACHE=FOLDER"


def cache_folder() -> Path:
    """Return ``$VFLOPS_CACHE``, or ``~/.cache/vflops``."""
    path = os.environ.get("VFLOPS_CACHE")
    return Path(path) if path else Path.home() / ".cache" / "vflops"


def cache_entry(name: str) -> Path:
    """Return the path of an entry; raise ``VflopsError`` if it is missing and cannot be created."""
    path = cache_folder() / name
    with cache_hint():
        try:
            if path.exists():
                return path
        except OSError as error:  # a folder above it is not readable
            raise atomic.cannot_write(path.parent, error) from error
        atomic.make_folder(path.parent)
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write to the cache {path.parent}", hint=_HINT)
    return path


@contextmanager
def cache_hint() -> Iterator[None]:
    """Let errors of files that cannot be written say how to choose another cache."""
    try:
        yield
    except VflopsError as error:
        if error.message.startswith("cannot write"):
            error.hint = _HINT
        raise


_COMPILERS = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
"""The variables that tell each compiler where to keep its results, and their folders here."""


def keep_compiled_kernels() -> None:
    """Have torch's compilers keep their results in the cache, for all workloads and later runs.

    It does nothing where the cache cannot be written to, or the user has chosen another folder.
    Call it before torch compiles anything; child processes inherit it.
    """
    folder = cache_folder() / "kernels"
    with suppress(VflopsError):
        atomic.make_folder(folder)
        if os.access(folder, os.W_OK):
            for variable, name in _COMPILERS.items():
                os.environ.setdefault(variable, str(folder / name))


def cached_folder(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` in the cache, after creating it with ``make`` if it is missing.

    Several processes may create it at the same time: each writes to a temporary folder, the first
    to finish renames its folder, and the others use that folder.
    """
    folder = cache_entry(name)
    if folder.is_dir():
        return folder
    _remove_stale(folder)
    temporary = folder.with_name(f".{name}-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        make(temporary)
        temporary.rename(folder)
        atomic.sync_folder(folder.parent)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            with cache_hint():
                raise atomic.cannot_write(folder, error) from error
    finally:
        for leftover in folder.parent.glob(f"{temporary.name}*"):
            shutil.rmtree(leftover, ignore_errors=True)
    return folder


def _remove_stale(folder: Path) -> None:
    """Remove temporary folders that killed processes left behind more than a day ago."""
    for leftover in folder.parent.glob(f".{folder.name}-*"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_AFTER_S:
                shutil.rmtree(leftover, ignore_errors=True)
