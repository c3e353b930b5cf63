"""The bounds of a model on a machine, computed from operation counts and ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vflops.counting.count import Count
from vflops.counting.model_parts import model_parts
from vflops.metrics.summation import sum_in_order
from vflops.metrics.traffic import ring_share
from vflops.record.formats.graph import NO_ARITHMETIC, Graph
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.job_ceilings import between_nodes
from vflops.results.roofline.bytes_moved import (
    BYTES_OF,
    backward_bytes,
    forward_bytes,
    inner_values,
)

MATRIX = {"convolution": "convolution", "dense": "gemm", "product": "gemm"}
"""Kinds of graph nodes that run on matrix units, and the benchmark that bounds them."""
COMPUTE = ("gemm", "convolution")
"""The compute benchmarks."""


@dataclass(frozen=True)
class Ceilings:
    """The ceilings of one machine, as far as they were measured."""

    compute: dict[tuple[str, str], float]
    """(benchmark, precision) → FLOPS."""
    memory: float | None
    """Bytes read and written per second."""
    network: float | None
    """All-reduce bus bandwidth in bytes per second, between ``ranks`` ranks."""
    ranks: int | None
    network_case: str | None = None
    """The case of that all-reduce, such as ``gloo-2-ranks`` or ``nccl-8-ranks``."""
    network_nodes: str | None = None
    """The nodes of these ranks, such as ``n1,n2``; None if all ranks are on one node."""

    def precisions(self, graph: Graph | None = None) -> list[str]:
        """Return the precisions with all compute ceilings that ``graph`` needs, fastest first.

        Without a graph, these are the precisions with both a matrix product and a convolution.
        """
        needed = roofline_benchmarks(graph)
        known = [name for name in BYTES_OF if all((b, name) in self.compute for b in needed)]
        return sorted(known, key=lambda name: -self.compute[needed[-1], name])


def bounding_benchmarks(graph: Graph | None) -> tuple[str, ...]:
    """Return the compute benchmarks that bound a model: those of the kinds of work that it has.

    Fast algorithms of convolution need fewer multiplications than are counted, so a convolution can
    be faster than any matrix product. That does not help a model without convolutions. Both
    benchmarks for a model without a graph, or with neither kind of work.
    """
    kinds = {node.kind for node in graph.nodes} if graph is not None else set()
    used = {MATRIX[kind] for kind in kinds if kind in MATRIX}
    return tuple(name for name in COMPUTE if name in used) or COMPUTE


def roofline_benchmarks(graph: Graph | None) -> tuple[str, ...]:
    """Return the compute benchmarks that the roofline of a model needs.

    These are the matrix product, which also bounds operators that do not run on matrix units, and
    the convolution if the model has convolutions.
    """
    bounding = bounding_benchmarks(graph)
    return tuple(name for name in COMPUTE if name == "gemm" or name in bounding)


def measured_ceilings(
    measurements: Iterable[Measurement], job_ranks: int | None = None
) -> Ceilings:
    """Return the highest measured value of each ceiling.

    The network is the all-reduce between ``job_ranks`` ranks, as many as a job has, if that was
    measured; otherwise the fastest one within a node, or else between nodes.
    """
    measured = [item for item in measurements if item.value is not None]
    compute: dict[tuple[str, str], float] = {}
    memory: list[float] = []
    network: list[Measurement] = []
    kinds = {_device_kind(item.device) for item in measured if item.benchmark in COMPUTE}
    for item in measured:
        assert item.value is not None
        if item.benchmark in COMPUTE and item.precision is not None:
            key = (item.benchmark, item.precision)
            compute[key] = max(item.value, compute.get(key, 0.0))
        elif item.benchmark == "memory":
            memory.append(item.value)
        elif item.benchmark == "all-reduce" and _device_kind(item.device) in kinds:
            network.append(item)  # traffic between CPU processes does not bound accelerators
    fastest = max(network, key=lambda item: _network_order(item, job_ranks), default=None)
    ranks = fastest.setting.get("ranks") if fastest else None
    is_between = fastest is not None and between_nodes(fastest)
    return Ceilings(
        compute=compute,
        memory=max(memory, default=None),
        network=fastest.value if fastest else None,
        ranks=int(ranks) if ranks is not None else None,
        network_case=fastest.case if fastest else None,
        network_nodes=fastest.node if fastest and is_between else None,
    )


def _network_order(item: Measurement, job_ranks: int | None) -> tuple[bool, bool, float]:
    """Return a sort key, largest for the all-reduce that is nearest to that of a job."""
    is_of_job = job_ranks is not None and item.setting.get("ranks") == job_ranks
    return is_of_job, not between_nodes(item), item.value or 0.0


def _device_kind(device: str) -> str:
    return device.partition(":")[0]


@dataclass(frozen=True)
class Point:
    """The operators of one kind, or of one part of a transformer, on the roofline."""

    group: str
    """The kind of operator, such as convolution, or the part of the model, such as attention."""
    ops: int
    bytes_moved: int
    compute_s: float
    memory_s: float
    bound_s: float
    """The minimum time: the sum over operators of the larger of the two times."""
    waiting_s: float
    """The part of the minimum time that is spent in operators bound by memory."""

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        return self.ops / self.bytes_moved if self.bytes_moved else 0.0

    @property
    def attainable(self) -> float:
        """The highest FLOPS that these operators can reach."""
        return self.ops / self.bound_s if self.bound_s else 0.0

    @property
    def bound_by(self) -> str:
        """``memory`` if memory bounds more than half of the minimum time, else ``compute``."""
        return "memory" if self.waiting_s > self.bound_s / 2 else "compute"


@dataclass(frozen=True)
class Bound:
    """The bounds of a model under the ceilings of a machine."""

    model: str
    batch: int
    precision: str
    rules: str
    points: tuple[Point, ...]
    """One point per kind of operator, or per part of a transformer, the slowest first."""
    ridge: float
    """Operations per byte at which convolutions turn from memory-bound to compute-bound; matrix
    products in a model without convolutions."""
    gradient_bytes: int
    """Bytes of all gradients, which one all-reduce averages."""
    network_s: float | None
    """The minimum time of that all-reduce; None if no network was measured."""
    ranks: int | None
    nodes: str | None = None
    """The nodes of the ranks that reduce gradients; None if they are on one node."""
    tokens: int | None = None
    """The number of tokens in a batch; None if the model does not look up tokens."""

    @property
    def step_s(self) -> float:
        """The minimum time of one training step without communication."""
        return sum_in_order(point.bound_s for point in self.points)

    @property
    def ops(self) -> int:
        """The operations of one training step."""
        return sum(point.ops for point in self.points)

    @property
    def attainable(self) -> float:
        """The highest FLOPS that the whole model can reach."""
        return self.ops / self.step_s

    @property
    def samples_per_s(self) -> float:
        """The highest possible number of samples per second."""
        return self.batch / self.step_s

    @property
    def tokens_per_s(self) -> float | None:
        """The highest possible number of tokens per second; None if the model has none."""
        return None if self.tokens is None else self.tokens / self.step_s

    @property
    def bound_by(self) -> str:
        """``memory`` if memory bounds more than half of the minimum time, else ``compute``."""
        return "memory" if self.waiting_share > 0.5 else "compute"

    @property
    def waiting_share(self) -> float:
        """The share of the minimum time that is spent in operators bound by memory."""
        return sum_in_order(point.waiting_s for point in self.points) / self.step_s

    @property
    def bound_share(self) -> float:
        """The share of the minimum time that is bound by ``bound_by``."""
        return max(self.waiting_share, 1 - self.waiting_share)


def bound(count: Count, machine: Ceilings, precision: str) -> Bound:
    """Return the bounds of a counted model under the ceilings of a machine in one precision."""
    if machine.memory is None:
        raise ValueError("a bound needs a measured memory bandwidth")
    groups: dict[str, list[tuple[int, int, float, float]]] = {}
    parts, inner = model_parts(count.graph), inner_values(count.graph)
    for index, node in enumerate(count.graph.nodes):
        moved = (
            forward_bytes(count.graph, node, precision, inner),
            backward_bytes(count.graph, index, precision, inner),
        )
        if not any(moved):
            continue
        ops = count.ops[index]
        work = (ops.forward, ops.backward) if ops is not None else (0, 0)
        peak = machine.compute[MATRIX.get(node.kind, "gemm"), precision]
        group: str = "copy" if node.kind in NO_ARITHMETIC else node.kind
        if parts is not None:
            group = parts[index]
        for phase_ops, phase_bytes in zip(work, moved, strict=True):
            entry = (phase_ops, phase_bytes, phase_ops / peak, phase_bytes / machine.memory)
            groups.setdefault(group, []).append(entry)
    points = [_point(group, entries) for group, entries in groups.items()]
    gradient_bytes = count.graph.parameter_count * BYTES_OF["fp32"]
    network_s = None
    if machine.network and machine.ranks:
        network_s = ring_share(machine.ranks) * gradient_bytes / machine.network
    return Bound(
        model=count.graph.model,
        batch=count.graph.batch,
        precision=precision,
        rules=count.convention.id,
        points=tuple(sorted(points, key=lambda point: -point.bound_s)),
        ridge=machine.compute[roofline_benchmarks(count.graph)[-1], precision] / machine.memory,
        gradient_bytes=gradient_bytes,
        network_s=network_s,
        ranks=machine.ranks,
        nodes=machine.network_nodes,
        tokens=count.tokens,
    )


def _point(group: str, entries: Sequence[tuple[int, int, float, float]]) -> Point:
    return Point(
        group=group,
        ops=sum(entry[0] for entry in entries),
        bytes_moved=sum(entry[1] for entry in entries),
        compute_s=sum_in_order(entry[2] for entry in entries),
        memory_s=sum_in_order(entry[3] for entry in entries),
        bound_s=sum_in_order(max(entry[2], entry[3]) for entry in entries),
        waiting_s=sum_in_order(entry[3] for entry in entries if entry[3] > entry[2]),
    )
