"""Errors that a user can cause: each says what is wrong, with the value, and may give a hint.

The command line prints them without a traceback and exits with ``exit_code``:
0 for success, 1 if a check failed, 2 for wrong usage, 3 if the run failed, 130 if it was stopped.
``vflops accept`` also exits with 4 if it cannot decide. Ranks and agents also exit with 5 to be
restarted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_MESSAGE_LENGTH = 4000
_MAX_VALUE_LENGTH = 200


class Hint(str):
    """What to do about an error, ending in a command that the user can copy."""

    text: str
    command: str

    def __new__(cls, text: str, command: str) -> Hint:
        """Return ``text: command``; ``command`` begins with ``vflops``."""
        hint = super().__new__(cls, f"{text}: {command}")
        hint.text, hint.command = text, command
        return hint


class VflopsError(Exception):
    """An error that the command line shows as one line, followed by its hint if it has one."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _shorten(message, _MAX_MESSAGE_LENGTH)  # a quoted file can be one huge line
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")  # for scripts and notebooks, which show the traceback


class UsageError(VflopsError):
    """The command, a setting or an input is wrong, and nothing was run."""


class FolderError(VflopsError):
    """A run folder is damaged, or the folder does not contain a run."""


class RunFailed(VflopsError):
    """The run itself failed, for example because a disk filled up or a device was lost."""

    exit_code = 3


class DiskFull(RunFailed):
    """A file could not be written, because a disk or a quota is full."""


class OutOfMemory(RunFailed):
    """A step needs more memory than the device has."""


class RestartNeeded(RunFailed):
    """The ranks of a job must start again, and this does not count as a failed attempt."""

    exit_code = 5


class Interrupted(VflopsError):
    """The user stopped the run; the files that it has written are kept."""

    exit_code = 130


class Left(Interrupted):
    """The user left the run, and its jobs continue without it."""


class CheckFailed(VflopsError):
    """The run could be read, but does not comply with the rules."""

    exit_code = 1


def format_value(value: object) -> str:
    """Return ``repr(value)``, shortened for a message; never raise."""
    try:
        return _shorten(repr(value), _MAX_VALUE_LENGTH)
    except (RecursionError, ValueError):  # nested too deeply, or an integer with over 4,300 digits
        return f"a huge {type(value).__name__}"


def _shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def unknown_name(what: str, name: str, valid: Iterable[str], *, where: str = "") -> UsageError:
    """Return the error for a name that does not exist; its hint suggests valid names."""
    names = sorted(valid)
    suggestions = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = f"one of: {', '.join(names)}"
    if suggestions:
        hint = f"did you mean {' or '.join(suggestions)}?"
    return UsageError(f"unknown {what} {name!r}{where}", hint=hint)
