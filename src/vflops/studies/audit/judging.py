"""Compares a part that was trained again with what the log of the run says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import FolderError
from vflops.record.files.digest import file_digest
from vflops.record.formats.job_events import (
    Checkpointed,
    KeptFile,
    Predicted,
)
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.evidence.audit_record import AuditedSegment, Difference, SegmentVerdict
from vflops.studies.audit.committed_segments import Segment
from vflops.studies.audit.drawing import ChosenSegment
from vflops.studies.audit.part_times import TimedSteps
from vflops.studies.audit.retraining import Retrained

MARGIN = 5.0
"""How much larger than the largest difference between honest repetitions a difference may be."""
_SAMPLES = 5
"""Samples of an evaluation that may change sides even if no repetition shows it."""
_ROUNDING = 1e-6
"""The least tolerance of losses, weights and predictions, which are in single precision."""
_OTHER_WEIGHTS = "the trained weights are others than those in the log"


@dataclass(frozen=True)
class Deviation:
    """How far a part that was trained again is from another training of the same part."""

    loss: float | None
    """The largest difference between losses; None if no loss was compared."""
    quality: float | None
    weights: float | None
    """The relative distance of the weights at the end."""
    predictions: float | None = None
    """The mean difference between the predictions of a base model, relative to their mean."""

    def named(self) -> Iterator[tuple[str, float]]:
        """Yield the figures that are known, with their names."""
        for name in ("loss", "quality", "weights", "predictions"):
            value = getattr(self, name)
            if value is not None:
                yield name, value


def judge_bits(job: TrainedJob, chosen: ChosenSegment, again: Retrained) -> AuditedSegment:
    """Return the verdict if machine and software are the same: every bit must be equal."""
    segment = chosen.segment
    faults = [*_unreached(segment, again), *_bit_faults(job, segment, again)]
    compared = sum(1 for item in segment.commitments if item.step in again.commitments)
    verdict: SegmentVerdict = "differs" if faults else "same bits"
    if not faults and not (compared or segment.is_end):
        verdict = "not audited"
        faults = ["the log has no commitment that could be compared"]
    detail = faults[0] if faults else _agreement(segment, compared)
    return audited(job, chosen, again, verdict, detail, compared)


def judge_within(
    job: TrainedJob, chosen: ChosenSegment, again: Retrained, spread: Sequence[Deviation]
) -> AuditedSegment:
    """Return the verdict on other machines or software, given the spread of honest repetitions."""
    segment = chosen.segment
    limits = {"loss": _ROUNDING, "weights": _ROUNDING, "predictions": _ROUNDING}
    evaluated = max((point.evaluated for point in again.evaluations.values()), default=1)
    limits["quality"] = _SAMPLES / evaluated
    known = {name for honest in spread for name, _ in honest.named()}
    for honest in spread:
        for name, value in honest.named():
            limits[name] = max(limits[name], MARGIN * value)
    if _moved(job, segment) <= limits["weights"]:
        known -= {"weights"}  # standing still would be within the tolerance
    differences = tuple(
        Difference(figure=name, difference=value, tolerance=limits[name])
        for name, value in deviation(job, segment, again).named()
        if name in known
    )
    outside = [item for item in differences if not item.is_within]
    verdict: SegmentVerdict = "differs" if outside else "within tolerance"
    unreached = list(_unreached(segment, again))
    if unreached:
        verdict, detail = "differs", unreached[0]
    elif not segment.steps and _weights(job) != _weights(again.trained):
        verdict, detail = "differs", _OTHER_WEIGHTS  # reading a state rounds nothing
    elif not differences:
        verdict, detail = "not audited", "nothing in the log could be compared"
    else:
        detail = "; ".join(
            f"{item.figure} differs by {item.difference:.3g}, tolerance {item.tolerance:.3g}"
            for item in outside or differences
        )
    return audited(job, chosen, again, verdict, detail, 0, differences)


def audited(
    job: TrainedJob,
    chosen: ChosenSegment,
    again: Retrained | None,
    verdict: SegmentVerdict,
    detail: str,
    compared: int = 0,
    differences: tuple[Difference, ...] = (),
) -> AuditedSegment:
    """Return the row of a part, with its speed then and here."""
    segment = chosen.segment
    here = again.timed() if again else None
    batch = _batch(job, segment)
    return AuditedSegment(
        job=segment.job,
        candidate=segment.candidate.name if segment.candidate else None,
        first=segment.first,
        last=segment.last,
        reason=chosen.reason,
        verdict=verdict,
        detail=detail,
        commitments=compared,
        steps=again.steps if again else 0,
        differences=differences,
        samples_per_s_recorded=_speed(segment.timed, batch),
        samples_per_s_here=_speed(here, batch),
        seconds_here=here.per_step_s * segment.steps if here else None,
    )


def deviation(job: TrainedJob, segment: Segment, again: Retrained) -> Deviation:
    """Return how far a part that was trained again is from the recorded one."""
    losses = [
        abs(item.loss - other.loss)
        for item in segment.commitments
        if item.loss is not None
        and (other := again.commitments.get(item.step)) is not None
        and other.loss is not None
    ]
    return Deviation(
        max(losses, default=None),
        max((abs(then - now) for _, then, now in _qualities(job, segment, again)), default=None),
        _distance(job, segment, again),
        _prediction_distance(_stored(job) if segment.is_end else None, _written(again)),
    )


def repeated_deviation(first: Retrained, second: Retrained, segment: Segment) -> Deviation:
    """Return how far two repetitions of a part on this machine are apart."""
    from vflops.train.state_distance import relative_distance

    steps = first.commitments.keys() & second.commitments.keys()
    pairs = [(first.commitments[step].loss, second.commitments[step].loss) for step in steps]
    losses = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    evaluated = first.evaluations.keys() & second.evaluations.keys()
    qualities = [
        abs(first.evaluations[step].quality - second.evaluations[step].quality)
        for step in evaluated
    ]
    distance = None
    if segment.candidate is None and segment.steps:
        distance = relative_distance(first.end_state, second.end_state)
    return Deviation(
        max(losses, default=None),
        max(qualities, default=None),
        distance,
        _prediction_distance(_written(first), _written(second)),
    )


def _unreached(segment: Segment, again: Retrained) -> Iterator[str]:
    """Yield what of a part the training here did not reach."""
    if again.steps != segment.steps:
        yield f"{again.steps:,} steps lead to its end here, and not {segment.steps:,}"
    for item in segment.commitments:
        if item.step not in again.commitments:
            yield f"training again never had the state to which the log commits at {item.step:,}"


def _bit_faults(job: TrainedJob, segment: Segment, again: Retrained) -> Iterator[str]:
    """Yield what differs, in the order of steps."""
    for item in segment.commitments:
        here = again.commitments.get(item.step)
        if here is not None and here.sha256 != item.sha256:
            yield (
                f"the state after step {item.step:,} is another one: the log has "
                f"{item.sha256[:12]}, and training again gives {here.sha256[:12]}"
            )
    for what, then, now in _qualities(job, segment, again):
        if then != now:
            yield f"{what} is {now:.6g}, but the log has {then:.6g}"
    if segment.candidate is not None:
        trained = segment.candidate.trained
        if trained is not None and again.candidate_sha256 != trained.weights_sha256:
            yield _OTHER_WEIGHTS
        return
    if segment.is_end:
        if _weights(job) != _weights(again.trained):
            yield _OTHER_WEIGHTS
        tested, here_tested = job.tested, again.trained.tested
        if tested is not None and here_tested is not None and tested != here_tested:
            yield f"the test quality is {here_tested.quality:.6g}, not {tested.quality:.6g}"
        if _hashes(_predicted(job)) != _hashes(again.predictions):
            yield "the predictions for the ensemble are others than those in the log"


def _qualities(
    job: TrainedJob, segment: Segment, again: Retrained
) -> Iterator[tuple[str, float, float]]:
    """Yield what was evaluated, the quality in the log, and the one found here."""
    if segment.candidate is not None:
        trained = segment.candidate.trained
        if trained is not None and again.evaluations:
            best = max(point.quality for point in again.evaluations.values())
            yield "its best accuracy", trained.accuracy, best
        return
    for timed in job.evaluations:
        found = again.evaluations.get(timed.evaluated.step)
        if found is not None:
            name = f"the quality after step {found.step:,}"
            yield name, timed.evaluated.quality, found.quality


def _weights(job: TrainedJob) -> str | None:
    return job.finished.weights_sha256 if job.finished is not None else None


def _predicted(job: TrainedJob) -> Predicted | None:
    """Return the predictions that a base model stored last; None if it stored none."""
    events = [e for log in job.logs for e in log.events if e.kind == "predictions"]
    return events[-1].payload(Predicted) if events else None


def _hashes(predicted: Predicted | None) -> list[str]:
    return [] if predicted is None else sorted(file.sha256 for file in predicted.files)


Stored = tuple[Path, tuple[KeptFile, ...]]


def _stored(job: TrainedJob) -> Stored | None:
    predicted = _predicted(job)
    return (job.folders[-1], predicted.files) if predicted is not None and job.folders else None


def _written(again: Retrained) -> Stored | None:
    predicted = again.predictions
    return (again.attempt, predicted.files) if predicted is not None else None


def _prediction_distance(first: Stored | None, second: Stored | None) -> float | None:
    """Return the mean difference between two models' predictions, relative to their mean.

    It is infinite if their true labels differ; None if one of them stored none.
    """
    import numpy as np

    from vflops.train.ensemble.predictions import KeptPredictions

    if first is None or second is None:
        return None
    a, b = KeptPredictions.open(*first), KeptPredictions.open(*second)
    try:
        b = b.sharing_arrays(a)
    except FolderError:
        return float("inf")
    left, right = a.rows(0, len(a)), b.rows(0, len(b))
    if left.shape != right.shape:
        return float("inf")
    mean = float(np.abs(left).mean())
    return float(np.abs(left - right).mean()) / mean if mean else 0.0


def _agreement(segment: Segment, compared: int) -> str:
    if segment.first == segment.last:
        return "equal bits of the weights and of every quality"
    parts = [f"{compared} committed state{'s' * (compared != 1)}"] if compared else []
    if segment.is_end:
        parts.append("the trained weights")
    return f"equal bits of {' and '.join(parts)}"


def _end_file(job: TrainedJob, segment: Segment) -> Path | None:
    """Return the recorded state at the end of a part, if it was kept and is the one in the log."""
    kept = [
        item
        for item in segment.commitments
        if isinstance(item, Checkpointed) and item.kept and item.step == segment.last
    ]
    if not kept or segment.candidate is not None or not job.folders:
        return None
    path = _checkpoints(job) / Path(kept[0].file).name
    is_recorded = path.is_file() and file_digest(path).sha256 == kept[0].sha256
    return path if is_recorded else None


def _checkpoints(job: TrainedJob) -> Path:
    return job.folders[0].parent / "checkpoint"


def _distance(job: TrainedJob, segment: Segment, again: Retrained) -> float | None:
    """Return the relative distance of the weights at the end, if the recorded ones were kept."""
    from vflops.train.state_distance import relative_distance

    recorded = _end_file(job, segment)
    return None if recorded is None else relative_distance(recorded, again.end_state)


def _moved(job: TrainedJob, segment: Segment) -> float:
    """Return how far the recorded weights moved in a part; 0 if that is not known."""
    from vflops.train.state_distance import relative_distance

    recorded = _end_file(job, segment)
    if recorded is None or segment.start is None:
        return 0.0
    return relative_distance(recorded, _checkpoints(job) / Path(segment.start.file).name)


def _batch(job: TrainedJob, segment: Segment) -> int:
    if segment.candidate is not None:
        return segment.candidate.begun.batch
    return job.started.batch if job.started is not None else 1


def _speed(timed: TimedSteps | None, batch: int) -> float | None:
    return batch / timed.per_step_s if timed else None
