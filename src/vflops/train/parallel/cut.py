"""Cuts a model into stages of about equal work that send few bytes to each other.

The model is traced by torch.fx on the meta device, so this takes no memory and can be tried before
a run starts. A cut is possible between two nodes of the trace if only tensors cross it, and none of
these is written to after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _NormBase

from vflops.config.training import TrainSettings
from vflops.counting.capture import capture
from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.count import count
from vflops.counting.meta_device import ShapesOnly, on_meta
from vflops.errors import UsageError
from vflops.train.parallel.balance import balanced, max_parts, too_many_stages
from vflops.train.parallel.optimizer_state import first_names
from vflops.workloads.contract.workload import Workload

_USE_DATA = "use --set train.parallel.mode=data"


@dataclass(frozen=True)
class StageCut:
    """One stage of a cut model."""

    graph: fx.Graph
    """Maps received tensors and inputs of the model to the tensors sent or the model's output."""
    inputs: tuple[int, ...]
    """Indices of the model's inputs that this stage uses directly."""
    gradients: tuple[bool, ...]
    """For each tensor received, whether a gradient is sent back."""
    operations: int
    """Operations of the forward and the backward pass for one sample."""

    @cached_property
    def uses(self) -> frozenset[str]:
        """Names of the modules and parameters that the stage uses."""
        called = (node for node in self.graph.nodes if node.op in ("call_module", "get_attr"))
        return frozenset(str(node.target) for node in called)

    def needs(self, name: str) -> bool:
        """Whether the stage uses the parameter ``name``, or a module that has it."""
        return not self.uses.isdisjoint(itertools.accumulate(name.split("."), "{}.{}".format))


def cut(workload: Workload, train: TrainSettings, name: str | None = None) -> list[StageCut]:
    """Return the stages of ``workload``'s model; raise if it cannot be cut into that many."""
    name = name or type(workload).__name__
    model = on_meta(workload.model, name)
    traced = _Traced(model, trace(model, name), workload)
    cut_points, stages = traced.cut_points, train.parallel.stages(train.ranks)
    limit = max_parts(cut_points, traced.layers)
    if stages > limit:
        copies = train.shares
        max_ranks = limit * train.ranks // stages // copies * copies
        hint = f"use --ranks {max_ranks} or fewer" if max_ranks >= 2 * copies else _USE_DATA
        raise too_many_stages(name, stages, limit, hint)
    costs = [traced.crossing_bytes(cut_point) for cut_point in cut_points]
    ends = balanced(cut_points, traced.work, traced.layers, costs, stages)
    return [traced.stage(start, end) for start, end in itertools.pairwise((0, *ends))]


def trace(model: nn.Module, name: str) -> fx.Graph:
    """Return the graph of ``model``'s calls; raise if torch.fx cannot trace it."""
    was_training = model.training
    try:
        graphs = [_Tracer().trace(model.train(training)) for training in (True, False)]
    except Exception as error:
        raise UsageError(
            f"{name} cannot be cut into stages: torch.fx cannot trace it: "
            f"{(str(error) or type(error).__name__).splitlines()[0]}",
            hint="set `traced_whole = True` in the class of the module that depends on shapes or "
            f"values; or {_USE_DATA}",
        ) from error
    finally:
        model.train(was_training)
    if str(graphs[0]) != str(graphs[1]):
        raise UsageError(
            f"{name} cannot be cut into stages: its model makes different calls in training and "
            "in evaluation",
            hint="set `traced_whole = True` in the class of the module that reads self.training; "
            f"or {_USE_DATA}",
        )
    return graphs[0]


