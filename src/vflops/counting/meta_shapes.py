"""Computes the results of operators on the meta device faster than torch does.

Torch infers many shapes through Python decompositions: batch normalization takes four fifths of
a ResNet's forward pass on the meta device, and the first such operator of a process imports the
compiler (1.5 s). Each shortcut gives the same result as torch, which the tests check; torch
infers the shapes of all other operators, once for each combination of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Shortcut = Callable[..., Any]

_Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]


class ShapeInference:
    """Runs one operator on the meta device, and repeats known results for the same arguments.

    A recurrent network applies the same few operators to the same shapes thousands of times.
    """

    def __init__(self, func: Any) -> None:
        self._func = func
        self._shortcut = SHORTCUTS.get(str(func)) or WITHOUT_META_KERNEL.get(str(func))
        self._writes = _writes_first_argument(func)
        self._repeats = self._writes or _makes_new_tensors(func)
        self._known: dict[Hashable, tuple[_Layout, ...] | _Layout] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call: tensors of the right shapes."""
        key = self.key(args, kwargs)
        known = self.known(key, args)
        return self._new_result(key, args, kwargs) if known is None else known

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
        """Return what the shapes of the results depend on; None if they are not repeated.

        If there is a key, all tensors among the arguments are on the meta device.
        """
        return _key(args, kwargs) if self._repeats else None

    def known(self, key: Hashable | None, args: Sequence[Any]) -> Any:
        """Return the result for arguments that were seen before; None if they were not."""
        layouts = None if key is None else self._known.get(key)
        if layouts is None:
            return None
        if self._writes:
            return args[0]
        if isinstance(layouts[0], torch.Size):
            return _empty_strided(layouts[0], layouts[1], dtype=layouts[2], device=_META)
        return tuple([_empty_strided(x[0], x[1], dtype=x[2], device=_META) for x in layouts])

    def _new_result(
        self, key: Hashable | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        before = _layout(args[0]) if self._writes and isinstance(args[0], Tensor) else None
        infer = self._func if self._shortcut is None or kwargs else self._shortcut
        result = infer(*args, **kwargs)
        layouts = None if key is None else _layouts(result)
        is_unchanged = not self._writes or (result is args[0] and layouts == before)
        if layouts is not None and is_unchanged:
            self._known[key] = layouts
        return result


_META = torch.device("meta")
_empty_strided = torch.empty_strided


def _key(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
    try:
        key = tuple([_described(argument) for argument in args])
        if kwargs:
            named = [(name, _described(argument)) for name, argument in kwargs.items()]
            key = (*key, None, *named)
        hash(key)
    except (_NotRepeatableError, TypeError):
        return None
    return key


class _NotRepeatableError(Exception):
    """An argument has more properties than its shape, strides and type."""


def _described(argument: Any) -> Hashable:
    kind = type(argument)
    if kind is Tensor or kind is torch.nn.Parameter:
        # Scalar tensors promote types differently if they come from Python numbers.
        shape, dtype = argument.shape, argument.dtype
        if not argument.is_meta or not shape or dtype.is_complex:
            raise _NotRepeatableError
        return shape, argument.stride(), dtype
    if isinstance(argument, Tensor):
        raise _NotRepeatableError
    if kind is list or kind is tuple:
        return tuple([_described(item) for item in argument])
    return kind, argument


def _makes_new_tensors(func: Any) -> bool:
    """Whether all results of ``func`` are new tensors and no argument is written to."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.returns:
        return False
    return all(item.alias_info is None for item in (*schema.arguments, *schema.returns)) and all(
        str(result.type) == "Tensor" for result in schema.returns
    )


def _writes_first_argument(func: Any) -> bool:
    """Whether ``func`` works in place: it writes to its first argument and returns it."""
    schema = getattr(func, "_schema", None)
    if schema is None or len(schema.returns) != 1 or not schema.arguments:
        return False
    written = [argument.alias_info is not None for argument in schema.arguments]
    alias = schema.arguments[0].alias_info
    return written == [True] + [False] * (len(written) - 1) and alias.is_write


def _layouts(result: Any) -> Any:
    if isinstance(result, Tensor):
        return _layout(result)
    if isinstance(result, tuple) and result and all(isinstance(r, Tensor) for r in result):
        layouts = tuple(_layout(tensor) for tensor in result)
        return None if None in layouts else layouts
    return None


def _layout(tensor: Tensor) -> _Layout | None:
    if not tensor.is_meta or type(tensor) is not Tensor or tensor.is_complex():
        return None
    return tensor.shape, tensor.stride(), tensor.dtype


def _batch_norm(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    channels = x.shape[1]
    return torch.empty_like(x), x.new_empty(channels), x.new_empty(channels)


def _like(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _nll_loss(x: Tensor, target: Tensor, weight: Any, reduction: int, *rest: Any) -> Any:
    return x.new_empty(target.shape if reduction == 0 else ()), x.new_empty(())


def _mm(left: Tensor, right: Tensor) -> Tensor:
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0]:
        raise RuntimeError(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({_format_shape(left.shape)} and {_format_shape(right.shape)})"
        )
    return left.new_empty(left.shape[0], right.shape[1])


def _addmm(addend: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return _mm(left, right)


def _mean(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    reduced = {dim % x.dim() for dim in dims} or set(range(x.dim()))
    if keepdim:
        return x.new_empty([1 if dim in reduced else n for dim, n in enumerate(x.shape)])
    return x.new_empty([n for dim, n in enumerate(x.shape) if dim not in reduced])


def _fake_quantised(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _format_shape(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape)


SHORTCUTS: Mapping[str, Shortcut] = {
    "aten.native_batch_norm.default": _batch_norm,
    "aten.mm.default": _mm,
    "aten.addmm.default": _addmm,
    "aten.mean.dim": _mean,
    "aten._softmax.default": _like,
    "aten._log_softmax.default": _like,
    "aten.nll_loss_forward.default": _nll_loss,
}

WITHOUT_META_KERNEL: Mapping[str, Shortcut] = {
    "aten.fake_quantize_per_tensor_affine_cachemask.default": _fake_quantised,
    "aten.fake_quantize_per_channel_affine_cachemask.default": _fake_quantised,
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": _fake_quantised,
}
"""Operators that torch cannot run on the meta device."""

INITIALISATIONS = frozenset(
    {"aten.normal_.default", "aten.uniform_.default", "aten.fill_.Scalar", "aten.zero_.default"}
)
"""In-place initialisations, which have no effect on the meta device."""
