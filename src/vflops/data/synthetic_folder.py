"""Folders of synthetic data: marked with their recipe, and resumable while they are built."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vflops.data.destination import is_occupied, partial_path
from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.files.document import read_json

MARK = "synthetic.json"
"""The file with the recipe of synthetic images or years; folders of real data do not have it."""


def recipe_of(folder: Path) -> dict[str, Any] | None:
    """Return the recipe of a folder of synthetic data, or None for real data."""
    return read_json(folder / MARK) if (folder / MARK).is_file() else None


def begin_folder(folder: Path, recipe: dict[str, Any], samples: str) -> Path:
    """Return ``folder.partial``: a new one with the recipe, or an unfinished one of this recipe."""
    partial = partial_path(folder)
    text = atomic.json_text(recipe)
    mark = partial / MARK
    if is_occupied(partial) and not (mark.is_file() and mark.read_text(encoding="utf-8") == text):
        raise UsageError(
            f"{partial} holds something other than these {samples}",
            hint="remove it, then try again",
        )
    atomic.make_folder(partial)
    atomic.write_text(mark, text)
    return partial


def check_limits(what: str, recipe: object, limits: Iterable[tuple[str, int, int]]) -> None:
    """Raise ``UsageError`` if a field of ``recipe`` exceeds its limits (name, minimum, maximum)."""
    for name, minimum, maximum in limits:
        value = getattr(recipe, name)
        if not minimum <= value <= maximum:
            hint = f"give a number from {minimum} to {maximum}"
            raise UsageError(f"{what}: {name} is {value}", hint=hint)
