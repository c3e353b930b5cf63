"""Objects that other packages provide through entry points."""

from __future__ import annotations

import importlib
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from vflops.errors import UsageError


def load_extensions(group: str) -> dict[str, Any]:
    """Return the group's objects by name, each marked with the package that provides it.

    An object that cannot be loaded is left out, so that the others still work; see
    ``extension_errors``.
    """
    loaded = {entry.name: _load(entry) for entry in entry_points(group=group)}
    return {name: value for name, value in loaded.items() if not isinstance(value, UsageError)}


def extension_errors(group: str) -> dict[str, UsageError]:
    """Return the error of each object of the group that cannot be loaded, by name."""
    loaded = {entry.name: _load(entry) for entry in entry_points(group=group)}
    return {name: value for name, value in loaded.items() if isinstance(value, UsageError)}


def _load(entry: EntryPoint) -> Any:
    """Return the object of an entry point, or a ``UsageError`` if it cannot be loaded."""
    origin = entry.dist.name if entry.dist else "another package"
    try:
        return replace(entry.load(), origin=origin)
    except Exception as error:
        return UsageError(
            f"{entry.name!r} from {origin} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"fix or uninstall {origin}",
        )


def import_object(target: str) -> Any:
    """Import and return the object that ``package.module:name`` names."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{target} cannot be loaded: {error}", hint=f"fix or reinstall {module.split('.')[0]}"
        ) from error
