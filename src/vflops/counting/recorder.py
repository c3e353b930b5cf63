"""Records the operators that a model calls on the meta device, as the nodes of a graph."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from vflops.counting import aten
from vflops.counting.constant_masks import ConstantMasks
from vflops.counting.meta_device import MetaMode
from vflops.counting.meta_shapes import ShapeInference
from vflops.counting.registered_formulas import operations_by, registered_formula
from vflops.record.formats.graph import (
    CAUSAL,
    FLOP_COUNTER,
    NO_ARITHMETIC,
    OPERATIONS,
    Attribute,
    Graph,
    Kind,
    Node,
    Value,
)

_SELECTION_KINDS = ("elementwise", "reduction")
"""Kinds that are not counted while gradients are disabled: they only select what to train on."""

_PRODUCTS: tuple[Kind, ...] = ("product", "convolution")

_NO_AUTOGRAD_NODE = -1
_AS_SUBCLASS = "AliasBackward0"
"""What autograd calls ``Tensor.as_subclass``, which is no operator."""


class NeedsDataError(Exception):
    """The model reads the value of a tensor, which does not exist on the meta device."""


class NestedTensorError(Exception):
    """The model uses nested tensors, whose sizes are values."""


class Operator:
    """What is known of an operator before it is called."""

    __slots__ = (
        "argument_names",
        "decomposes",
        "described",
        "flop_counter_knows",
        "formula",
        "func",
        "infer",
        "kind",
        "name",
        "op",
        "writes",
    )

    def __init__(self, func: Any) -> None:
        self.func = func
        self.infer = ShapeInference(func)
        self.described: dict[Hashable, tuple[Kind, dict[str, Attribute]]] = {}
        """Kind and attributes of earlier calls."""
        self.op = str(func)
        self.name = aten.base_name(self.op)
        self.kind: Kind = aten.KIND_OF.get(self.name, "other")
        parts = self.op.split(".")
        self.writes = len(parts) > 1 and parts[1].endswith("_")
        self.formula = registered_formula(func)
        self.flop_counter_knows = aten.flop_counter_knows(self.op)
        unknown = self.kind == "other" and self.formula is None
        self.decomposes = unknown and _is_composite(func)
        schema = getattr(func, "_schema", None)
        self.argument_names = [argument.name for argument in schema.arguments] if schema else []

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""
        return {**dict(zip(self.argument_names, args, strict=False)), **kwargs}

    def attributes(
        self,
        kind: Kind,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        shapes: Sequence[Sequence[int]],
        results: Sequence[Tensor],
    ) -> dict[str, Attribute]:
        """Return the attributes of a call that conventions use."""
        if self.formula is not None:
            return operations_by(self.formula, self.op, args, kwargs, results)
        attributes = aten.attributes(self.name, kind, self.arguments(args, kwargs), shapes)
        is_product = self.kind == "product" or OPERATIONS in attributes
        if is_product and not self.flop_counter_knows:
            attributes[FLOP_COUNTER] = 0
        return attributes


@dataclass(slots=True)
class Call:
    """One recorded call of an operator; operands and results are indices of values."""

    kind: Kind
    op: str
    scope: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    autograd_node: int = _NO_AUTOGRAD_NODE
    """The sequence number of the node that autograd created for the call, if any."""


class OperatorMode(MetaMode):
    """A mode that knows the module that runs, and gives tensors without values to operators."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.operators: dict[int, Operator] = {}  # by id, because torch hashes them in Python
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}
        self._scopes = {id(module): path for path, module in model.named_modules()}
        self.path = [""]
        """The paths of the modules that run now, outermost first."""
        self.unseen: str | None = None
        """What ran in another thread, where the mode sees no operators."""

    def __enter__(self) -> Self:
        thread = get_ident()

        def enter(module: nn.Module, args: Any) -> None:
            if get_ident() == thread:
                self.path.append(self._scopes.get(id(module), self.path[-1]))
            elif id(module) in self._scopes:
                self.unseen = f"its module {self._scopes[id(module)] or '(model)'}"

        def leave(module: nn.Module, args: Any, result: Any) -> None:
            if get_ident() == thread:
                self.path.pop()

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
        operator = self.operator(func)
        if operator.decomposes:
            return self.decomposed(func, args, kwargs or {})
        return self.result(operator, args, kwargs or {})

    def decomposed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a composite operator so that the mode sees its parts.

        Autograd decomposes such operators, except under ``torch.inference_mode``.
        """
        MetaMode.__enter__(self)
        try:
            return func.decompose(*args, **kwargs)
        finally:
            MetaMode.__exit__(self, None, None, None)

    def operator(self, func: Any) -> Operator:
        """Return what is known of ``func``."""
        known = self.operators.get(id(func))
        if known is None:
            known = self.operators[id(func)] = Operator(func)
        return known

    def result(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call, which is not recorded."""
        known = operator.infer.known(operator.infer.key(args, kwargs), args)
        if known is not None:
            return known
        args, kwargs, _ = self.on_meta(operator.name, args, kwargs)
        return operator.infer(args, kwargs)

    def on_meta(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any], list[Tensor]]:
        """Return the arguments, with constants on the meta device if others are, and all tensors.

        Operators on constants alone compute real values, which the model may read.
        """
        tensors = all_tensors(args, kwargs)
        on_meta = [tensor.is_meta for tensor in tensors]
        if True in on_meta and False in on_meta:
            args = self._without_values(args)
            kwargs = {key: self._without_values([value])[0] for key, value in kwargs.items()}
            return self.on_meta(name, args, kwargs)
        if on_meta and on_meta[0]:
            picks_by_mask = name == "index" and any(t.dtype == torch.bool for t in tensors)
            if name in aten.NEEDS_DATA or picks_by_mask:
                raise NeedsDataError(name)
        return args, kwargs, tensors

    def _without_values(self, arguments: Sequence[Any]) -> list[Any]:
        return [
            self._without_values(argument)
            if isinstance(argument, list | tuple)
            else self._without_value(argument)
            if isinstance(argument, Tensor) and not argument.is_meta
            else argument
            for argument in arguments
        ]

    def _without_value(self, constant: Tensor) -> Tensor:
        known = self._constants.get(id(constant))
        if known is None:
            known = self._constants[id(constant)] = (constant, constant.to("meta"))
        return known[1]


