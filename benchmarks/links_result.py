"""What ``benchmarks/links.py`` found, what is predicted for it, and the table of the two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.links_measure import RANK_BATCH, Coding
from vflops.studies.predict.inputs import Inputs, parse_inputs
from vflops.studies.predict.measured_points import MeasuredStep, MeasuredSteps
from vflops.studies.predict.validation import (
    MeasuredStepTime,
    PointComparison,
    compare_with_predictions,
)

BACKWARD = 2 / 3
"""Of a step; the first buckets are full for most of it."""
POWERSGD_MESSAGES = 3
"""A bucket: what stays as it is, and the two factors of the rest."""


@dataclass(frozen=True)
class Measured:
    """A point's figures."""

    figure: str
    series: str
    hosts: int
    wires: str
    bagging: bool
    precision: str
    mode: str
    step_s: float
    """Of training: the median over the rounds."""
    rounds_s: tuple[float, ...]
    samples_per_s: float
    """Of all hosts together."""
    parameters: int
    wire_bytes: float
    """That all hosts sent in a step."""
    counted_bytes: float
    """What the ranks say that they sent."""

    @property
    def name(self) -> str:
        """Among all that exchange alike."""
        return f"{self.precision}, {self.wires}"

    @property
    def spread(self) -> float:
        """Half of what lies between the quickest round and the slowest, of the median."""
        return (max(self.rounds_s) - min(self.rounds_s)) / 2 / self.step_s


@dataclass(frozen=True)
class Links:
    """What was measured without any training."""

    links: dict[str, dict[str, dict[str, float]]]
    """Bandwidth and latency by ``"hosts, wires"``, then by the precision of what was sent."""
    codings: dict[int, Coding]
    """By the hosts that code at the same time."""


def predicted(points: Sequence[Measured], found: Links) -> dict[int, PointComparison]:
    """By the number of the point; of those that exchange something the model knows."""
    alone = {each.hosts: each.step_s for each in points if each.bagging}
    compared: dict[int, PointComparison] = {}
    for index, point in enumerate(points):
        inputs = inputs_of(point, alone, found)
        if inputs is not None:
            measured = MeasuredStepTime(point.hosts, point.step_s, name=point.series)
            (compared[index],) = compare_with_predictions([measured], inputs)
    return compared


def record(points: Sequence[Measured], found: Links) -> MeasuredSteps:
    """All of it as a file that ``vflops predict --measured`` reads."""
    alone = {each.hosts: each.step_s for each in points if each.bagging}
    own = [(each, inputs_of(each, alone, found)) for each in points]
    steps = [
        MeasuredStep(
            name=each.name,
            models=1,
            ranks=each.hosts,
            step_s=each.step_s,
            alone_s=alone[each.hosts],
            inputs=inputs.model_dump(exclude_unset=True),
        )
        for each, inputs in own
        if inputs is not None and each.figure != "modes"
    ]
    details = {"points": [asdict(each) for each in points], **asdict(found)}
    return MeasuredSteps(points=tuple(steps), details=json.loads(json.dumps(details)))


def inputs_of(point: Measured, alone: Mapping[int, float], found: Links) -> Inputs | None:
    """What a prediction of it rests on; None where there is nothing to predict."""
    links = found.links.get(f"{point.hosts}, {point.wires}")
    if point.bagging or links is None or point.hosts not in alone or point.mode != "all-reduce":
        return None
    return parse_inputs(
        {
            "step": {"time_s": alone[point.hosts], "batch": RANK_BATCH},
            "model": {"gradient_bytes": 4 * point.parameters},
            "node": {"accelerators": 1},
            "link": links.get(point.precision, links["fp32"]),
            "communication": _communication(point, found.codings[point.hosts]),
        }
    )


def _communication(point: Measured, coding: Coding) -> dict[str, Any]:
    """How the gradients of a point are exchanged; nothing of it is of its own training."""
    whole, messages = sum(coding.bucket_bytes), len(coding.bucket_bytes)
    told: dict[str, Any] = {"algorithm": "ring", "precision": point.precision}
    if point.precision in coding.coding_s:
        told["coding_bandwidth"] = whole / coding.coding_s[point.precision]
    if point.precision == "powersgd":
        told["share"] = coding.powersgd_share
        messages *= POWERSGD_MESSAGES
    if len(coding.bucket_bytes) > 1:
        told |= {"overlap": BACKWARD, "last_bucket": coding.bucket_bytes[-1] / whole}
    return {**told, "buckets": messages}


def markdown(points: Sequence[Measured], found: Links) -> str:
    """The table of docs/explanation/communication.md, and the figures that its text has."""
    beside = predicted(points, found)
    counts = sorted({each.hosts for each in points if each.hosts > 1})
    rows: dict[str, dict[int, str]] = {}
    for index, point in enumerate(points):
        if point.figure != "modes" and point.hosts > 1:
            told = (_ms(point), _error(beside.get(index)), f"{point.wire_bytes / 1e6:.1f}")
            rows.setdefault(point.series, {})[point.hosts] = " | ".join(told)
    heads = " | | ".join(f"{count} hosts: ms a step | predicted | MB a step" for count in counts)
    lines = [f"| | {heads} |", "|---" * (4 * len(counts)) + "|"]
    for series, cells in rows.items():
        lines.append(f"| {series} | {' | | '.join(cells[each] for each in counts)} |")
    modes = [
        f"{each.series} {_ms(each)} {_error(beside.get(index))}".strip()
        for index, each in enumerate(points)
        if each.figure == "modes"
    ]
    lines += ["", f"Two nodes of two, ms a step: {', '.join(modes)}."] if modes else []
    apart = [100 * (p.wire_bytes / p.counted_bytes - 1) for p in points if p.counted_bytes]
    lines += ["", f"The interfaces sent {min(apart):.1f} to {max(apart):.1f} % more than counted."]
    for hosts, coding in found.codings.items():
        told_s = (f"{name} {1e3 * taken_s:.0f}" for name, taken_s in coding.coding_s.items())
        lines.append(f"Coding alone, {hosts} hosts at a time, ms: {', '.join(told_s)}.")
    largest = max(beside.values(), key=lambda each: abs(each.error))
    return "\n".join([*lines, f"The largest error: {_error(largest)}, {largest.point.name}."])


def _error(beside: PointComparison | None) -> str:
    return f"{100 * beside.error:+.0f} %".replace("-", "−") if beside else ""


def _ms(point: Measured) -> str:
    return f"{point.step_s * 1e3:.0f} ± {point.spread * point.step_s * 1e3:.0f}"
