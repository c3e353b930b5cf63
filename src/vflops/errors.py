"""What a user can get wrong: each error names the thing, the value and the hint.

The command line prints these without a traceback and exits with ``exit_code``:
0 good, 1 the check failed, 2 wrong use, 3 the run failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_SIGNS = 4000
_MOST_SHOWN = 200


class VflopsError(Exception):
    """An error that the command line shows as one line and, where there is one, its hint."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _cut(message, _MOST_SIGNS)  # it may quote a file that is one long word
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(VflopsError):
    """The command, a setting or an input is wrong: nothing was run."""


class FolderError(VflopsError):
    """A run folder cannot be read as one."""


class RunFailed(VflopsError):
    """The run itself failed: a disk filled, a device was lost, a result was wrong."""

    exit_code = 3


class Interrupted(VflopsError):
    """The user stopped the run; what it wrote stays."""

    exit_code = 130


class CheckFailed(VflopsError):
    """The run was read, and it does not meet the rules."""

    exit_code = 1


def shown(value: object) -> str:
    """A value as a message shows it, whatever a file holds."""
    try:
        return _cut(repr(value), _MOST_SHOWN)
    except (RecursionError, ValueError):  # nested without end; an integer of 5,000 digits
        return f"a huge {type(value).__name__}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def unknown_name(what: str, name: str, valid: Iterable[str], *, where: str = "") -> UsageError:
    """An error for a name that does not exist, suggesting the nearest that do."""
    names = sorted(valid)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of: {', '.join(names)}"
    return UsageError(f"unknown {what} {name!r}{where}", hint=hint)
