"""Capture: run a model once on the meta device and write down every operator it calls.

No arithmetic is done and no memory of the model's size is taken, so the cost does not depend on
the batch. The backward pass is not run: which gradients it needs is read off the forward pass.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vflops.counting import aten
from vflops.counting.meta_shapes import FILLS, SHORTCUTS
from vflops.errors import UsageError
from vflops.record.formats.graph import NO_ARITHMETIC, Graph, Node, Value

Loss = Callable[[Any], Tensor]


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: the shape of a sample, without the batch, and its type."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def capture(
    build: Callable[[], nn.Module],
    inputs: Sequence[InputSpec],
    *,
    name: str,
    batch: int = 1,
    loss: Loss | None = None,
) -> Graph:
    """The operation graph of one training step's forward pass over ``batch`` samples."""
    model = on_meta(build, name)
    try:
        tensors = [
            torch.empty((batch, *spec.shape), dtype=_dtype(spec.dtype), device="meta")
            for spec in inputs
        ]
        with _Recorder(model, tensors) as recorder, torch.device("meta"):
            result = model(*tensors)
            if loss is not None:
                result = loss(result)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise _cannot_run(name, inputs, error) from error
    return recorder.graph(name, batch, [leaf for leaf in tree_leaves(result) if _is_tensor(leaf)])


def cross_entropy(logits: Tensor) -> Tensor:
    """The classification loss of one label a sample."""
    labels = torch.empty(logits.shape[0], dtype=torch.long, device=logits.device)
    return nn.functional.cross_entropy(logits, labels)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"unknown input type {name!r}", hint="for example 128:int64 for tokens")
    return dtype


def on_meta(build: Callable[[], nn.Module], name: str) -> nn.Module:
    """The model with shapes and without numbers, as it is in training."""
    try:
        with _Building(), torch.device("meta"):
            model = build if isinstance(build, nn.Module) else build()
    except (Exception, SystemExit) as error:
        needs = isinstance(error, TypeError) and "missing" in str(error)
        raise UsageError(
            f"model {name} cannot be built on the meta device: {_last_line(error)}{_at(error)}",
            hint="it needs arguments: name a function without any that returns the model"
            if needs
            else "build it without reading weights or values; give random or no initial weights",
        ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"model {name} returned {type(model).__name__}, expected a torch.nn.Module",
            hint="name a class of the model or a function that returns an instance",
        )
    return model.to("meta").train()


_CHOOSES = ("elementwise", "reduction")
"""Kinds of operators that are not the model's where gradients are off."""


class _MetaMode(TorchDispatchMode):
    """A mode that torch.compile never sees, so that entering it does not import the compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Building(_MetaMode):
    """Builds a model without filling in numbers that the meta device cannot hold."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        fills = str(func) in FILLS and args[0].is_meta
        return args[0] if fills else func(*args, **(kwargs or {}))


