"""Errors that a user can cause: each names what is wrong, with the value, and a hint.

The command line prints them without a traceback and exits with ``exit_code``:
0 success, 1 the check failed, 2 wrong use, 3 the run failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST_MESSAGE = 4000
_LONGEST_VALUE = 200


class VflopsError(Exception):
    """An error that the command line shows as one line, followed by its hint if it has one."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _cut(message, _LONGEST_MESSAGE)  # it may quote a file without line breaks
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(VflopsError):
    """The command, a setting or an input is wrong: nothing was run."""


class FolderError(VflopsError):
    """A run folder is damaged, or the folder does not contain a run."""


class RunFailed(VflopsError):
    """The run itself failed: a disk filled, a device was lost, a result was wrong."""

    exit_code = 3


class Interrupted(VflopsError):
    """The user stopped the run; what it has written is kept."""

    exit_code = 130


class CheckFailed(VflopsError):
    """The run was read and does not comply with the rules."""

    exit_code = 1


def format_value(value: object) -> str:
    """Return ``value`` as a message shows it: shortened, and without ever raising."""
    try:
        return _cut(repr(value), _LONGEST_VALUE)
    except (RecursionError, ValueError):  # nested too deeply; an integer of 5,000 digits
        return f"a huge {type(value).__name__}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def unknown_name(what: str, name: str, valid: Iterable[str], *, where: str = "") -> UsageError:
    """Return the error for a name that does not exist; its hint suggests similar names."""
    names = sorted(valid)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of: {', '.join(names)}"
    return UsageError(f"unknown {what} {name!r}{where}", hint=hint)
