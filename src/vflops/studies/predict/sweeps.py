"""Predictions of every mode at increasing scales, and where each stops paying off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vflops.errors import UsageError
from vflops.studies.predict.exchange_time import UnknownInput
from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.scaling_model import Prediction, predict

MIN_EFFICIENCY = 0.5
"""Below this efficiency, accelerators wait longer than they work: the mode does not pay off."""


@dataclass(frozen=True)
class Line:
    """One mode at increasing scales (numbers of accelerators)."""

    name: str
    inputs: Inputs
    bagging: bool = False
    """Whether more accelerators train more models, one per node, instead of one larger model."""

    @property
    def unit(self) -> int:
        """Numbers of accelerators larger than a node must be multiples of this."""
        node = self.inputs.node.accelerators or 1
        sharing = self.inputs.parallel.sharing if self.inputs.parallel.mode == "mixed" else None
        return math.lcm(node, sharing or 1)

    def predict_at(self, accelerators: int) -> Prediction:
        """Return the prediction for this number of accelerators."""
        if self.bagging:
            ranks = min(accelerators, self.inputs.node.accelerators or 1)
            return predict(self.inputs, accelerators // ranks, ranks)
        return predict(self.inputs, 1, accelerators)

    def error_at(self, accelerators: int) -> UsageError | None:
        """Return why the mode cannot use this number of accelerators; None if it can."""
        try:
            self.predict_at(accelerators)
        except UsageError as error:
            return error
        return None

    def points(self, scales: Sequence[int]) -> list[Prediction]:
        """Return the predictions at those scales that the mode can use."""
        return [self.predict_at(scale) for scale in scales if self.error_at(scale) is None]

    def error(self, scales: Sequence[int]) -> UsageError | None:
        """Return why the mode cannot use any scale above one accelerator; None if it can.

        The error is that of the largest scale, because small ones may just not fill a mesh.
        """
        mesh = self.inputs.parallel.mesh
        tried = [math.prod(mesh)] if mesh else [scale for scale in scales if scale > 1] or scales
        errors = [self.error_at(scale) for scale in tried]
        return None if None in errors else errors[-1]

    def pays_up_to(self, scales: Sequence[int]) -> int | None:
        """Return the largest number of accelerators with which the mode pays off.

        Return None if it pays off at all scales, and 0 if at none.
        """
        last = 0
        for point in self.points(scales):
            if point.efficiency < MIN_EFFICIENCY:
                return self._bisect(last, point.accelerators) if last else 0
            last = point.accelerators
        return None

    def _bisect(self, pays: int, too_many: int) -> int:
        """Return the largest multiple of the unit between the two numbers that pays off."""
        unit = self.unit
        low, high = pays // unit, too_many // unit
        while high - low > 1:
            middle = (low + high) // 2
            try:
                point = self.predict_at(middle * unit)
            except UsageError:  # for example micro-batches that do not divide the batch
                break
            if point.efficiency >= MIN_EFFICIENCY:
                low = middle
            else:
                high = middle
        return max(pays, low * unit)


@dataclass(frozen=True)
class Lines:
    """The lines of several modes, and why other modes have none."""

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
EXCHANGE_MODES: dict[str, dict[str, Any]] = {
    "all-reduce, ring": {"mode": "all-reduce", "algorithm": "ring", "near": None},
    "all-reduce, tree": {"mode": "all-reduce", "algorithm": "tree", "near": None},
    "hierarchical": {"mode": "hierarchical", "algorithm": "ring"},
    "torus": {"mode": "torus", "algorithm": "ring"},
}


def parallel_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Return the lines of bagging and of each parallel mode."""
    tried = []
    for name, settings in MODES.items():
        of_mode = inputs.with_changes(
            parallel=settings if name == "mixed" else {**settings, "mesh": None}
        )
        name = f"data × {sharing_mode(of_mode)}" if name == "mixed" else name
        tried.append(Line(name, of_mode, bagging=name == "bagging"))
    return _lines(tried, scales)


def exchange_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Return the lines of data parallelism with each exchange algorithm."""
    data = inputs.with_changes(parallel={"mode": "data"})
    return _lines(
        [
            Line(name, data.with_changes(communication=settings))
            for name, settings in EXCHANGE_MODES.items()
        ],
        scales,
    )


def sharing_mode(inputs: Inputs) -> str:
    """Return the mode in which the ranks of a copy share it in mode ``mixed``."""
    parallel = inputs.parallel
    return parallel.within if parallel.within == "pipeline" else f"model, {parallel.split}"


def _lines(candidates: Sequence[Line], scales: Sequence[int]) -> Lines:
    lines, missing = [], {}
    for line in candidates:
        error = line.error(scales)
        if error is None:
            lines.append(line)
        else:
            missing[line.name] = error
    return Lines(tuple(lines), missing)


class Edge(NamedTuple):
    """The prediction at the largest number of accelerators with which a mode pays off."""

    name: str
    prediction: Prediction


def edges(lines: Sequence[Line], scales: Sequence[int]) -> list[Edge]:
    """Return where lines stop paying off; those that never or always pay off have no edge."""
    limits = [(line, line.pays_up_to(scales)) for line in lines]
    return [Edge(line.name, line.predict_at(limit)) for line, limit in limits if limit]


def scales_up_to(inputs: Inputs, limit: int) -> list[int]:
    """Return 1, 2, 4 … accelerators up to a node, then 1, 2, 4 … nodes, up to ``limit``."""
    node = inputs.node.accelerators or 1
    inside = [1 << power for power in range(node.bit_length())]
    inside = sorted({*(n for n in inside if n < node), node})
    nodes = [node << power for power in range(1, 18)]
    return sorted({n for n in [*inside, *nodes, limit // node * node] if 1 <= n <= limit})


def fitting_scales(inputs: Inputs, limit: int) -> tuple[list[int], str | None]:
    """Return the scales that the mode can use, and why others are left out.

    Raise UsageError if it can use only one accelerator, or if an input is missing.
    """
    line, mesh = Line("", inputs), inputs.parallel.mesh
    scales = scales_up_to(inputs, limit)
    if mesh and inputs.parallel.mode == "mixed":
        scales = sorted({*scales, math.prod(mesh)})
    errors = {scale: error for scale in scales if (error := line.error_at(scale))}
    unknown = [error for error in errors.values() if isinstance(error, UnknownInput)]
    if error := line.error(scales) or next(iter(unknown), None):
        raise error
    if not errors:
        return scales, None
    left_out = ", ".join(f"{scale:,}" for scale in errors)
    reason = errors[max(errors)].message
    return [scale for scale in scales if scale not in errors], f"no P = {left_out}: {reason}"


def most_efficient_modes(lines: Sequence[Line], scales: Sequence[int]) -> list[tuple[int, str]]:
    """Return each scale from which on another mode is the most efficient, with its name.

    In a tie, the previous mode remains. Bagging is left out, because it trains several models.
    """
    efficiencies: dict[int, dict[str, float]] = {}
    for line in lines:
        if not line.bagging:
            for point in line.points(scales):
                by_name = efficiencies.setdefault(point.accelerators, {})
                by_name[line.name] = point.efficiency
    ranges: list[tuple[int, str]] = []
    for scale, by_name in sorted(efficiencies.items()):
        if scale == 1:
            continue  # all modes are the same on one accelerator
        best = max(by_name, key=by_name.__getitem__)
        previous = ranges[-1][1] if ranges else None
        if previous is None or by_name[best] > by_name.get(previous, 0.0):
            ranges.append((scale, best))
    return ranges
