"""Reads TOML that a user wrote in a file or with ``--set``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from vflops.errors import UsageError

TOML_ERRORS = (ValueError, RecursionError)
"""The exceptions that ``tomllib`` raises for invalid or too deeply nested input."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file, or raise ``UsageError`` with the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except TOML_ERRORS as error:
        raise UsageError(
            f"{path} is not TOML: {error}",
            hint="write name = value, one a line, with texts in quotes and sections in brackets",
        ) from error


def parse_assignment(assignment: str, *, example: str) -> dict[str, Any]:
    """Return ``section.key=value`` as nested sections.

    Values are written as in TOML; in addition, a bare word is a string, and bare words separated by
    commas are a list. ``example`` is shown in the hint of an error.
    """
    key, separator, text = assignment.partition("=")
    if not separator:
        raise UsageError(f"--set {assignment!r} has no '='", hint=f"write it as --set {example}")
    *sections, name = key.strip().split(".")
    change: dict[str, Any] = {name: _parse_value(text)}
    for section in reversed(sections):
        change = {section: change}
    return change


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except TOML_ERRORS:
        return [part.strip() for part in text.split(",")] if "," in text else text.strip()
