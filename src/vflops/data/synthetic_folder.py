"""Folders of synthetic data: marked with their recipe, built aside, resumed when stopped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vflops.data.destination import is_occupied, partial_path
from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.files.document import read_json

MARK = "synthetic.json"
"""In a folder of images or years: the recipe that they were drawn from; real data has none."""


def recipe_of(folder: Path) -> dict[str, Any] | None:
    """Return the recipe of a folder of synthetic data, or None for real data."""
    return read_json(folder / MARK) if (folder / MARK).is_file() else None


def begin_folder(folder: Path, recipe: dict[str, Any], samples: str) -> Path:
    """Create ``folder.partial`` with its mark, or return one of the same recipe to resume in."""
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
    """Raise ``UsageError`` if a number of ``recipe`` is outside its (name, least, most)."""
    for name, least, most in limits:
        value = getattr(recipe, name)
        if not least <= value <= most:
            raise UsageError(f"{what}: {name} is {value}", hint=f"from {least} to {most}")
