"""Twins: two jobs with one sample and one seed come to the same, or a node computes otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.record.readout.job_nodes import JobLocation
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.node_verdicts import TwinPair, TwinsScore

SETTING = "train.deterministic=true"
"""What makes twins on accelerators comparable."""
_ALIKE = ("device_name", "ranks", "precision", "batch", "compiled", "recorded", "threads", "torch")


def twins_score(members: Sequence[TrainedJob], where: dict[int, JobLocation]) -> TwinsScore | None:
    """The verdict on every pair of an ensemble of twins; None of another.

    ``members`` are all that were planned, also those that did not come to their end.
    """
    pairs: dict[int, list[TrainedJob]] = {}
    for each in members:
        if each.record.bag is not None and each.record.bag.twins:
            pairs.setdefault(each.record.bag.number, []).append(each)
    if not pairs:
        return None
    whole = [(each[0], each[1]) for _, each in sorted(pairs.items()) if len(each) == 2]
    # Where one pair agrees to the last bit, the kernels have shown that they can.
    shown = any(_agree(*pair) for pair in whole)
    found = tuple(_pair(first, second, where, shown=shown) for first, second in whole)
    return TwinsScore(pairs=found, suspects=_suspects(found))


def same_bits(first: TrainedJob, second: TrainedJob) -> tuple[bool | None, str | None]:
    """Whether two trainings came to the same bits; None and the reason where none can tell."""
    reason = _unknown(first, second)
    if reason is None and _agree(first, second):
        return True, None
    reason = reason or _excused(first, second, shown=False)
    return (False, None) if reason is None else (None, reason)


def _pair(
    first: TrainedJob, second: TrainedJob, where: dict[int, JobLocation], *, shown: bool
) -> TwinPair:
    bags = first.record.bag, second.record.bag
    places = [where.get(each.record.job, JobLocation()) for each in (first, second)]
    facts = {
        "models": tuple(bag.model for bag in bags if bag),
        "nodes": tuple(place.names for place in places),
        "one_node": bool(set(places[0].nodes) & set(places[1].nodes)),
    }
    reason = _unknown(first, second)
    if reason is None and _agree(first, second):
        return TwinPair.model_validate({**facts, "verdict": "agree"})
    reason = reason or _excused(first, second, shown=shown)
    if reason is not None:
        return TwinPair.model_validate({**facts, "verdict": "cannot tell", "reason": reason})
    epoch, difference = _first_difference(first, second)
    return TwinPair.model_validate(
        {**facts, "verdict": "differ", "epoch": epoch, "difference": difference}
    )


def _agree(first: TrainedJob, second: TrainedJob) -> bool:
    """Whether both ended with the same weights, by way of the same qualities."""
    if first.finished is None or second.finished is None or first.finished.weights_sha256 is None:
        return False
    same = first.finished.weights_sha256 == second.finished.weights_sha256
    return same and _qualities(first) == _qualities(second)


def _unknown(first: TrainedJob, second: TrainedJob) -> str | None:
    """Why nothing can be compared."""
    for each in (first, second):
        if each.finished is None:
            return f"job {each.record.job} did not come to its end"
        if each.finished.weights_sha256 is None:
            return f"job {each.record.job} does not say what its weights are"
    return None


def _excused(first: TrainedJob, second: TrainedJob, *, shown: bool) -> str | None:
    """Why a difference may be nobody's fault."""
    one, other = first.started, second.started
    if one is None or other is None:
        return "the log does not say what ran"
    for name in _ALIKE:
        a, b = getattr(one, name), getattr(other, name)
        if a != b:
            return f"they did not run alike: {name.replace('_', ' ')} {a} and {b}"
    if not (shown or (one.deterministic and other.deterministic)):
        return f"kernels of {one.device_name} need not give the same bits again: --set {SETTING}"
    return None


def _first_difference(first: TrainedJob, second: TrainedJob) -> tuple[float | None, float | None]:
    """The epoch of the first evaluation that differs, and by how much; None: only weights do."""
    one, other = _qualities(first), _qualities(second)
    for step, (epoch, quality) in sorted(one.items()):
        if step not in other:
            return epoch, None
        if other[step][1] != quality:
            return epoch, other[step][1] - quality
    return None, None


def _qualities(trained: TrainedJob) -> dict[int, tuple[float, float]]:
    """Epoch and quality of every evaluation, by step."""
    notes = (each.evaluated for each in trained.evaluations)
    return {each.step: (each.epoch, each.quality) for each in notes}


def _suspects(pairs: Sequence[TwinPair]) -> tuple[str, ...]:
    doubted = [name for pair in pairs if pair.verdict == "differ" for name in _names(pair)]
    apart = [pair for pair in pairs if not set(pair.nodes[0]) & set(pair.nodes[1])]
    cleared = {name for pair in apart if pair.verdict == "agree" for name in _names(pair)}
    return tuple(name for name in dict.fromkeys(doubted) if name not in cleared)


def _names(pair: TwinPair) -> tuple[str, ...]:
    return (*pair.nodes[0], *pair.nodes[1])
