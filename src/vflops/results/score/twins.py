"""Twins are two models with the same sample and seed: different results mean a faulty node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vflops.record.files.document import Data
from vflops.record.readout.job_nodes import JobNodes
from vflops.record.readout.trained_job import TrainedJob

SETTING = "train.deterministic=true"
"""The setting that makes twins on accelerators comparable."""
_MUST_BE_EQUAL = (
    "device_name",
    "ranks",
    "precision",
    "batch",
    "compiled",
    "recorded",
    "threads",
    "torch",
    "framework",
    "framework_version",
)


class TwinPair(Data):
    """Two models with the same sample and seed, which should be identical."""

    models: tuple[int, int]
    """The numbers of both models in the ensemble, from 0."""
    nodes: tuple[tuple[str, ...], tuple[str, ...]]
    """The nodes of each model; empty if they are not known."""
    one_node: bool
    """Whether both ran on the same node, so that they may share its errors."""
    verdict: Literal["agree", "differ", "cannot tell"]
    reason: str | None = None
    """Why the pair cannot be compared."""
    epoch: float | None = None
    """The epoch of the first evaluation that differs; None if only the trained weights do."""
    difference: float | None = None
    """The difference in quality at that evaluation, second minus first."""


class TwinsScore(Data):
    """Whether nodes compute the same results."""

    pairs: tuple[TwinPair, ...]
    suspects: tuple[str, ...]
    """Nodes of a differing pair that do not agree with another node in any other pair."""


def twins_score(members: Sequence[TrainedJob], nodes: dict[int, JobNodes]) -> TwinsScore | None:
    """Return the verdict on every pair of an ensemble of twins; None for other ensembles.

    ``members`` are all planned jobs, including those that did not finish.
    """
    pairs: dict[int, list[TrainedJob]] = {}
    for member in members:
        if member.record.bag is not None and member.record.bag.twins:
            pairs.setdefault(member.record.bag.number, []).append(member)
    if not pairs:
        return None
    complete = [(pair[0], pair[1]) for _, pair in sorted(pairs.items()) if len(pair) == 2]
    # A single pair that agrees to the last bit proves that the kernels are reproducible.
    reproducible = any(_agree(*pair) for pair in complete)
    judged = tuple(_pair(*pair, nodes, reproducible=reproducible) for pair in complete)
    return TwinsScore(pairs=judged, suspects=_suspects(judged))


def same_bits(first: TrainedJob, second: TrainedJob) -> tuple[bool | None, str | None]:
    """Return whether two jobs gave the same bits, or None and the reason if not known."""
    reason = _incomparable_reason(first, second)
    if reason is None and _agree(first, second):
        return True, None
    reason = reason or _harmless_reason(first, second, reproducible=False)
    return (False, None) if reason is None else (None, reason)


def _pair(
    first: TrainedJob, second: TrainedJob, nodes: dict[int, JobNodes], *, reproducible: bool
) -> TwinPair:
    bags = first.record.bag, second.record.bag
    pair_nodes = [nodes.get(job.record.job, JobNodes()) for job in (first, second)]
    facts = {
        "models": tuple(bag.model for bag in bags if bag),
        "nodes": tuple(job_nodes.names for job_nodes in pair_nodes),
        "one_node": bool(set(pair_nodes[0].nodes) & set(pair_nodes[1].nodes)),
    }
    reason = _incomparable_reason(first, second)
    if reason is None and _agree(first, second):
        return TwinPair.model_validate({**facts, "verdict": "agree"})
    reason = reason or _harmless_reason(first, second, reproducible=reproducible)
    if reason is not None:
        return TwinPair.model_validate({**facts, "verdict": "cannot tell", "reason": reason})
    epoch, difference = _first_difference(first, second)
    return TwinPair.model_validate(
        {**facts, "verdict": "differ", "epoch": epoch, "difference": difference}
    )


def _agree(first: TrainedJob, second: TrainedJob) -> bool:
    """Whether both finished with the same weights and the same quality at every evaluation."""
    if first.finished is None or second.finished is None or first.finished.weights_sha256 is None:
        return False
    same = first.finished.weights_sha256 == second.finished.weights_sha256
    return same and _qualities(first) == _qualities(second)


def _incomparable_reason(first: TrainedJob, second: TrainedJob) -> str | None:
    """Return why the two cannot be compared; None if they can."""
    for job in (first, second):
        if job.finished is None:
            return f"job {job.record.job} did not come to its end"
        if job.finished.weights_sha256 is None:
            return f"job {job.record.job} does not say what its weights are"
    return None


def _harmless_reason(first: TrainedJob, second: TrainedJob, *, reproducible: bool) -> str | None:
    """Return why a difference need not mean a faulty node; None if it does."""
    one, other = first.started, second.started
    if one is None or other is None:
        return "the log does not say what ran"
    for name in _MUST_BE_EQUAL:
        a, b = getattr(one, name), getattr(other, name)
        if a != b:
            return f"they did not run alike: {name.replace('_', ' ')} {a} and {b}"
    if not (reproducible or (one.deterministic and other.deterministic)):
        return f"kernels of {one.device_name} need not give the same bits again: --set {SETTING}"
    return None


def _first_difference(first: TrainedJob, second: TrainedJob) -> tuple[float | None, float | None]:
    """Return the epoch of the first evaluation that differs, and the difference in quality."""
    one, other = _qualities(first), _qualities(second)
    for step, (epoch, quality) in sorted(one.items()):
        if step not in other:
            return epoch, None
        if other[step][1] != quality:
            return epoch, other[step][1] - quality
    return None, None


def _qualities(trained: TrainedJob) -> dict[int, tuple[float, float]]:
    """Return epoch and quality of every evaluation, by step."""
    evaluations = (evaluation.evaluated for evaluation in trained.evaluations)
    return {evaluated.step: (evaluated.epoch, evaluated.quality) for evaluated in evaluations}


def _suspects(pairs: Sequence[TwinPair]) -> tuple[str, ...]:
    """Return the nodes of differing pairs that no agreeing pair on two nodes has cleared."""
    doubted = [name for pair in pairs if pair.verdict == "differ" for name in _names(pair)]
    on_two_nodes = [pair for pair in pairs if not set(pair.nodes[0]) & set(pair.nodes[1])]
    cleared = {name for pair in on_two_nodes if pair.verdict == "agree" for name in _names(pair)}
    return tuple(name for name in dict.fromkeys(doubted) if name not in cleared)


def _names(pair: TwinPair) -> tuple[str, ...]:
    return (*pair.nodes[0], *pair.nodes[1])
