"""Captures the graph of a model: runs it on the meta device and records every operator call.

No arithmetic is done and no memory is allocated for tensors, so the cost does not depend on the
batch size. The backward pass is not run: the forward pass shows which gradients it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

from vflops.counting import aten
from vflops.counting.meta_device import MetaMode, first_line, on_meta, user_line
from vflops.counting.meta_shapes import SHORTCUTS
from vflops.errors import UsageError
from vflops.record.formats.graph import NO_ARITHMETIC, Graph, Node, Value

Loss = Callable[[Any], Tensor]


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: the shape of a sample without the batch dimension, and its type."""

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
    """Return the operation graph of one training step's forward pass over ``batch`` samples."""
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
        raise _capture_error(name, inputs, error) from error
    return recorder.graph(name, batch, [leaf for leaf in tree_leaves(result) if _is_tensor(leaf)])


def cross_entropy(logits: Tensor) -> Tensor:
    """Return the classification loss with one label per sample."""
    labels = torch.empty(logits.shape[0], dtype=torch.long, device=logits.device)
    return nn.functional.cross_entropy(logits, labels)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, Tensor)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"unknown input type {name!r}",
            hint="use a torch type, for example 128:int64 for tokens",
        )
    return dtype


_SELECTION_KINDS = ("elementwise", "reduction")
"""Kinds that are not counted while gradients are disabled: they only select what to train on."""


class _Recorder(MetaMode):
    """Records operators below autograd, where composite operators are already decomposed."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self._values: list[Value] = []
        self._nodes: list[Node] = []
        self._index: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._tensors: list[Tensor] = []  # an id is unique only while its tensor exists
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
            kind = "bookkeeping"  # integers and booleans: no floating-point operation
        if kind in _SELECTION_KINDS and not torch.is_grad_enabled():
            kind = "bookkeeping"  # it selects what to train on, such as matching boxes
        if aten.is_global_pool(name, arguments, shapes):
            kind = "global-pool"
        source = next((self._values[index].parameter for index in inputs), None)
        view_of = source if kind == "layout" else None
        if kind == "product" and any(self._values[index].parameter for index in inputs[:2]):
            kind = "dense"
        outputs = tuple(self._add(tensor, parameter=view_of) for tensor in results)
        if op.split(".")[1].endswith("_"):  # in place: all views of the memory change
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
        # Autograd sets requires_grad of a result only after the dispatch: see graph().
        self._values.append(
            Value.model_construct(
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                grad=tensor.requires_grad,
                parameter=parameter,
            )
        )
        self._tensors.append(tensor)
        self._index[id(tensor)] = len(self._values) - 1
        return len(self._values) - 1

    def _lookup(self, tensor: Tensor) -> int:
        index = self._index.get(id(tensor))
        if index is None:
            return self._add(tensor)  # a buffer or a constant that the model holds
        written = self._written.get(_memory(tensor), index)
        if written <= index:
            return index
        # A view of this tensor was written to since: the tensor now depends on that operator.
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
        """Return the recorded graph without unused nodes that do no arithmetic."""
        outputs = [self._lookup(tensor) for tensor in results]
        values = [
            value.model_copy(update={"grad": tensor.requires_grad})
            for value, tensor in zip(self._values, self._tensors, strict=True)
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
    """Return ``nodes`` without those that do no arithmetic and whose results are unused."""
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
    """The model reads the value of a tensor, which does not exist on the meta device."""


def _capture_error(name: str, inputs: Sequence[InputSpec], error: BaseException) -> UsageError:
    if isinstance(error, _NeedsDataError) or "meta tensor" in str(error).lower():
        return UsageError(
            f"model {name} depends on the values of its data{user_line(error)}",
            hint="capture sees shapes, not values: replace the branch, .item() or mask "
            "by torch.where or a fixed choice",
        )
    shapes = ", ".join("x".join(map(str, spec.shape)) for spec in inputs)
    wants_integers = "indices" in str(error)
    example = "128:int64" if wants_integers else "3x224x224"
    return UsageError(
        f"model {name} does not run on an input of {shapes}: {first_line(error)}{user_line(error)}",
        hint=f"give the shape (and type) of one sample, for example --input {example}",
    )
