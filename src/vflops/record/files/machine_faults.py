"""Faults of the machine that reads a file, which say nothing about the content of the file."""

from __future__ import annotations

import errno
import os

_ERRNOS = frozenset(
    (
        errno.EACCES,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EPERM,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
    )
)
_TEXTS = (*map(os.strerror, sorted(_ERRNOS)), MemoryError.__name__)


def is_machine_fault(error: BaseException | None) -> bool:
    """Whether ``error`` or one of its causes is a full disk, lack of memory, or the like."""
    while error is not None:
        if isinstance(error, MemoryError) or (
            isinstance(error, OSError) and error.errno in _ERRNOS
        ):
            return True
        error = error.__cause__
    return False


def names_machine_fault(text: str) -> bool:
    """Whether ``text`` contains the message of such a fault.

    Rules and other readers turn errors into text. Text from a stranger's file may match as well.
    """
    return any(fault in text for fault in _TEXTS)
