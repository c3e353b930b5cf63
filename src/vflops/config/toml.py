"""TOML as a user wrote it: read, or refused with what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from vflops.errors import UsageError

NOT_TOML = (ValueError, RecursionError)
"""What ``tomllib`` raises: no TOML, no UTF-8, 5,000 digits; nested without end."""


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says, or an error that names the file and the place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except NOT_TOML as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


def assigned(assignment: str, *, example: str) -> dict[str, Any]:
    """``section.key=value`` as the nested sections that it changes; ``example`` is a good one.

    A value is as TOML writes it; a bare word is a string, a comma makes a list.
    """
    key, separator, text = assignment.partition("=")
    if not separator:
        raise UsageError(f"--set {assignment!r} has no '='", hint=f"write it as --set {example}")
    change: Any = _value(text)
    for part in reversed(key.strip().split(".")):
        change = {part: change}
    found: dict[str, Any] = change
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except NOT_TOML:
        return [part.strip() for part in text.split(",")] if "," in text else text.strip()
