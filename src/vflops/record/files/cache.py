"""Data that can be made again from a recipe: kept between runs, whole or absent."""

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
    """``$VFLOPS_CACHE``, or ``~/.cache/vflops``."""
    named = os.environ.get("VFLOPS_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "vflops"


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``name`` in the cache; ``make`` fills it where it is not there.

    Processes that make it at the same time do not disturb each other: each makes its own aside, the
    first to end puts it in place, the others use that one.
    """
    place = cache_folder() / name
    if place.is_dir():
        return place
    atomic.make_folder(place.parent)
    _drop_stale(place)
    aside = place.with_name(f".{name}-{os.getpid()}-{os.urandom(3).hex()}")
    try:
        make(aside)
        aside.rename(place)
        atomic.sync_folder(place.parent)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise atomic.cannot_write(place, error) from error
    finally:
        for left in place.parent.glob(f"{aside.name}*"):
            shutil.rmtree(left, ignore_errors=True)
    return place


def _drop_stale(place: Path) -> None:
    """Remove what a process that was killed left behind, a day ago or more."""
    for left in place.parent.glob(f".{place.name}-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
