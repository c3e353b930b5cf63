"""JSON text with sorted keys and indentation, as ``json.dumps`` writes it, but faster.

The encoder of the standard library is written in C only without indentation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any


def indented_json(data: Any) -> str:
    """Return ``data`` as JSON text with sorted keys and two spaces of indentation.

    Raise ``ValueError`` for NaN and infinity.
    """
    try:
        return _text(data, "\n")
    except TypeError:  # subclasses of the usual types, and keys that are not strings
        return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _text(value: Any, line: str) -> str:
    """Return the text of ``value``; ``line`` is a line break with the indentation around it."""
    kind = type(value)
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    inner = line + "  "
    items: list[str] = []
    if kind is dict:
        for key in sorted(value):
            item = value[key]
            scalar = _SCALARS.get(type(item))
            text = _text(item, inner) if scalar is None else scalar(item)
            items.append(f"{encode_basestring(key)}: {text}")
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}" if items else "{}"
    if kind is list or kind is tuple:
        items += [_text(item, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{line}]" if items else "[]"
    raise TypeError(f"{kind.__name__} is not a type of JSON")


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"Out of range float values are not JSON compliant: {value}")
    return repr(value)


_SCALARS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    float: _number,
    int: repr,
    bool: {True: "true", False: "false"}.__getitem__,
    type(None): lambda _: "null",
}