class Recorder(OperatorMode):
    """Records operators below autograd, where composite operators are already decomposed."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__(model)
        self.calls: list[Call] = []
        self.scope_of_autograd_node: dict[int, str] = {}
        """The module in which autograd created a node, by the node's sequence number."""
        self._shapes: list[tuple[int, ...]] = []
        self._parameter_of: list[str | None] = []
        self._index: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._tensors: list[Tensor] = []  # an id is unique only while its tensor exists
        self._masks = ConstantMasks()
        self._last_autograd_node = _NO_AUTOGRAD_NODE
        self.parameters: dict[str, int] = {}
        for name, parameter in model.named_parameters():
            self._add(parameter, parameter=name)
            if parameter.requires_grad:
                self.parameters[name] = parameter.numel()
        self._inputs = [self._add(tensor) for tensor in inputs]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        operator = self.operator(func)
        if operator.decomposes:
            return self.decomposed(func, args, kwargs or {})
        kwargs = kwargs or {}
        key = operator.infer.key(args, kwargs)
        result = operator.infer.known(key, args)
        if result is not None:
            tensors = all_tensors(args, kwargs)
        else:
            args, kwargs, tensors = self.on_meta(operator.name, args, kwargs)
            if tensors and not tensors[0].is_meta:
                return self._run_on_constants(operator, args, kwargs, tensors)
        inputs = [self._lookup(tensor) for tensor in aten.operands(operator.name, tensors)]
        if result is None:
            result = operator.infer(args, kwargs)
        results = [result] if type(result) is Tensor else tensors_of((result,))
        self._record(operator, key, inputs, args, kwargs, results)
        self._calls_autograd(tensors)
        causal = self._masks.note(operator.op, args, kwargs, tensors, results)
        if causal is not None:
            self.calls[-1].attributes = {**self.calls[-1].attributes, CAUSAL: causal}
        return result

    def _run_on_constants(
        self,
        operator: Operator,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: list[Tensor],
    ) -> Any:
        """Return the result of an operator on constants, with values; record it if it is work."""
        result = operator.func(*args, **kwargs)
        if operator.kind in _PRODUCTS:
            inputs = [self._lookup(tensor) for tensor in aten.operands(operator.name, tensors)]
            self._record(operator, None, inputs, args, kwargs, tensors_of((result,)))
            self._calls_autograd(tensors)
        return result

    def _calls_autograd(self, tensors: Sequence[Tensor]) -> None:
        """Note the node that autograd created just before it called the operator."""
        number = torch._C._autograd._get_sequence_nr() - 1
        if number == self._last_autograd_node:
            return
        self._last_autograd_node = number
        self.scope_of_autograd_node[number] = self.path[-1]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            self.calls[-1].autograd_node = number

    def _record(
        self,
        operator: Operator,
        key: Hashable | None,
        inputs: list[int],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        results: list[Tensor],
    ) -> None:
        uses_parameter = operator.kind == "product" and any(
            self._parameter_of[index] for index in inputs[:2]
        )
        state = (key, torch.is_grad_enabled(), uses_parameter)
        described = None if key is None else operator.described.get(state)
        if described is None:
            described = self._described(operator, uses_parameter, inputs, args, kwargs, results)
            if key is not None:
                operator.described[state] = described
        kind, attributes = described
        parameter = self._parameter_of[inputs[0]] if kind == "layout" and inputs else None
        outputs = tuple([self._add(tensor, parameter) for tensor in results])
        if operator.writes:  # in place: all views of the memory change
            for tensor, index in zip(results, outputs, strict=True):
                self._written[memory(tensor)] = index
        self.calls.append(
            Call(kind, operator.op, self.path[-1], tuple(inputs), outputs, attributes)
        )

    def _described(
        self,
        operator: Operator,
        uses_parameter: bool,
        inputs: Sequence[int],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        results: Sequence[Tensor],
    ) -> tuple[Kind, dict[str, Attribute]]:
        """Return the kind and the attributes of a call."""
        kind = operator.kind
        is_product = kind in _PRODUCTS  # also of integers, as in quantised networks
        if results and not is_product and not any(_is_real(tensor) for tensor in results):
            kind = "bookkeeping"  # integers and booleans: no floating-point operation
        if kind in _SELECTION_KINDS and not torch.is_grad_enabled():
            kind = "bookkeeping"  # it selects what to train on, such as matching boxes
        if operator.kind in NO_ARITHMETIC:
            return kind, {}
        shapes = [self._shapes[index] for index in inputs]
        if aten.is_global_pool(operator.name, operator.arguments(args, kwargs), shapes):
            kind = "global-pool"
        if uses_parameter:
            kind = "dense"
        return kind, operator.attributes(kind, args, kwargs, shapes, results)

    def _add(self, tensor: Tensor, parameter: str | None = None) -> int:
        index = len(self._tensors)
        self._tensors.append(tensor)
        self._shapes.append(tensor.shape)
        self._parameter_of.append(parameter)
        self._index[id(tensor)] = index
        return index

    def _lookup(self, tensor: Tensor) -> int:
        index = self._index.get(id(tensor))
        if index is None:
            creator = tensor.grad_fn
            if creator is not None and creator.name() != _AS_SUBCLASS and self.unseen is None:
                self.unseen = creator.name()
            return self._add(tensor)  # a buffer or a constant that the model holds
        if not self._written:
            return index
        written = self._written.get(memory(tensor), index)
        if written <= index:
            return index
        # A view of this tensor was written to since: the tensor now depends on that operator.
        alias = self._add(tensor, parameter=self._parameter_of[index])
        self.calls.append(Call("layout", "alias", self.path[-1], (index, written), (alias,)))
        return alias

    def signatures(
        self, parameter_of: Mapping[int, str], without: Container[Kind]
    ) -> set[tuple[str, tuple[Sequence[int], ...], tuple[str | None, ...]]]:
        """Return operator, shapes and parameters of each call, except for the kinds ``without``.

        ``parameter_of`` has the names of parameters by their memory.
        """
        return {
            (
                call.op,
                tuple([self._shapes[index] for index in call.inputs]),
                tuple([parameter_of.get(memory(self._tensors[index])) for index in call.inputs]),
            )
            for call in self.calls
            if call.kind not in without
        }

    def graph(self, name: str, batch: int, results: Sequence[Tensor]) -> RecordedGraph:
        """Return the recorded graph without unused nodes that do no arithmetic."""
        outputs = [self._lookup(tensor) for tensor in results]
        calls = without_unused(self.calls, outputs)
        used = sorted(
            {index for call in calls for index in (*call.inputs, *call.outputs)}
            | set(outputs)
            | set(self._inputs)
        )
        renumbered = {old: new for new, old in enumerate(used)}

        def renumber(indices: Iterable[int]) -> tuple[int, ...]:
            return tuple([renumbered[index] for index in indices])

        values = ValueTable()
        graph = Graph(
            model=name,
            framework=f"torch {torch.__version__}",
            batch=batch,
            inputs=renumber(self._inputs),
            outputs=renumber(outputs),
            parameters=self.parameters,
            # Autograd sets requires_grad of a result only after the dispatch.
            values=tuple(
                values.of(self._tensors[i], self._parameter_of[i], self._shapes[i]) for i in used
            ),
            nodes=tuple(
                Node.unchecked(
                    kind=call.kind,
                    op=call.op,
                    scope=call.scope,
                    inputs=renumber(call.inputs),
                    outputs=renumber(call.outputs),
                    attributes=call.attributes,
                )
                for call in calls
            ),
        )
        return RecordedGraph(graph, [call.autograd_node for call in calls])


