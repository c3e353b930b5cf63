"""Finds the tensors in what a model returns, whatever object contains them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_OPAQUE = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    torch.dtype,
    torch.device,
    nn.Module,
    FunctionType,
    MethodType,
    ModuleType,
)
"""What contains no results of a model."""


_MOST_ITEMS = 10_000
"""Items that are taken from an iterator, which may not end."""


def tensors_in(result: object) -> list[Tensor]:
    """Return each tensor in ``result`` once: in containers, data classes, attributes and slots."""
    tensors: list[Tensor] = []
    seen: dict[int, object] = {}  # keeps objects alive, because an id is unique only until then
    waiting = [result]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, _OPAQUE):
            continue
        seen[id(item)] = item
        if isinstance(item, Tensor):
            tensors.append(item)
        else:
            waiting.extend(reversed(list(_members(item))))
    return tensors


def _members(item: Any) -> Iterator[Any]:
    if isinstance(item, Mapping):
        yield from item.values()
    elif isinstance(item, Collection) and not isinstance(item, range) and _may_have_tensors(item):
        yield from item
    elif isinstance(item, Iterator):
        yield from islice(item, _MOST_ITEMS)
    elif isinstance(item, partial):
        yield from (item.args, item.keywords)
    if is_dataclass(item):
        yield from (getattr(item, field.name, None) for field in fields(item))
    yield from getattr(item, "__dict__", {}).values()
    for kind in type(item).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__"):
                yield getattr(item, name, None)


def _may_have_tensors(item: Any) -> bool:
    """Whether ``item`` is not an array of numbers, such as numpy's."""
    return str(getattr(item, "dtype", "object")) == "object"