class ShapesOnly(_MetaMode):
    """A context in which operators on the meta device find their shapes quickly."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        shortcut = None if kwargs else SHORTCUTS.get(str(func))
        return shortcut(*args) if shortcut else func(*args, **(kwargs or {}))


class _Recorder(_MetaMode):
    """Writes down operators below autograd, where composites are already taken apart."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self._values: list[Value] = []
        self._nodes: list[Node] = []
        self._index: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._keep: list[Tensor] = []  # an id is unique only while its tensor lives
        self._scopes = {id(module): path for path, module in model.named_modules()}
        self._path = [""]
        self._parameters: dict[str, int] = {}
        for name, parameter in model.named_parameters():
            self._add(parameter, parameter=name)
            if parameter.requires_grad:
                self._parameters[name] = parameter.numel()
        self._inputs = [self._add(tensor) for tensor in inputs]

    def __enter__(self) -> _Recorder:
        def enter(module: nn.Module, args: Any) -> None:
            self._path.append(self._scopes.get(id(module), self._path[-1]))

        def leave(module: nn.Module, args: Any, result: Any) -> None:
            self._path.pop()

        self._hooks = (
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        )
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        op = str(func)
        name = aten.base_name(op)
        tensors = [leaf for leaf in _leaves(args) if isinstance(leaf, Tensor)]
        tensors += [leaf for leaf in _leaves(kwargs.values()) if isinstance(leaf, Tensor)]
        picks_by_mask = name == "index" and any(t.dtype == torch.bool for t in tensors)
        if name in aten.NEEDS_DATA or picks_by_mask:
            raise _NeedsDataError(op)
        inputs = [self._lookup(tensor) for tensor in aten.operands(name, tensors)]
        shortcut = None if kwargs else SHORTCUTS.get(op)
        result = shortcut(*args) if shortcut else func(*args, **kwargs)
        results = [leaf for leaf in _leaves((result,)) if isinstance(leaf, Tensor)]
        arguments = {
            argument.name: value
            for argument, value in zip(func._schema.arguments, args, strict=False)
        } | dict(kwargs)
        self._record(op, name, inputs, arguments, results)
        return result

    def _record(
        self,
        op: str,
        name: str,
        inputs: list[int],
        arguments: dict[str, Any],
        results: list[Tensor],
    ) -> None:
        shapes = [self._values[index].shape for index in inputs]
        kind = aten.KIND_OF.get(name, "other")
        if results and not any(_is_real(tensor) for tensor in results):
            kind = "bookkeeping"  # integers and truth values: no floating-point operation
        if kind in _CHOOSES and not torch.is_grad_enabled():
            kind = "bookkeeping"  # it decides what is trained on, as matching boxes does
        if aten.is_global_pool(name, arguments, shapes):
            kind = "global-pool"
        source = next((self._values[index].parameter for index in inputs), None)
        view_of = source if kind == "layout" else None
        if kind == "product" and any(self._values[index].parameter for index in inputs[:2]):
            kind = "dense"
        outputs = tuple(self._add(tensor, parameter=view_of) for tensor in results)
        if op.split(".")[1].endswith("_"):  # in place: whoever shares the memory sees the result
            for tensor, index in zip(results, outputs, strict=True):
                self._written[_memory(tensor)] = index
        self._nodes.append(
            Node.model_construct(
                kind=kind,
                op=op,
                scope=self._path[-1],
                inputs=tuple(inputs),
                outputs=outputs,
                attributes=aten.attributes(name, kind, arguments, shapes),
            )
        )

    def _add(self, tensor: Tensor, parameter: str | None = None) -> int:
        # A result's requires_grad is set by autograd only after the dispatch: see graph().
        self._values.append(
            Value.model_construct(
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                grad=tensor.requires_grad,
                parameter=parameter,
            )
        )
        self._keep.append(tensor)
        self._index[id(tensor)] = len(self._values) - 1
        return len(self._values) - 1

    def _lookup(self, tensor: Tensor) -> int:
        index = self._index.get(id(tensor))
        if index is None:
            return self._add(tensor)  # a buffer or a constant that the model holds
        written = self._written.get(_memory(tensor), index)
        if written <= index:
            return index
        # A view of this tensor was written to since: the tensor now depends on that writer.
        alias = self._add(tensor, parameter=self._values[index].parameter)
        self._nodes.append(
            Node.model_construct(
                kind="layout",
                op="alias",
                scope=self._path[-1],
                inputs=(index, written),
                outputs=(alias,),
                attributes={},
            )
        )
        return alias

    def graph(self, name: str, batch: int, results: Sequence[Tensor]) -> Graph:
        """All that was recorded, without what nothing uses."""
        outputs = [self._lookup(tensor) for tensor in results]
        values = [
            value.model_copy(update={"grad": tensor.requires_grad})
            for value, tensor in zip(self._values, self._keep, strict=True)
        ]
        nodes = _without_unused(self._nodes, set(outputs))
        used = sorted(
            {index for node in nodes for index in (*node.inputs, *node.outputs)}
            | set(outputs)
            | set(self._inputs)
        )
        renumbered = {old: new for new, old in enumerate(used)}

        def renumber(indices: Sequence[int]) -> tuple[int, ...]:
            return tuple(renumbered[index] for index in indices)

        return Graph(
            model=name,
            framework=f"torch {torch.__version__}",
            batch=batch,
            inputs=renumber(self._inputs),
            outputs=renumber(outputs),
            parameters=self._parameters,
            values=tuple(values[index] for index in used),
            nodes=tuple(
                node.model_copy(
                    update={"inputs": renumber(node.inputs), "outputs": renumber(node.outputs)}
                )
                for node in nodes
            ),
        )


def _without_unused(nodes: Sequence[Node], wanted: set[int]) -> list[Node]:
    """``nodes`` less those without arithmetic whose results nobody reads."""
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.kind not in NO_ARITHMETIC or wanted.intersection(node.outputs):
            kept.append(node)
            wanted = wanted | set(node.inputs)
    return kept[::-1]


def _leaves(arguments: Any) -> Any:
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from _leaves(argument)
        else:
            yield argument


def _is_real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class _NeedsDataError(Exception):
    """The model asks for a number, and the meta device has none."""


def _cannot_run(name: str, inputs: Sequence[InputSpec], error: BaseException) -> UsageError:
    if isinstance(error, _NeedsDataError) or "meta tensor" in str(error).lower():
        return UsageError(
            f"model {name} depends on the values of its data{_at(error)}",
            hint="capture sees shapes, not numbers: replace the branch, .item() or mask "
            "by torch.where or a fixed choice",
        )
    shapes = ", ".join("x".join(map(str, spec.shape)) for spec in inputs)
    wants_integers = "indices" in str(error)
    example = "128:int64" if wants_integers else "3x224x224"
    return UsageError(
        f"model {name} does not run on an input of {shapes}: {_last_line(error)}{_at(error)}",
        hint=f"give the shape (and type) of one sample, for example --input {example}",
    )


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _at(error: BaseException) -> str:
    """The place in the user's own code that led to ``error``, with its source line."""
    libraries = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(libraries) and frame.lineno is not None:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f" at {frame.filename}:{frame.lineno}" + (f": {line}" if line else "")
    return ""
