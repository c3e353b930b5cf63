"""A model cut into stages: where, so that each computes about as much, and how little is sent.

The model is traced by torch.fx on the meta device, so a cut costs no memory and can be tried before
anything starts. Between any two nodes of the trace there may be a cut, unless something other than
tensors would cross it, or what crosses it is written to behind it.
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
from vflops.train.parallel.balance import balanced, most_parts
from vflops.workloads.contract.workload import Workload

_OTHERWISE = "take --set train.parallel.mode=data"


@dataclass(frozen=True)
class StageCut:
    """One stage of a cut model."""

    graph: fx.Graph
    """From what it receives, then inputs of the model, to what it sends, or the model's output."""
    inputs: tuple[int, ...]
    """Those of the model's inputs that it takes itself, wherever it is."""
    gradients: tuple[bool, ...]
    """Of all that it receives, whether a gradient goes back."""
    operations: int
    """Of the forward and the backward pass of one sample."""

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names of the modules and parameters that it calls."""
        called = (node for node in self.graph.nodes if node.op in ("call_module", "get_attr"))
        return frozenset(str(node.target) for node in called)


def cut(workload: Workload, train: TrainSettings, name: str | None = None) -> list[StageCut]:
    """The stages of ``workload``'s model, or a refusal with how many ranks could share it."""
    name = name or type(workload).__name__
    model = on_meta(workload.model, name)
    traced = _Traced(model, trace(model, name), workload)
    places, stages = traced.places, train.parallel.stages(train.ranks)
    most = most_parts(places, traced.layers)
    if stages > most:
        copies = train.shares
        fit = most * train.ranks // stages // copies * copies
        raise UsageError(
            f"{name} cannot be cut into {stages} stages: {most} of its layers could be one each",
            hint=f"take --ranks {fit} or fewer" if fit >= 2 * copies else _OTHERWISE,
        )
    sent = [traced.crossing_bytes(place) for place in places]
    ends = balanced(places, traced.work, traced.layers, sent, stages)
    return [traced.stage(start, end) for start, end in itertools.pairwise((0, *ends))]


def trace(model: nn.Module, name: str) -> fx.Graph:
    """The graph of ``model``'s calls; one that torch.fx cannot follow is refused."""
    was = model.training
    try:
        graphs = [_Tracer().trace(model.train(training)) for training in (True, False)]
    except Exception as error:
        raise UsageError(
            f"{name} cannot be cut into stages: torch.fx cannot follow it: "
            f"{(str(error) or type(error).__name__).splitlines()[0]}",
            hint="give the class of the module that depends on shapes or values "
            f"`traced_whole = True`; or {_OTHERWISE}",
        ) from error
    finally:
        model.train(was)
    if str(graphs[0]) != str(graphs[1]):
        raise UsageError(
            f"{name} cannot be cut into stages: its model calls other things in training than in "
            "evaluation",
            hint="give the class of the module that asks for self.training "
            f"`traced_whole = True`; or {_OTHERWISE}",
        )
    return graphs[0]


