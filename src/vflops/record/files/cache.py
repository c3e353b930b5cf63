"""Data that can be generated again: cached between runs, complete or absent."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vflops.record.files import atomic

_STALE_S = 24 * 3600.0


def cache_folder() -> Path:
    """Return ``$VFLOPS_CACHE``, or ``~/.cache/vflops``."""
    named = os.environ.get("VFLOPS_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "vflops"


def cached_folder(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` in the cache; ``make`` creates it if it is missing.

    Processes that create it at the same time do not disturb each other: each writes to a temporary
    folder, the first to finish renames it, and the others use that one.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    atomic.make_folder(folder.parent)
    _drop_stale(folder)
    temporary = folder.with_name(f".{name}-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        make(temporary)
        temporary.rename(folder)
        atomic.sync_folder(folder.parent)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise atomic.cannot_write(folder, error) from error
    finally:
        for left in folder.parent.glob(f"{temporary.name}*"):
            shutil.rmtree(left, ignore_errors=True)
    return folder


def _drop_stale(folder: Path) -> None:
    """Remove what killed processes left behind a day ago or earlier."""
    for left in folder.parent.glob(f".{folder.name}-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
