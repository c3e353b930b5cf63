"""A lock on a folder, released when the process that holds it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.files.regular_file import open_regular

_RETRIES, _RETRY_DELAY_S = 5, 0.02


class InUse(UsageError):
    """Another process holds the lock on the folder."""


@contextmanager
def locked(lock: Path, folder: Path) -> Iterator[None]:
    """Lock ``folder`` with the file ``lock`` for the duration of a block, or raise ``InUse``."""
    try:
        file = lock.open("a+")
    except OSError as error:
        raise atomic.cannot_write(lock, error) from error
    with file:
        try:
            _lock(file)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise atomic.cannot_write(lock, error) from error
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise InUse(
                f"{folder} is in use by process {owner}",
                hint="wait until that process ends, or stop it first",
            ) from error
        try:
            _write_owner(file)
        except OSError as error:
            with suppress(OSError):  # closing the file writes what is left, and fails again
                file.close()
            raise atomic.cannot_write(lock, error) from error
        yield


def _write_owner(file: IO[str]) -> None:
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()


def _lock(file: IO[str]) -> None:
    """Lock the file for this process; retry, since ``is_locked`` also holds the lock briefly."""
    for retries_left in range(_RETRIES, -1, -1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if not retries_left or error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        time.sleep(_RETRY_DELAY_S)


def is_locked(lock: Path) -> bool:
    """Whether a running process holds the lock."""
    try:
        with open_regular(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    return False
