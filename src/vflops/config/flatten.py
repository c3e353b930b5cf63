"""Flattens nested settings to the dotted names of ``--set``, and compares two sets of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flatten(
    settings: Mapping[str, Any], prefix: str = "", *, keep_empty: bool = False
) -> dict[str, Any]:
    """Return every value under its dotted name, ``train.epochs``, in the order of ``settings``.

    A section without values is left out unless ``keep_empty`` is set.
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            flat |= flatten(value, f"{prefix}{key}.", keep_empty=keep_empty)
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of every setting that differs, by its dotted name.

    The names are in the order of ``after``. A missing value counts as None.
    """
    if before == after:
        return {}
    old, new = flatten(before), flatten(after)
    return {
        name: (old.get(name), new.get(name))
        for name in {**new, **old}
        if old.get(name) != new.get(name)
    }
