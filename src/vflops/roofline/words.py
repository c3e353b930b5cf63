"""The roofline in words: what bounds the model, by how much, and what would help."""

from __future__ import annotations

from vflops.roofline.analysis import Bound
from vflops.units import percent, quantity, seconds


def sentences(bound: Bound) -> list[str]:
    """A few plain sentences, the most important first."""
    found = [_whole(bound)]
    convolution = next((p for p in bound.points if p.kind == "convolution"), None)
    if convolution is not None:
        found.append(_convolution(bound, convolution.intensity))
    memory_kinds = [p for p in bound.points if p.bound_by == "memory" and p.kind != "convolution"]
    if memory_kinds:
        names = _join([point.kind for point in memory_kinds[:3]])
        share = sum(point.bound_s for point in memory_kinds) / bound.step_s
        found.append(
            f"Layers that only move bytes take {percent(share, digits=0)} of the least time, "
            f"{names} first: fusing them into their neighbours is what would help most."
            if share > 0.2
            else f"Layers that only move bytes ({names}) take {percent(share, digits=0)} "
            "of the least time."
        )
    if bound.network_s is not None:
        found.append(_network(bound, bound.network_s))
    return found


def _whole(bound: Bound) -> str:
    return (
        f"{bound.model} in {bound.precision} at batch {bound.batch} can reach at most "
        f"{quantity(bound.attainable, 'FLOPS')} here, {quantity(bound.samples_per_s, 'samples/s')} "
        f"({bound.rules} rules, one kernel an operator): {bound.bound_by} bounds it, with "
        f"{percent(bound.bound_share, digits=0)} of the least time of a step, "
        f"{seconds(bound.step_s)}."
    )


def _convolution(bound: Bound, intensity: float) -> str:
    ratio = intensity / bound.ridge
    if 0.9 < ratio < 1.1:
        side = f"right at the ridge of {bound.ridge:.1f}: compute and memory bound them alike"
    elif ratio > 1:
        side = f"{ratio:.1f} times above the ridge of {bound.ridge:.1f}: bound by compute"
    else:
        side = f"{1 / ratio:.1f} times below the ridge of {bound.ridge:.1f}: bound by memory"
    return f"Its convolutions do {intensity:.1f} operations a byte, {side}."


def _network(bound: Bound, network_s: float) -> str:
    ratio = network_s / bound.step_s
    gradients = quantity(bound.gradient_bytes, "B")
    start = (
        f"Reducing its {gradients} of gradients between {bound.ranks} ranks takes "
        f"{seconds(network_s)} at least"
    )
    if ratio > 1:
        return (
            f"{start}, {ratio:.1f} times the step: data parallelism would be bound by the network "
            f"below batch {int(bound.batch * ratio) + 1} a rank."
        )
    return f"{start}, {percent(ratio, digits=0)} of the step: it can hide behind the arithmetic."


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
