"""Parses JSON from untrusted files; an object that has a key twice is an error.

Parsers disagree on which of two equal keys counts, so that a signed file could mean one thing to
one program and something else to another.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Literal

from pydantic_core import from_json

_SPACE_BEFORE_COLON = (b" :", b"\n:", b"\t:", b"\r:")


def parse_json(
    data: bytes, *, allow_inf_nan: bool = True, cache_strings: Literal["all", "keys"] = "all"
) -> Any:
    """Return the value of a JSON text; raise ``ValueError`` that says what is wrong with it."""
    value = from_json(data, allow_inf_nan=allow_inf_nan, cache_strings=cache_strings)
    if not _has_every_key(data, value):
        _DECODER.decode(data.decode())  # slower, but finds the key
    return value


def _has_every_key(data: bytes, value: Any) -> bool:
    """Whether ``value`` has as many keys as its text ``data``; False if that is hard to tell.

    Without escapes and without space before colons, every key of the text ends with ``":``. A
    string that begins with a colon counts too, so the count is never too small.
    """
    if b"\\" in data or any(space in data for space in _SPACE_BEFORE_COLON):
        return False
    return data.count(b'":') == _count_keys(value)


def _count_keys(value: Any) -> int:
    keys = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is dict:
            keys += len(item)
            stack.extend(item.values())
        elif type(item) is list:
            stack.extend(item)
    return keys


def _without_duplicates(pairs: list[tuple[str, Any]]) -> None:
    counts = Counter(name for name, _ in pairs)
    if len(counts) < len(pairs):
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"an object has the key {twice[:100]!r} twice")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates)
