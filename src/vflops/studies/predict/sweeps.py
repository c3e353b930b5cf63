"""Every mode over accelerators, and where each stops paying."""

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
"""The efficiency under which accelerators wait for longer than they work."""


@dataclass(frozen=True)
class Line:
    """One mode at rising scales."""

    name: str
    inputs: Inputs
    bagging: bool = False
    """Whether models are added, each on the accelerators of a node, instead of ranks."""

    @property
    def unit(self) -> int:
        """Accelerators that more than a node's must be a multiple of."""
        node = self.inputs.node.accelerators or 1
        sharing = self.inputs.parallel.sharing if self.inputs.parallel.mode == "mixed" else None
        return math.lcm(node, sharing or 1)

    def at(self, accelerators: int) -> Prediction:
        """The prediction there."""
        if self.bagging:
            ranks = min(accelerators, self.inputs.node.accelerators or 1)
            return predict(self.inputs, accelerators // ranks, ranks)
        return predict(self.inputs, 1, accelerators)

    def refusal(self, accelerators: int) -> UsageError | None:
        """Why the mode does not fit there; None: it does."""
        try:
            self.at(accelerators)
        except UsageError as error:
            return error
        return None

    def found(self, scales: Sequence[int]) -> list[Prediction]:
        """Predictions at the scales that the mode fits."""
        return [self.at(scale) for scale in scales if self.refusal(scale) is None]

    def fault(self, scales: Sequence[int]) -> UsageError | None:
        """Why there is no line: nothing that is more than one accelerator fits the mode.

        Of several reasons that of the largest scale: few ranks may be none that a mesh could have.
        """
        mesh = self.inputs.parallel.mesh
        asked = [math.prod(mesh)] if mesh else [scale for scale in scales if scale > 1] or scales
        refusals = [self.refusal(scale) for scale in asked]
        return None if None in refusals else refusals[-1]

    def pays_up_to(self, scales: Sequence[int]) -> int | None:
        """The most accelerators of an efficiency of a half; None: all of ``scales`` have it.

        0 where none has.
        """
        found = self.found(scales)
        paid = 0
        for each in found:
            if each.efficiency < PAYS:
                return self._edge(paid, each.accelerators) if paid else 0
            paid = each.accelerators
        return None

    def _edge(self, pays: int, does_not: int) -> int:
        """The last multiple of the unit between the two that pays; by halves."""
        unit = self.unit
        low, high = pays // unit, does_not // unit
        while high - low > 1:
            middle = (low + high) // 2
            try:
                found = self.at(middle * unit)
            except UsageError:  # micro-batches that do not divide the batch there
                break
            if found.efficiency >= PAYS:
                low = middle
            else:
                high = middle
        return max(pays, low * unit)


@dataclass(frozen=True)
class Lines:
    """Modes side by side, and why others are missing."""

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
"""What a run is told for each, by the name of its line."""
WAYS: dict[str, dict[str, Any]] = {
    "all-reduce, ring": {"mode": "all-reduce", "algorithm": "ring", "near": None},
    "all-reduce, tree": {"mode": "all-reduce", "algorithm": "tree", "near": None},
    "hierarchical": {"mode": "hierarchical", "algorithm": "ring"},
    "torus": {"mode": "torus", "algorithm": "ring"},
}


def parallel_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Bagging, then each parallel mode."""
    tried = []
    for name, told in MODES.items():
        own = inputs.changed(parallel=told if name == "mixed" else {**told, "mesh": None})
        name = f"data × {inner(own)}" if name == "mixed" else name
        tried.append(Line(name, own, bagging=name == "bagging"))
    return _lines(tried, scales)


def exchange_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Data parallelism with each way to exchange."""
    data = inputs.changed(parallel={"mode": "data"})
    return _lines(
        [Line(name, data.changed(communication=own)) for name, own in WAYS.items()], scales
    )


def inner(inputs: Inputs) -> str:
    """How the ranks of a copy share it, in mode mixed."""
    own = inputs.parallel
    return own.within if own.within == "pipeline" else f"model, {own.split}"


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
    """The most accelerators at which a mode pays."""

    name: str
    at: Prediction


def edges(lines: Sequence[Line], scales: Sequence[int]) -> list[Edge]:
    """Of the lines that stop paying somewhere, where; those that pay nowhere have none."""
    found = [(line, line.pays_up_to(scales)) for line in lines]
    return [Edge(line.name, line.at(most)) for line, most in found if most]


def scales_up_to(inputs: Inputs, most: int) -> list[int]:
    """1, 2, 4 … up to a node, then 1, 2, 4 … nodes, and as many as ``most`` accelerators have."""
    node = inputs.node.accelerators or 1
    inside = [1 << power for power in range(node.bit_length())]
    inside = sorted({*(n for n in inside if n < node), node})
    nodes = [node << power for power in range(1, 18)]
    return sorted({n for n in [*inside, *nodes, most // node * node] if 1 <= n <= most})


def fitting(inputs: Inputs, most: int) -> tuple[list[int], str | None]:
    """The scales that the mode fits, and why others are left out.

    Refused where it fits none but one accelerator, or a figure is missing.
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
    """From which scale which mode is the most efficient; the one before keeps a tie.

    Bagging trains other models, so it overtakes nothing.
    """
    at: dict[int, dict[str, float]] = {}
    for line in lines:
        if not line.bagging:
            for each in line.found(scales):
                at.setdefault(each.accelerators, {})[line.name] = each.efficiency
    found: list[tuple[int, str]] = []
    for scale in sorted(at):
        if scale == 1:
            continue  # all are one accelerator by itself
        first = max(at[scale], key=lambda name: at[scale][name])
        ahead = found[-1][1] if found else None
        if ahead is None or at[scale][first] > at[scale].get(ahead, 0.0):
            found.append((scale, first))
    return found
