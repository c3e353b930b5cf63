"""Reads facts about the system; a failure becomes the reason why a fact is absent."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from vflops.record.formats.system import Fact, Value

_MAX_LENGTH = 300


class AbsentError(Exception):
    """A fact cannot be read; the message is recorded as the reason."""


def missing(reason: str) -> NoReturn:
    """Raise ``AbsentError`` in an expression: ``value or missing("…")``."""
    raise AbsentError(reason)


def fact(name: str, source: str, read: Callable[[], Value], *, unit: str | None = None) -> Fact:
    """Return a fact with the value of ``read()``, or with the reason why it cannot be read."""
    try:
        value = read()
        if isinstance(value, str):
            value = _printable(value) or missing(f"{source} is empty")
        return Fact(name=name, value=value, unit=unit, source=source)
    except Exception as error:
        return absent(name, source, reason_of(error, source), unit=unit)


def absent(name: str, source: str, reason: str, *, unit: str | None = None) -> Fact:
    """Return a fact without a value."""
    return Fact(name=name, value=None, unit=unit, source=source, reason=_printable(reason))


def text(path: Path) -> str:
    """Return the stripped content of a small file of ``/proc`` or ``/sys``."""
    return path.read_text(encoding="utf-8", errors="replace").strip()


def filled_text(path: Path) -> str:
    """Return the content of a small file; raise ``AbsentError`` if it is empty."""
    return text(path) or missing(f"{path.name} is empty")


def command(*arguments: str, timeout_s: float = 2.0) -> str:
    """Return the output of a command; raise ``AbsentError`` if it is missing, hangs or fails."""
    if shutil.which(arguments[0]) is None:
        raise AbsentError(f"{arguments[0]} is not on PATH")
    command_line = " ".join(arguments)
    try:
        process = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise AbsentError(f"`{command_line}` did not answer within {timeout_s:g} s") from error
    if process.returncode:
        raise AbsentError(f"`{command_line}` failed with exit status {process.returncode}")
    return process.stdout.strip() or process.stderr.strip()


def numbers(text: str) -> list[int]:
    """Return the numbers in a list as the kernel writes it, such as ``0-3,8``."""
    values: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        with suppress(ValueError):
            values += range(int(first), int(last or first) + 1)
    return values


def count_listed(text: str) -> int:
    """Return how many numbers a kernel list contains; raise ``AbsentError`` if there are none."""
    return len(numbers(text)) or missing(f"{text!r} lists no number")


def reason_of(error: Exception, source: str) -> str:
    """Return an error as the text of a recorded reason."""
    if isinstance(error, FileNotFoundError):
        return f"{source} does not exist"
    if isinstance(error, OSError) and error.strerror:
        return f"{source} cannot be read: {error.strerror.lower()}"
    if isinstance(error, AbsentError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _printable(value: str) -> str:
    """Return the text as one line of valid UTF-8, with the home folder abbreviated to ``~``."""
    line = " ".join(value.encode("utf-8", "replace").decode().split())
    home = os.environ.get("HOME", "").rstrip("/")
    line = line.replace(f"{home}/", "~/") if home else line
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