class _Tracer(fx.Tracer):
    """Goes into all modules but torch's own and those that say they are to be left whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, _NormBase) or getattr(m, "traced_whole", False)
        return bool(whole) or super().is_leaf_module(m, module_qualified_name)


class _Traced:
    """A traced model with what its nodes compute, make and write to."""

    def __init__(self, model: nn.Module, graph: fx.Graph, workload: Workload) -> None:
        self._graph = graph
        every = list(graph.nodes)
        self._inputs = [node for node in every if node.op == "placeholder"]
        self._nodes = [node for node in every if node.op not in ("placeholder", "output")]
        self._output = every[-1]
        self._place = {node: place for place, node in enumerate(self._nodes)}
        self._place[self._output] = len(self._nodes)
        specs = workload.input_specs()[: workload.model_inputs]
        self._run = _Run(fx.GraphModule(model, graph))
        with ShapesOnly(), torch.device("meta"):  # type: ignore[no-untyped-call]
            self._run.run(
                *(torch.empty((2, *each.shape), dtype=getattr(torch, each.dtype)) for each in specs)
            )
        graph_of_one = capture(workload.model, specs, name=type(workload).__name__)
        rows = count(graph_of_one, EXECUTED).by_layer
        self.work = self._operations({row.name: row.ops.forward + row.ops.backward for row in rows})
        weights = [_weights(model, node) for node in self._nodes]
        self.layers = [bool(work and own) for work, own in zip(self.work, weights, strict=True)]
        self._last_use = {
            node: max((self._place[user] for user in node.users), default=-1)
            for node in self._nodes
        }
        self._last_write = {
            memory: place
            for place, node in enumerate(self._nodes)
            for memory in self._run.written[node]
        }
        self._spans = _spans(weights)

    def _operations(self, by_layer: dict[str, int]) -> list[int]:
        """Of each node: those of its module, shared evenly where a module has several nodes."""
        at = [_path(node) for node in self._nodes]
        known = set(at)
        shares: dict[str, int] = {}
        for layer, operations in by_layer.items():
            path = "" if layer == "(model)" else layer
            while path and path not in known:
                path = path.rpartition(".")[0]
            place = path if path in known else at[-1]
            shares[place] = shares.get(place, 0) + operations
        return [shares.get(path, 0) // at.count(path) for path in at]

    @cached_property
    def places(self) -> list[int]:
        """Where the model may be cut: numbers of nodes that a stage may begin with, and the end."""
        between = [at for at in range(1, len(self._nodes)) if self._may_cut(at)]
        return [*between, len(self._nodes)]

    def _crossing(self, at: int) -> list[fx.Node]:
        return [node for node in self._nodes[:at] if self._last_use[node] >= at]

    def _may_cut(self, at: int) -> bool:
        values = [self._run.made[node] for node in self._crossing(at)]
        if not values or not all(isinstance(value, Tensor) for value in values):
            return False
        memories = [_memory(value) for value in values]
        apart = len(set(memories)) == len(memories)  # two names of one memory would be two there
        trains = any(value.requires_grad for value in values)
        written = any(self._last_write.get(memory, -1) >= at for memory in memories)
        shared = any(first < at <= last for first, last in self._spans)
        return apart and trains and not written and not shared

    def crossing_bytes(self, at: int) -> int:
        """Bytes of two samples that are sent over a cut; nothing is at the end."""
        if at == len(self._nodes):
            return 0
        return sum(self._run.made[node].nbytes for node in self._crossing(at))

    def stage(self, start: int, end: int) -> StageCut:
        """The nodes from ``start`` to ``end`` as a graph of their own."""
        graph, new = fx.Graph(), dict[fx.Node, fx.Node]()
        received = self._crossing(start)
        own = self._nodes[start:end]
        used = {each for node in (*own, self._output) for each in node.all_input_nodes}
        inputs = [node for node in self._inputs if node in used]
        if end < len(self._nodes):
            inputs = [node for node in inputs if any(user in own for user in node.users)]
        for node in received:
            new[node] = graph.placeholder(node.name)
        for node in (*inputs, *own):
            new[node] = graph.node_copy(node, new.__getitem__)
        if end < len(self._nodes):
            graph.output(tuple(new[node] for node in self._crossing(end)))
        else:
            graph.node_copy(self._output, new.__getitem__)
        return StageCut(
            graph,
            tuple(self._inputs.index(node) for node in inputs),
            tuple(self._run.made[node].requires_grad for node in received),
            sum(self.work[start:end]),
        )


class _Run(fx.Interpreter):
    """Runs a traced model once and keeps what each node makes, and which memory it writes to."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.made: dict[fx.Node, Any] = {}
        self.written: dict[fx.Node, set[int]] = {}
        self._versions: dict[int, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        """The node's value; tensors that changed meanwhile were written to by it.

        Nobody asks for that of the last one, which may be a large module.
        """
        asked = n.op != "output" and not (n.op == "call_module" and n.next.op == "output")
        result = super().run_node(n) if asked else None
        tensors = {_memory(each): each for each in self.made.values() if isinstance(each, Tensor)}
        versions = {memory: each._version for memory, each in tensors.items()}
        self.written[n] = {
            memory
            for memory, version in versions.items()
            if version != self._versions.get(memory, version)
        }
        self.made[n] = result
        self._versions = versions
        if isinstance(result, Tensor):
            self._versions[_memory(result)] = result._version
        return result


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _weights(model: nn.Module, node: fx.Node) -> set[int]:
    """What a node learns, and the statistics that it keeps."""
    if node.op != "call_module":
        return set()
    module = model.get_submodule(str(node.target))
    tensors: Sequence[Tensor] = [*module.parameters(), *module.buffers()]
    return {id(tensor) for tensor in tensors}


def _spans(uses: Sequence[set[int]]) -> list[tuple[int, int]]:
    """The first and the last place of each weight that is used at several."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, used in enumerate(uses):
        for weight in used:
            first.setdefault(weight, place)
            last[weight] = place
    return [(first[each], last[each]) for each in first if first[each] < last[each]]


def _path(node: fx.Node) -> str:
    """The module that a node calls, or the one whose forward pass it is in."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed(stack.values())), "") if stack else ""