class _Tracer(fx.Tracer):
    """Traces into all modules except those of torch and those with ``traced_whole`` set."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        is_leaf = isinstance(m, _NormBase) or getattr(m, "traced_whole", False)
        return bool(is_leaf) or super().is_leaf_module(m, module_qualified_name)


class _Traced:
    """A traced model with the operations, values and writes of its nodes."""

    def __init__(self, model: nn.Module, graph: fx.Graph, workload: Workload) -> None:
        self._graph = graph
        nodes = list(graph.nodes)
        self._inputs = [node for node in nodes if node.op == "placeholder"]
        self._nodes = [node for node in nodes if node.op not in ("placeholder", "output")]
        self._output = nodes[-1]
        self._index = {node: index for index, node in enumerate(self._nodes)}
        self._index[self._output] = len(self._nodes)
        specs = workload.input_specs()[: workload.model_inputs]
        self._run = _Run(fx.GraphModule(model, graph))
        with ShapesOnly(), torch.device("meta"):  # type: ignore[no-untyped-call]
            self._run.run(
                *(torch.empty((2, *spec.shape), dtype=getattr(torch, spec.dtype)) for spec in specs)
            )
        graph_of_one = capture(workload.model, specs, name=type(workload).__name__)
        rows = count(graph_of_one, EXECUTED).by_layer
        self.work = self._operations({row.name: row.ops.forward + row.ops.backward for row in rows})
        weights = [_weights(model, node) for node in self._nodes]
        self.layers = [bool(work and used) for work, used in zip(self.work, weights, strict=True)]
        self._last_use = {
            node: max((self._index[user] for user in node.users), default=-1)
            for node in self._nodes
        }
        self._last_write = {
            memory: index
            for index, node in enumerate(self._nodes)
            for memory in self._run.written[node]
        }
        # A tied weight may be on several stages, which then sum its gradients.
        tied = {id(model.get_parameter(name)) for name in first_names(model)}
        self._spans = _spans([used - tied for used in weights])

    def _operations(self, by_layer: dict[str, int]) -> list[int]:
        """Return the operations of each node; those of a module are divided evenly by its nodes."""
        paths = [_path(node) for node in self._nodes]
        known = set(paths)
        shares: dict[str, int] = {}
        for layer, operations in by_layer.items():
            path = "" if layer == "(model)" else layer
            while path and path not in known:
                path = path.rpartition(".")[0]
            target = path if path in known else paths[-1]
            shares[target] = shares.get(target, 0) + operations
        return [shares.get(path, 0) // paths.count(path) for path in paths]

    @cached_property
    def cut_points(self) -> list[int]:
        """Indices of the nodes that can start a stage, and the number of nodes for the end."""
        inner = [index for index in range(1, len(self._nodes)) if self._can_cut(index)]
        return [*inner, len(self._nodes)]

    def _crossing(self, cut_point: int) -> list[fx.Node]:
        """Return the nodes whose values are sent over a cut."""
        return [node for node in self._nodes[:cut_point] if self._last_use[node] >= cut_point]

    def _can_cut(self, cut_point: int) -> bool:
        values = [self._run.values[node] for node in self._crossing(cut_point)]
        if not values or not all(isinstance(value, Tensor) for value in values):
            return False
        memories = [_memory(value) for value in values]
        distinct = len(set(memories)) == len(memories)  # aliases would become separate tensors
        trains = any(value.requires_grad for value in values)
        written = any(self._last_write.get(memory, -1) >= cut_point for memory in memories)
        shared = any(first < cut_point <= last for first, last in self._spans)
        return distinct and trains and not written and not shared

    def crossing_bytes(self, cut_point: int) -> int:
        """Return the bytes that are sent over a cut for two samples; 0 at the end."""
        if cut_point == len(self._nodes):
            return 0
        return sum(self._run.values[node].nbytes for node in self._crossing(cut_point))

    def stage(self, start: int, end: int) -> StageCut:
        """Return the nodes from ``start`` to ``end`` as a separate graph."""
        graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
        received = self._crossing(start)
        nodes = self._nodes[start:end]
        used = {source for node in (*nodes, self._output) for source in node.all_input_nodes}
        inputs = [node for node in self._inputs if node in used]
        if end < len(self._nodes):
            inputs = [node for node in inputs if any(user in nodes for user in node.users)]
        for node in received:
            new[node] = graph.placeholder(node.name)
        for node in (*inputs, *nodes):
            new[node] = graph.node_copy(node, new.__getitem__)
        if end < len(self._nodes):
            graph.output(tuple(new[node] for node in self._crossing(end)))
        else:
            graph.node_copy(self._output, new.__getitem__)
        return StageCut(
            graph,
            tuple(self._inputs.index(node) for node in inputs),
            tuple(self._run.values[node].requires_grad for node in received),
            sum(self.work[start:end]),
        )


class _Run(fx.Interpreter):
    """Runs a traced model once, and records the value of each node and the memory it writes to."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[fx.Node, Any] = {}
        self.written: dict[fx.Node, set[int]] = {}
        self._versions: dict[int, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Return the node's value, and record which tensors the node wrote to.

        The last node is skipped: its value is not needed, and it may be a large module.
        """
        needed = n.op != "output" and not (n.op == "call_module" and n.next.op == "output")
        result = super().run_node(n) if needed else None
        tensors = {
            _memory(value): value for value in self.values.values() if isinstance(value, Tensor)
        }
        versions = {memory: tensor._version for memory, tensor in tensors.items()}
        self.written[n] = {
            memory
            for memory, version in versions.items()
            if version != self._versions.get(memory, version)
        }
        self.values[n] = result
        self._versions = versions
        if isinstance(result, Tensor):
            self._versions[_memory(result)] = result._version
        return result


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _weights(model: nn.Module, node: fx.Node) -> set[int]:
    """Return the ids of the parameters and buffers that a node uses."""
    if node.op == "get_attr":
        *path, name = str(node.target).split(".")
        return {id(getattr(model.get_submodule(".".join(path)), name))}
    if node.op != "call_module":
        return set()
    module = model.get_submodule(str(node.target))
    tensors: Sequence[Tensor] = [*module.parameters(), *module.buffers()]
    return {id(tensor) for tensor in tensors}


def _spans(uses: Sequence[set[int]]) -> list[tuple[int, int]]:
    """Return the first and the last node of each weight that several nodes use."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, used in enumerate(uses):
        for weight in used:
            first.setdefault(weight, index)
            last[weight] = index
    return [(first[weight], last[weight]) for weight in first if first[weight] < last[weight]]


def _path(node: fx.Node) -> str:
    """Return the name of the module that a node calls, or in whose forward pass the node is."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed(stack.values())), "") if stack else ""
