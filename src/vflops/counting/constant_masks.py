"""Finds out whether the constant masks of a model are causal, by computing them.

The meta device has no values, but a mask that ``forward`` makes from sizes alone, with operators
such as ``arange``, ``tril`` and comparisons, can be computed again. Long sequences are shortened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vflops.counting.aten import base_name

_LONGEST = 512
"""Sequences are shortened to this length: the rule that makes a mask is the same for all."""
_MOST_ELEMENTS = 1 << 24
_NEGLIGIBLE = -1e4
"""A score from which softmax makes 0, also in half precision."""
_CONJUNCTIONS = frozenset("bitwise_and logical_and __and__ mul".split())
_DISJUNCTIONS = frozenset("bitwise_or logical_or __or__".split())


@dataclass(eq=False)
class _Expression:
    """An operator on constants; its tensor arguments are expressions, too."""

    op: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: int | None
    """The number of the result among several."""
    verdicts: dict[Any, bool | None] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{id(self)}>"


class ConstantMasks:
    """The tensors of a forward pass that depend on sizes alone, and where they are used."""

    def __init__(self) -> None:
        self._constant: dict[int, _Expression] = {}
        self._known: dict[tuple[Any, ...], _Expression] = {}
        self._sharing: dict[int, list[int]] = {}
        self._kept: list[Tensor] = []  # an id is unique only while its tensor exists

    def note(
        self,
        op: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: Sequence[Tensor],
        results: Sequence[Tensor],
    ) -> bool | None:
        """Note a call; return whether a constant in it is a causal mask, None if unknown."""
        constants = [self._constant.get(id(tensor)) for tensor in tensors]
        is_constant = None not in constants and "out" not in kwargs
        noted = (self._without_tensors(args), self._without_tensors(kwargs)) if is_constant else ()
        if self._constant and (op.split(".")[1].endswith("_") or "out" in kwargs):
            self._forget_memory(results)
        if noted:
            self._add(op, *noted, results)
            return None
        for tensor, expression in zip(tensors, constants, strict=True):
            if expression is not None and tensor.dim() >= 2 and min(tensor.shape[-2:]) > 1:
                return _is_causal(base_name(op), args, expression, tensor)
        return None

    def _add(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Tensor]
    ) -> None:
        for number, result in enumerate(results):
            position = None if len(results) == 1 else number
            key = (op, repr(args), repr(kwargs), position)
            if key not in self._known:
                self._known[key] = _Expression(op, args, kwargs, position)
            self._constant[id(result)] = self._known[key]
            self._kept.append(result)
            self._sharing.setdefault(_memory(result), []).append(id(result))

    def _forget_memory(self, written: Sequence[Tensor]) -> None:
        """Forget tensors that share memory with those that an operator wrote in place."""
        for tensor in written:
            for shared in self._sharing.pop(_memory(tensor), ()):
                self._constant.pop(shared, None)

    def _without_tensors(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self._constant[id(argument)]
        if isinstance(argument, list | tuple):
            return [self._without_tensors(item) for item in argument]
        if isinstance(argument, Mapping):
            return {name: self._without_tensors(item) for name, item in argument.items()}
        return argument


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_causal(
    name: str,
    args: Sequence[Any],
    mask: _Expression,
    tensor: Tensor,
) -> bool | None:
    """Whether an operator on data hides the future because of its constant operand ``mask``."""
    position = next((number for number, value in enumerate(args) if value is tensor), None)
    if name == "masked_fill" and position == 1:
        fill = args[2]
        hides = isinstance(fill, Tensor) or fill is True or fill <= _NEGLIGIBLE
        return _verdict(mask, tensor, "nonzero") if hides else None
    if name == "where" and position == 0:
        nonzero, zero = (_verdict(mask, tensor, kind) for kind in ("nonzero", "zero"))
        return None if nonzero is None else bool(nonzero or zero)
    if name in _CONJUNCTIONS:
        return _verdict(mask, tensor, "zero")
    if name in _DISJUNCTIONS:
        return _verdict(mask, tensor, "nonzero")
    if name == "add" or (name == "masked_fill" and position == 0):
        return _verdict(mask, tensor, "low")
    if name in ("sub", "rsub"):
        return _verdict(mask, tensor, "high" if (name, position) == ("sub", 1) else "low")
    return None


def _verdict(mask: _Expression, tensor: Tensor, kind: str) -> bool | None:
    """Whether all values above the diagonal are of a kind, and not all values are; or None."""
    key = (kind, tuple(tensor.shape))
    if key not in mask.verdicts:
        try:
            value = _computed(mask, _shortened(tensor.shape))
        except Exception:  # whatever an operator raises on other sizes
            mask.verdicts[key] = None
        else:
            mask.verdicts[key] = _hides_future(value, kind)
    return mask.verdicts[key]


def _hides_future(value: Tensor, kind: str) -> bool:
    hidden = {
        "zero": lambda: value == 0,
        "nonzero": lambda: value != 0,
        "low": lambda: value <= _NEGLIGIBLE,
        "high": lambda: value >= -_NEGLIGIBLE,
    }[kind]()
    rows, columns = value.shape[-2:]
    future = torch.ones(rows, columns, dtype=torch.bool, device="cpu").triu(
        1 + max(0, columns - rows)
    )
    return bool(hidden[..., future].all()) and not bool(hidden.all())


def _shortened(shape: Sequence[int]) -> dict[int, int]:
    """Return the sizes to replace, so that the mask is small."""
    rows, columns = shape[-2:]
    if rows == columns and rows > _LONGEST:
        return {rows: _LONGEST}
    return {}


def _computed(mask: _Expression, sizes: Mapping[int, int]) -> Tensor:
    values: dict[int, Any] = {}

    def replaced(argument: Any) -> Any:
        if isinstance(argument, _Expression):
            if id(argument) not in values:
                values[id(argument)] = computed(argument)
            return values[id(argument)]
        if isinstance(argument, list):
            return [replaced(item) for item in argument]
        if isinstance(argument, torch.device):
            return torch.device("cpu")
        if isinstance(argument, int) and not isinstance(argument, bool):
            return sizes.get(argument, argument)
        return argument

    def computed(expression: _Expression) -> Tensor:
        namespace, name, overload = expression.op.split(".")
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        args = [replaced(argument) for argument in expression.args]
        kwargs = {key: replaced(argument) for key, argument in expression.kwargs.items()}
        if name.endswith("_") and isinstance(args[0], Tensor):
            args[0] = args[0].clone()
        result = function(*args, **kwargs)
        if expression.result is not None:
            result = result[expression.result]
        if result.numel() > _MOST_ELEMENTS:
            raise ValueError("the mask is too large to compute")
        if "empty" in name:
            result.fill_(torch.nan)  # fails for integers
        value: Tensor = result
        return value

    return replaced(mask)  # type: ignore[no-any-return]
