"""What other packages add: objects that they offer by entry points."""

from __future__ import annotations

import importlib
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from vflops.errors import UsageError


def offered(group: str) -> dict[str, Any]:
    """The group's objects by name, each marked with the package that it comes from.

    One that cannot be loaded is left out: it must not take the others with it (see ``broken``).
    """
    found = {entry.name: _loaded(entry) for entry in entry_points(group=group)}
    return {name: each for name, each in found.items() if not isinstance(each, UsageError)}


def broken(group: str) -> dict[str, UsageError]:
    """What of the group cannot be loaded, by name, each with the reason."""
    found = {entry.name: _loaded(entry) for entry in entry_points(group=group)}
    return {name: each for name, each in found.items() if isinstance(each, UsageError)}


def _loaded(entry: EntryPoint) -> Any:
    origin = entry.dist.name if entry.dist else "another package"
    try:
        return replace(entry.load(), origin=origin)
    except Exception as error:
        return UsageError(
            f"{entry.name!r} of {origin} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"mend or uninstall {origin}",
        )


def imported(target: str) -> Any:
    """The object that ``package.module:name`` names, imported now."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{target} cannot be loaded: {error}", hint=f"mend or reinstall {module.split('.')[0]}"
        ) from error
