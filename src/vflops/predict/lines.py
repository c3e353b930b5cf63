"""Every mode over accelerators, and where each stops paying."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from vflops.errors import UsageError
from vflops.predict.exchange import ExchangeMode
from vflops.predict.inputs import Inputs
from vflops.predict.model import Prediction, predict
from vflops.predict.steps import PARALLEL_MODES

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
        stages = self.inputs.parallel.stages if self.inputs.parallel.mode == "mixed" else None
        return math.lcm(node, stages or 1)

    def at(self, accelerators: int) -> Prediction:
        """The prediction there."""
        if self.bagging:
            ranks = min(accelerators, self.inputs.node.accelerators or 1)
            return predict(self.inputs, accelerators // ranks, ranks)
        return predict(self.inputs, 1, accelerators)

    def found(self, scales: Sequence[int]) -> list[Prediction]:
        """Predictions at the scales that the mode fits."""
        found = []
        for scale in scales:
            try:
                found.append(self.at(scale))
            except UsageError:
                continue
        return found

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


def parallel_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Bagging, then each parallel mode."""
    bagged = partial(Line, bagging=True)
    tried: list[tuple[str, str, partial[Line] | type[Line]]] = [("bagging", "data", bagged)]
    tried += [(mode, mode, Line) for mode in PARALLEL_MODES]
    lines, missing = [], {}
    for name, mode, make in tried:
        changed = inputs.changed(parallel={"mode": mode})
        if mode == "sharded" and inputs.exchange.mode not in ("ring", "torus"):
            changed, name = changed.changed(exchange={"mode": "ring"}), "sharded by a ring"
        if mode == "mixed":
            name = f"data × {inputs.parallel.split}"
        line = make(name, changed)
        error = _fault(line, scales)
        if error is None:
            lines.append(line)
        else:
            missing[line.name] = error
    return Lines(tuple(lines), missing)


def exchange_lines(inputs: Inputs, scales: Sequence[int]) -> Lines:
    """Data parallelism with each way to exchange."""
    lines, missing = [], {}
    for mode in get_args(ExchangeMode):
        line = Line(mode, inputs.changed(parallel={"mode": "data"}, exchange={"mode": mode}))
        error = _fault(line, scales)
        if error is None:
            lines.append(line)
        else:
            missing[mode] = error
    return Lines(tuple(lines), missing)


def _fault(line: Line, scales: Sequence[int]) -> UsageError | None:
    """Why a mode has no line: nothing that is more than one accelerator fits it."""
    fault: UsageError | None = None
    for scale in scales:
        try:
            if line.at(scale).accelerators > 1:
                return None
        except UsageError as error:
            fault = fault or error
    return fault


def scales_up_to(inputs: Inputs, most: int) -> list[int]:
    """1, 2, 4 … up to a node, then 1, 2, 4 … nodes, and as many as ``most`` accelerators have."""
    node = inputs.node.accelerators or 1
    inside = [1 << power for power in range(node.bit_length())]
    inside = sorted({*(n for n in inside if n < node), node})
    nodes = [node << power for power in range(1, 18)]
    return sorted({n for n in [*inside, *nodes, most // node * node] if 1 <= n <= most})


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
