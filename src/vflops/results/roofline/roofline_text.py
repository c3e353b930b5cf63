"""Sentences about a roofline: what bounds a model, how much, and what would help."""

from __future__ import annotations

from vflops.metrics.summation import sum_in_order
from vflops.results.roofline.analysis import Bound, Point
from vflops.units import percent, quantity, seconds

PARTS = ("part", "operations", "moved", "operations per byte", "at most", "bound by", "of the time")
"""The columns of ``part_rows``."""


def part_rows(bound: Bound) -> list[tuple[str, ...]]:
    """Return one row per part of a model, or kind of operator, the most time-consuming first."""
    return [
        (
            point.group,
            quantity(point.ops, "FLOP"),
            quantity(point.bytes_moved, "B"),
            f"{point.intensity:.3g}",
            quantity(point.attainable, "FLOPS") if point.ops else "—",
            point.bound_by,
            percent(point.bound_s / bound.step_s),
        )
        for point in bound.points
    ]


def sentences(bound: Bound) -> list[str]:
    """Return sentences about the bounds of a model, the most important first."""
    lines = [_model_bound(bound)]
    convolution = next((p for p in bound.points if p.group == "convolution"), None)
    if convolution is not None:
        lines.append(_convolution(bound, convolution.intensity))
    memory_bound = [p for p in bound.points if p.bound_by == "memory" and p.group != "convolution"]
    if memory_bound:
        lines.append(_memory_bound(bound, memory_bound))
    if bound.network_s is not None:
        lines.append(_network(bound, bound.network_s))
    return lines


def _model_bound(bound: Bound) -> str:
    speed = quantity(bound.samples_per_s, "samples/s")
    if bound.tokens_per_s is not None:
        speed = f"{bound.tokens_per_s:,.0f} tokens/s"
    share = percent(bound.bound_share, digits=0)
    return (
        f"{bound.model} in {bound.precision} can reach at most "
        f"{quantity(bound.attainable, 'FLOPS')} here, {speed}: a step of {bound.batch} samples "
        f"takes at least {seconds(bound.step_s)}, and {share} of that is bound by "
        f"{bound.bound_by} ({bound.rules} rules, operators not fused)."
    )


def _convolution(bound: Bound, intensity: float) -> str:
    ratio = intensity / bound.ridge
    if 0.9 < ratio < 1.1:
        side = f"right at the ridge of {bound.ridge:.1f}: compute and memory bound them equally"
    elif ratio > 1:
        side = f"{ratio:.1f} times above the ridge of {bound.ridge:.1f}: bound by compute"
    else:
        side = f"{1 / ratio:.1f} times below the ridge of {bound.ridge:.1f}: bound by memory"
    return f"The convolutions of {bound.model} do {intensity:.1f} operations per byte, {side}."


def _memory_bound(bound: Bound, points: list[Point]) -> str:
    names = _join([point.group for point in points[:3]])
    share = sum_in_order(point.bound_s for point in points) / bound.step_s
    start = f"Layers that mostly move bytes, {names} first, take {_about(share)} of that time"
    advice = ": fusing them into their neighbours would help most" if share > 0.2 else ""
    return f"{start}{advice}."


def _network(bound: Bound, network_s: float) -> str:
    ratio = network_s / bound.step_s
    start = (
        f"Reducing the {quantity(bound.gradient_bytes, 'B')} of gradients of {bound.model} between "
        f"{_ranks(bound)} takes at least {seconds(network_s)}"
    )
    if ratio > 1:
        return (
            f"{start}, {ratio:.1f} times the step: data parallelism over such a link is bound by "
            f"it below batch {int(bound.batch * ratio) + 1} per rank."
        )
    return f"{start}, {_about(ratio)} of the step: it can hide behind the arithmetic."


def _ranks(bound: Bound) -> str:
    return f"{bound.ranks} ranks on {bound.nodes}" if bound.nodes else f"{bound.ranks} local ranks"


def _about(share: float) -> str:
    return percent(share, digits=0) if share >= 0.01 else "under 1 %"


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