@dataclass(frozen=True)
class RecordedGraph:
    """The graph of a forward pass, and how its nodes are called in the backward pass."""

    graph: Graph
    autograd_nodes: Sequence[int]
    """For each node, the sequence number of autograd's node for it; -1 if there is none."""


class ValueTable:
    """Creates the values of a graph; equal ones are one object, because they cannot change."""

    def __init__(self) -> None:
        self._known: dict[Any, Value] = {}

    def of(self, tensor: Tensor, parameter: str | None, shape: Sequence[int]) -> Value:
        """Return the value that describes ``tensor``, which had ``shape`` when it was used."""
        key = (shape, tensor.dtype, tensor.requires_grad, parameter)
        known = self._known.get(key)
        if known is None:
            if tensor.is_nested:
                raise NestedTensorError
            known = self._known[key] = Value.model_construct(
                shape=tuple(shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                grad=tensor.requires_grad,
                parameter=parameter,
            )
        return known


def without_unused(calls: Sequence[Call], outputs: Iterable[int]) -> list[Call]:
    """Return ``calls`` without those that do no arithmetic and whose results are unused."""
    wanted = set(outputs)
    kept: list[Call] = []
    for call in reversed(calls):
        if call.kind not in NO_ARITHMETIC or not wanted.isdisjoint(call.outputs):
            kept.append(call)
            wanted.update(call.inputs)
    return kept[::-1]


def all_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors among the arguments of a call."""
    tensors = tensors_of(args)
    if kwargs:
        tensors += tensors_of(kwargs.values())
    return tensors


def tensors_of(arguments: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among the arguments of an operator, also those in lists."""
    tensors: list[Tensor] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
        elif isinstance(argument, list | tuple):
            tensors += tensors_of(argument)
    return tensors


def _is_composite(func: Any) -> bool:
    """Whether torch defines an operator by calls of other operators."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if not isinstance(func, torch._ops.OpOverload) or not torch._C._dispatch_has_kernel(
        func.name()
    ):
        return False
    return key in func.py_kernels or func.has_kernel_for_dispatch_key(key)


def _is_real(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def memory(tensor: Tensor) -> int:
    """Return a number for the memory of ``tensor``, which its views share."""
    return int(tensor.untyped_storage()._cdata)
