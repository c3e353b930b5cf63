"""Passages that a trained language model continues, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from vflops.workloads.contract.exhibit import Figure, Passage

VERSION = 1
"""Of the arrays."""
_TEXTS = ("beginnings", "true", "greedy", "sampled")
_MAX_CHARACTERS = 2000


def figures(arrays: Mapping[str, NDArray[Any]]) -> list[Figure]:
    """Return the passages as one figure."""
    version = int(_array(arrays, "version", "iu", 0))
    if version != VERSION:
        raise ValueError(f"the passages have version {version}, expected {VERSION}")
    columns = [[_clean(str(text)) for text in _array(arrays, name, "U", 1)] for name in _TEXTS]
    temperature = float(_array(arrays, "temperature", "f", 0))
    top_k = int(_array(arrays, "top_k", "iu", 0))
    passages = tuple(
        Passage(
            beginning,
            (("the text", true), ("likeliest tokens", greedy), ("sampled tokens", sampled)),
        )
        for beginning, true, greedy, sampled in zip(*columns, strict=True)
    )
    caption = (
        "Beginnings of windows of the validation text, how the text continues, and how the trained "
        "model does: with the likeliest token each time, and with tokens sampled at a temperature "
        f"of {temperature:g} from the {top_k} likeliest. Generated after training, outside of all "
        "times."
    )
    return [Figure("Generated text", caption, passages=passages)]


def _array(arrays: Mapping[str, NDArray[Any]], name: str, kinds: str, ndim: int) -> NDArray[Any]:
    if name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    array = arrays[name]
    if array.dtype.kind not in kinds or array.ndim != ndim:
        raise ValueError(f"array {name!r} is {array.dtype}{list(array.shape)}")
    return array


def _clean(text: str) -> str:
    """Return a text of limited length without characters that a page cannot show."""
    shown = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in shown)
