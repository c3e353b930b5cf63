"""The inputs of a model as shapes and plain values, and their notation on the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflops.errors import UsageError


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: the shape of a sample without the batch dimension, and its type.

    An empty shape is one number per sample: a tensor of the shape ``(batch,)``.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    name: str = ""
    """The keyword of the argument, ``argument.key`` for an entry of a dictionary; by default, the
    argument is positional."""


@dataclass(frozen=True)
class ValueSpec:
    """An argument of a model that is not a tensor: a number, a string, a boolean or None."""

    value: bool | int | float | str | None
    name: str = ""
    """The keyword of the argument, as for ``InputSpec``."""


Input = InputSpec | ValueSpec

_SCALAR = "scalar"
_VALUE = "value:"
_NAME = r"(?:(?P<name>[A-Za-z_]\w*(?:\.\w+)*)=)?"
_SHAPE = r"(?P<shape>scalar|\d{1,12}(?:x\d{1,12})*)(?::(?P<dtype>\w+))?"


def parse_input(text: str) -> Input:
    """Parse one ``--input``: ``3x224x224``, ``tokens=128:int64``, ``scalar`` or ``value:7``."""
    named = re.fullmatch(_NAME + f"{_VALUE}(?P<value>.*)", text.strip(), flags=re.DOTALL)
    if named is not None:
        return ValueSpec(_plain_value(named["value"]), named["name"] or "")
    match = re.fullmatch(_NAME + _SHAPE, text.strip(), flags=re.IGNORECASE)
    is_scalar = match is not None and match["shape"].lower() == _SCALAR
    sizes = match["shape"].lower().split("x") if match and not is_scalar else []
    shape = tuple(int(size) for size in sizes)
    if match is None or 0 in shape:
        raise UsageError(
            f"input {text!r} is not valid",
            hint="write the shape of one sample, without the batch: 3x224x224, 128:int64, or "
            "scalar for one number per sample; tokens=128:int64 for a keyword argument, "
            "value:7 for a plain value",
        )
    return InputSpec(shape, (match["dtype"] or "float32").lower(), match["name"] or "")


def _plain_value(text: str) -> bool | int | float | str | None:
    lowered = text.strip().lower()
    if lowered in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[lowered]
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, int | float | str) else text


def arguments(specs: Sequence[Input], values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments of a call, one of ``values`` per spec.

    Entries of the same dictionary, such as ``batch.tokens`` and ``batch.mask``, are one argument.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for spec, value in zip(specs, values, strict=True):
        if not spec.name:
            positional.append(value)
            continue
        *parents, key = spec.name.split(".")
        target = keywords
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise UsageError(
                    f"input {spec.name} is an entry of {parent}, which is also given as a value",
                    hint=f"give either {parent} or entries of it",
                )
        if key in target:
            raise UsageError(f"input {spec.name} is given twice", hint="give each input once")
        target[key] = value
    return positional, keywords
