"""Synthetic data in the cache: drawn by one process at a time, complete or absent."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from vflops.errors import VflopsError
from vflops.record.files.cache import cache_entry, cache_hint
from vflops.record.files.lock import InUse

OnWait = Callable[[], None]
"""Called repeatedly while another process draws the same data."""

_POLL_S = 0.2


def no_wait() -> None:
    """Show nothing while waiting."""


def cached_data(name: str, pack: Callable[[Path], object], on_wait: OnWait = no_wait) -> Path:
    """Return the folder ``name`` in the cache, after creating it with ``pack`` if it is missing.

    ``pack`` builds the folder in a ``Workspace`` and raises ``InUse`` if another process does so.
    In that case, wait: the other process finishes the folder, or this one resumes the work.
    """
    folder = cache_entry(name)
    while not folder.is_dir():
        try:
            with cache_hint():
                pack(folder)
        except InUse:
            on_wait()
            time.sleep(_POLL_S)
        except (VflopsError, OSError):
            if not folder.is_dir():  # otherwise another process finished it in the meantime
                raise
    return folder
