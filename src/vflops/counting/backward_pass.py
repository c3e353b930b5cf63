"""Runs the backward pass on the meta device, to see what autograd does with a forward pass.

The gradients of a product or convolution follow from its operands, and most backward passes consist
of nothing else. Two parts do not follow from the forward pass: operators that a custom
``torch.autograd.Function`` calls in its ``backward``, and recomputation of activations.
They are recorded as nodes of their own. The same goes for an operator whose gradients take other
operations than its operands suggest, so that the count is always that of autograd.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import _engine_run_backward
from torch.utils.checkpoint import CheckpointFunction

from vflops.counting import aten
from vflops.counting.conventions.base import Ops
from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.meta_device import first_line, user_line
from vflops.counting.recorder import (
    Operator,
    OperatorMode,
    RecordedGraph,
    Recorder,
    ValueTable,
    memory,
    tensors_of,
)
from vflops.record.formats.graph import (
    Attribute,
    BackwardNode,
    BackwardPass,
    Graph,
    Kind,
    Value,
)

_LIGHT = frozenset[Kind](get_args(Kind)) - {"convolution", "dense", "product", "other"}
"""Kinds for which ``executed`` has no operations; they are never much of the work."""

_CHECKPOINT = CheckpointFunction.backward.__code__.co_filename
_ENGINE = _engine_run_backward.__code__
"""The function in which autograd computes gradients, also those of a checkpointed part."""


def with_backward_pass(
    recorded: RecordedGraph, recorder: Recorder, model: nn.Module, results: Sequence[Tensor]
) -> Graph:
    """Return the graph with the backward pass, as far as it does not follow from the forward pass.

    ``results`` are the tensors that the model, or its loss, returned.
    """
    outputs = [tensor for tensor in results if tensor.requires_grad]
    if not outputs:
        return recorded.graph
    reached = _reached_by_autograd(outputs)
    visited = [
        index for index, number in enumerate(recorded.autograd_nodes) if number in reached.numbers
    ]
    gradients = [torch.empty_like(tensor) for tensor in outputs]
    run = _BackwardRecorder(model, recorder)
    if reached.functions:
        run.follow(gradients)
    failure = _run(run, model, outputs, gradients)
    if failure is not None:
        functions = f" (it calls {', '.join(reached.functions)})" if reached.functions else ""
        return _with_backward(recorded.graph, visited, (), (), failure + functions)
    return _reconciled(recorded, visited, run.calls)


@dataclass(frozen=True)
class _Reached:
    """The nodes of autograd that the backward pass executes."""

    numbers: frozenset[int]
    functions: Sequence[str]
    """The names of custom ``torch.autograd.Function`` classes among them."""


def _reached_by_autograd(outputs: Iterable[Tensor]) -> _Reached:
    numbers: set[int] = set()
    functions: set[str] = set()
    waiting = [tensor.grad_fn for tensor in outputs]
    kept = []  # torch creates a new object for a node that no one refers to
    while waiting:
        node: Any = waiting.pop()
        if node is None:
            continue
        number = node._sequence_nr()
        if number in numbers:
            continue
        numbers.add(number)
        kept.append(node)
        if isinstance(node, BackwardCFunction):
            functions.add(type(node).__name__.removesuffix("Backward"))
        waiting.extend(source for source, _ in node.next_functions)
    return _Reached(frozenset(numbers), sorted(functions))


def _run(
    run: _BackwardRecorder,
    model: nn.Module,
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> str | None:
    """Run the backward pass; return why it failed, if so."""
    before = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        with run, torch.device("meta"):
            torch.autograd.backward(outputs, gradients)
    except Exception as error:
        return first_line(error) + user_line(error)
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient
    return None


@dataclass(frozen=True)
class _BackwardCall:
    """One operator that ran in the backward pass."""

    kind: Kind
    op: str
    scope: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, Attribute]
    phase: Literal["backward", "recompute"]
    follows: int | None
    """The number of autograd's node for a forward operator whose gradient it computes."""
    autograd_node: int | None
    """The number of the node that autograd created for the call itself, if any."""


