"""Predictions of every mode over accelerators, and where each stops paying off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vflops.errors import UsageError
from vflops.studies.predict.exchange_time import NotKnown
from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.scaling_model import Prediction, predict

PAYS = 0.5
"""The efficiency below which accelerators wait longer than they work."""


@dataclass(frozen=True)
class Line:
    """One mode at increasing scales."""

    name: str
    inputs: Inputs
    bagging: bool = False
    """Whether models are added, each on the accelerators of a node, instead of ranks."""

    @property
    def unit(self) -> int:
        """The unit that numbers above a node are a multiple of."""
        node = self.inputs.node.accelerators or 1
        sharing = self.inputs.parallel.sharing if self.inputs.parallel.mode == "mixed" else None
        return math.lcm(node, sharing or 1)

    def at(self, accelerators: int) -> Prediction:
        """Return the prediction for so many accelerators."""
        if self.bagging:
            ranks = min(accelerators, self.inputs.node.accelerators or 1)
            return predict(self.inputs, accelerators // ranks, ranks)
        return predict(self.inputs, 1, accelerators)

    def refusal(self, accelerators: int) -> UsageError | None:
        """Return why the mode does not fit so many accelerators; None if it does."""
        try:
            self.at(accelerators)
        except UsageError as error:
            return error
        return None

    def points(self, scales: Sequence[int]) -> list[Prediction]:
        """Return the predictions at the scales that the mode fits."""
        return [self.at(scale) for scale in scales if self.refusal(scale) is None]

    def fault(self, scales: Sequence[int]) -> UsageError | None:
        """Return why there is no line: the mode fits no scale above one accelerator.

        Of several reasons, it is that of the largest scale: few ranks may not fill a mesh.
        """
        mesh = self.inputs.parallel.mesh
        asked = [math.prod(mesh)] if mesh else [scale for scale in scales if scale > 1] or scales
        refusals = [self.refusal(scale) for scale in asked]
        return None if None in refusals else refusals[-1]

    def pays_up_to(self, scales: Sequence[int]) -> int | None:
        """Return the most accelerators with an efficiency of a half; None if all scales have it.

        0 if none has it.
        """
        points = self.points(scales)
        paid = 0
        for point in points:
            if point.efficiency < PAYS:
                return self._edge(paid, point.accelerators) if paid else 0
            paid = point.accelerators
        return None

    def _edge(self, pays: int, does_not: int) -> int:
        """Return the last multiple of the unit between the two that pays off, by bisection."""
        unit = self.unit
        low, high = pays // unit, does_not // unit
        while high - low > 1:
            middle = (low + high) // 2
            try:
                point = self.at(middle * unit)
            except UsageError:  # micro-batches that do not divide the batch
                break
            if point.efficiency >= PAYS:
                low = middle
            else:
                high = middle
        return max(pays, low * unit)


@dataclass(frozen=True)
class Lines:
    """Lines of modes, and why others are missing."""

    lines: tuple[Line, ...]
    missing: dict[str, UsageError]


MODES: dict[str, dict[str, Any]] = {
    "bagging": {"mode": "data"},
    "data": {"mode": "data"},
    "sharded": {"mode": "sharded"},
    "model, layers": {"mode": "model", "split": "layers"},
    "model, tensor": {"mode": "model", "split": "tensor"},
    "pipeline": {"mode": "pipeline"},
    "mixed": {"mode": "mixed"},
}
"""The settings of each mode, by the name of its line."""
WAYS: dict[str, dict[str, Any]] = {
    "all-reduce, ring": {"mode": "all-reduce", "algorithm": "ring", "near": None},
    "all-reduce, tree": {"mode": "all-reduce", "algorithm": "tree", "near": None},
    "hierarchical": {"mode": "hierarchical", "algorithm": "ring"},
    "torus": {"mode": "torus", "algorithm": "ring"},
}


def parallel_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Return lines of bagging and of each parallel mode."""
    tried = []
    for name, settings in MODES.items():
        of_mode = inputs.changed(
            parallel=settings if name == "mixed" else {**settings, "mesh": None}
        )
        name = f"data × {inner(of_mode)}" if name == "mixed" else name
        tried.append(Line(name, of_mode, bagging=name == "bagging"))
    return _lines(tried, scales)


def exchange_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Return lines of data parallelism with each exchange algorithm."""
    data = inputs.changed(parallel={"mode": "data"})
    return _lines(
        [Line(name, data.changed(communication=settings)) for name, settings in WAYS.items()],
        scales,
    )


def inner(inputs: Inputs) -> str:
    """Return how the ranks of a copy share it in mode mixed."""
    parallel = inputs.parallel
    return parallel.within if parallel.within == "pipeline" else f"model, {parallel.split}"


def _lines(tried: Sequence[Line], scales: Sequence[int]) -> Lines:
    lines, missing = [], {}
    for line in tried:
        error = line.fault(scales)
        if error is None:
            lines.append(line)
        else:
            missing[line.name] = error
    return Lines(tuple(lines), missing)


class Edge(NamedTuple):
    """The most accelerators at which a mode pays off."""

    name: str
    at: Prediction


def edges(lines: Sequence[Line], scales: Sequence[int]) -> list[Edge]:
    """Return where lines stop paying off; lines that never do or never stop have no edge."""
    limits = [(line, line.pays_up_to(scales)) for line in lines]
    return [Edge(line.name, line.at(most)) for line, most in limits if most]


def scales_up_to(inputs: Inputs, most: int) -> list[int]:
    """Return 1, 2, 4 … up to a node, then 1, 2, 4 … nodes, up to ``most`` accelerators."""
    node = inputs.node.accelerators or 1
    inside = [1 << power for power in range(node.bit_length())]
    inside = sorted({*(n for n in inside if n < node), node})
    nodes = [node << power for power in range(1, 18)]
    return sorted({n for n in [*inside, *nodes, most // node * node] if 1 <= n <= most})


def fitting(inputs: Inputs, most: int) -> tuple[list[int], str | None]:
    """Return the scales that the mode fits, and why others are left out.

    Raise if it fits only one accelerator, or if an input is missing.
    """
    line, mesh = Line("", inputs), inputs.parallel.mesh
    scales = scales_up_to(inputs, most)
    if mesh and inputs.parallel.mode == "mixed":
        scales = sorted({*scales, math.prod(mesh)})
    refused = {scale: error for scale in scales if (error := line.refusal(scale))}
    unknown = [error for error in refused.values() if isinstance(error, NotKnown)]
    if error := line.fault(scales) or next(iter(unknown), None):
        raise error
    if not refused:
        return scales, None
    named = ", ".join(f"{scale:,}" for scale in refused)
    reason = refused[max(refused)].message
    return [scale for scale in scales if scale not in refused], f"no P = {named}: {reason}"


def best(lines: Sequence[Line], scales: Sequence[int]) -> list[tuple[int, str]]:
    """Return from which scale on which mode is the most efficient; ties keep the previous one.

    Bagging is left out, because it trains other models.
    """
    at: dict[int, dict[str, float]] = {}
    for line in lines:
        if not line.bagging:
            for point in line.points(scales):
                at.setdefault(point.accelerators, {})[line.name] = point.efficiency
    ranges: list[tuple[int, str]] = []
    for scale in sorted(at):
        if scale == 1:
            continue  # all modes are the same on one accelerator
        first = max(at[scale], key=lambda name: at[scale][name])
        ahead = ranges[-1][1] if ranges else None
        if ahead is None or at[scale][first] > at[scale].get(ahead, 0.0):
            ranges.append((scale, first))
    return ranges