class _BackwardRecorder(OperatorMode):
    """Records the operators of the backward pass that may be much of the work."""

    def __init__(self, model: nn.Module, forward: Recorder) -> None:
        super().__init__(model)
        self.operators = forward.operators
        self.calls: list[_BackwardCall] = []
        self._scope_of = forward.scope_of_autograd_node
        self._parameter_of = {memory(p): name for name, p in model.named_parameters()}
        self._forward = forward.signatures(self._parameter_of, _LIGHT)
        self._from_gradients: set[int] | None = None
        self._values = ValueTable()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        operator = self.operator(func)
        if operator.decomposes:
            return self.decomposed(func, args, kwargs or {})
        is_light = operator.kind in _LIGHT
        if is_light and self._from_gradients is None:
            return self.result(operator, args, kwargs or {})
        args, kwargs, tensors = self.on_meta(operator.name, args, kwargs or {})
        result = operator.infer(args, kwargs)
        results = tensors_of((result,))
        is_gradient = self._depends_on_gradients(tensors, results)
        if not is_light:
            self._record(operator, tensors, args, kwargs, results, is_gradient)
        return result

    def follow(self, gradients: Iterable[Tensor]) -> None:
        """Track what depends on ``gradients``: recomputation does not, whatever it resembles."""
        self._from_gradients = {memory(tensor) for tensor in gradients}

    def _depends_on_gradients(self, tensors: Iterable[Tensor], results: Iterable[Tensor]) -> bool:
        if self._from_gradients is None:
            return False
        depends = any(memory(tensor) in self._from_gradients for tensor in tensors)
        for result in results:
            if depends:
                self._from_gradients.add(memory(result))
            else:
                self._from_gradients.discard(memory(result))  # the address of an earlier tensor
        return depends

    def _record(
        self,
        operator: Operator,
        tensors: list[Tensor],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        results: Sequence[Tensor],
        depends_on_gradients: bool,
    ) -> None:
        is_real = any(tensor.is_floating_point() or tensor.is_complex() for tensor in results)
        if operator.kind == "other" and not is_real:
            return
        node = torch._C._current_autograd_node()
        number = None if node is None else node._sequence_nr()
        operands = aten.operands(operator.name, tensors)
        inputs = tuple(self._value(tensor) for tensor in operands)
        shapes = [value.shape for value in inputs]
        signature = (operator.op, tuple(shapes), tuple([value.parameter for value in inputs]))
        is_known = not depends_on_gradients and signature in self._forward
        has_autograd = torch.is_grad_enabled() or len(self.path) > 1
        is_forward = has_autograd or (is_known and _is_recomputed())
        in_function = node is None or isinstance(node, BackwardCFunction)
        is_gradient = not (is_forward or in_function)
        is_foreign = operator.formula is not None or not operator.op.startswith("aten.")
        if is_gradient and operator.kind == "other" and not is_foreign:
            return
        kind = operator.kind
        if kind == "product" and any(value.parameter for value in inputs[:2]):
            kind = "dense"
        self.calls.append(
            _BackwardCall(
                kind=kind,
                op=operator.op,
                scope=self.path[-1] or self._scope_of.get(number or 0, ""),
                inputs=inputs,
                outputs=tuple(self._value(tensor) for tensor in results),
                attributes=operator.attributes(kind, args, kwargs, shapes, results),
                phase="recompute" if is_forward and is_known else "backward",
                follows=number if is_gradient else None,
                autograd_node=_created_node(tensors) if is_forward else None,
            )
        )

    def _value(self, tensor: Tensor) -> Value:
        return self._values.of(tensor, self._parameter_of.get(memory(tensor)), tensor.shape)


def _is_recomputed() -> bool:
    """Whether torch.utils.checkpoint called the operator, to repeat a part of the forward pass.

    Gradients may be disabled there: in a custom autograd function, or by torch.no_grad.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _ENGINE:
            return False
        if frame.f_code.co_filename == _CHECKPOINT:
            return True
        frame = frame.f_back
    return False


def _created_node(tensors: Iterable[Tensor]) -> int | None:
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
        return None
    return int(torch._C._autograd._get_sequence_nr()) - 1


def _reconciled(
    recorded: RecordedGraph, visited: Sequence[int], calls: Sequence[_BackwardCall]
) -> Graph:
    """Return the graph with those ``calls`` that do not follow from its forward nodes."""
    gradients: dict[int, list[int]] = defaultdict(list)
    for index, call in enumerate(calls):
        if call.follows is not None:
            gradients[call.follows].append(index)
    repeated = {index for index, call in enumerate(calls) if call.autograd_node in gradients}
    everything = _with_backward(recorded.graph, visited, calls, repeated)
    ops_of_calls = _operations(everything.backward_graph, range(len(calls)))
    derived = {
        recorded.autograd_nodes[index]: ops
        for index, ops in zip(visited, _operations(everything, visited), strict=True)
    } | {calls[index].autograd_node: ops_of_calls[index] for index in repeated}

    def follows_from_operands(number: int | None) -> bool:
        forward = derived.get(number, Ops())
        made = sum(ops_of_calls[index].forward for index in gradients.get(number or 0, ()))
        return made == forward.backward

    differing = {number for number in {*derived, *gradients} if not follows_from_operands(number)}
    kept = [
        index
        for index, call in enumerate(calls)
        if call.follows is None or call.follows in differing
    ]
    return _with_backward(
        recorded.graph,
        [index for index in visited if recorded.autograd_nodes[index] not in differing],
        [calls[index] for index in kept],
        {
            position
            for position, index in enumerate(kept)
            if index in repeated and calls[index].autograd_node not in differing
        },
    )


def _operations(graph: Graph | None, indices: Iterable[int]) -> list[Ops]:
    if graph is None:
        return []
    rule = EXECUTED.rule
    assert rule is not None
    return [rule(graph, index) or Ops() for index in indices]


def _with_backward(
    graph: Graph,
    visited: Iterable[int],
    calls: Sequence[_BackwardCall],
    visited_calls: Container[int],
    failure: str | None = None,
) -> Graph:
    """Return ``graph`` with a backward pass; without one if it follows from the forward pass."""
    derived = graph.backward_nodes.symmetric_difference(visited)
    if not calls and failure is None and all(graph.nodes[i].kind in _LIGHT for i in derived):
        return graph
    values = list(graph.values)
    index_of: dict[int, int] = {}  # by id, because equal values are one object

    def indices(used: Sequence[Value]) -> tuple[int, ...]:
        for value in used:
            if id(value) not in index_of:
                index_of[id(value)] = len(values)
                values.append(value)
        return tuple([index_of[id(value)] for value in used])

    nodes = tuple(
        BackwardNode.unchecked(
            kind=call.kind,
            op=call.op,
            scope=call.scope,
            inputs=indices(call.inputs),
            outputs=indices(call.outputs),
            attributes=call.attributes,
            phase=call.phase,
            visited=index in visited_calls,
        )
        for index, call in enumerate(calls)
    )
    return Graph.model_construct(  # the recorder has checked the rest
        model=graph.model,
        framework=graph.framework,
        batch=graph.batch,
        inputs=graph.inputs,
        outputs=graph.outputs,
        parameters=graph.parameters,
        values=tuple(values),
        nodes=graph.nodes,
        backward=BackwardPass(visited=tuple(visited), nodes=nodes, failure=failure),
    )
