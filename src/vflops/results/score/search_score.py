"""The score of a search: AIPerf's operations per second, plain and weighted by the error."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import ceil

from vflops.metrics import (
    flops,
    mean,
    regulated_score_so_far,
    relative_range,
    vflops_per_watt,
)
from vflops.metrics.summation import sum_in_order
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.aiperf_conformance import verdict
from vflops.results.score.node_power import node_scores, total_power, utilisation
from vflops.results.score.score_file import CandidateScore, NodeScore, SearchMoment, SearchScore
from vflops.results.score.search_workers import (
    ACTIVITIES,
    WorkerTimeline,
    lost_workers,
    search_history,
    searches,
    time_by_activity,
)
from vflops.results.task.closed_tasks import tasks
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.search.learning_curve import predict
from vflops.workloads.automl.search_events import RULES
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.settings import AutomlSettings

MOMENTS = 100
"""The number of moments, evenly spaced over a search."""
_ROUNDING_S = 1e-6
"""The resolution of Unix time in floating point."""
_CONVERGED_SHARE = 0.2
_CONVERGED_RANGE = 0.02
"""A search has converged if its score varies by less than this range in the last share of time."""


def search_scores(contents: Contents) -> tuple[SearchScore, ...]:
    """Return one score per search, in the order of the searches."""
    return tuple(_score(contents, members) for members in searches(contents))


def _score(contents: Contents, members: Sequence[TrainedJob]) -> SearchScore:
    record = members[0].record
    settings = record.settings_as(AutomlSettings)
    search, timeline = search_history(members), WorkerTimeline(members)
    moments = _moments(search, settings.search.score_from_round)
    counted = [moment for moment in moments if moment.counts]
    trained = [history for history in search.candidates if history.trained is not None]
    winner = _winner(search.candidates)
    start_s, end_s = search.span_s or (0.0, 0.0)
    duration_s = end_s - start_s
    nodes = _nodes(contents, timeline, (start_s, end_s))
    power = total_power(nodes, duration_s)
    replay = settings.search.ledger is not None
    # The score of a replay, which is fixed work, is its last moment; that of a search its best one.
    best = counted[-1:] if replay else counted
    ops_per_s = max((moment.ops_per_s for moment in best), default=None)
    error = moments[-1].error if moments else None
    times_s = [time_by_activity(member) for member in members]
    phases = {name: sum_in_order(by_name[name] for by_name in times_s) for name in ACTIVITIES}
    between_s = phases["idle"] + phases["building"]
    lost = lost_workers(contents, members)
    return SearchScore(
        workload=record.workload,
        repeat=record.repeat,
        seed=record.seed,
        workers=settings.search.workers,
        ranks=record.ranks,
        rules=RULES,
        ordered=settings.ordered,
        searcher=settings.search.searcher,
        inherited=settings.search.inherit,
        replay=replay,
        duration_s=duration_s,
        ops=sum(history.ops for history in search.candidates),
        ops_per_s=ops_per_s,
        regulated=_largest_regulated(best),
        last_ops_per_s=moments[-1].ops_per_s if moments else None,
        last_regulated=moments[-1].regulated if moments else None,
        converged=_converged(moments, counted),
        error=error,
        error_limit=settings.search.error,
        winner=winner.begun.candidate if winner else None,
        candidates=tuple(_candidate(history, settings) for history in search.candidates),
        moments=tuple(moments),
        idle_share=between_s / (duration_s * len(members)) if duration_s else None,
        waited_s=sum_in_order(history.begun.waited_s for history in search.candidates),
        built_s=sum_in_order(history.begun.built_s for history in search.candidates),
        phases=phases,
        prediction_error=_prediction_error(trained),
        unbuilt=search.unbuilt,
        lost_workers=lost,
        clock_faults=tuple(search.clock_faults),
        clock_corrected_s=timeline.corrected_s,
        clock_unknown=timeline.jobs_without_clock,
        nodes=nodes,
        power=power,
        ops_per_watt=None
        if ops_per_s is None
        else vflops_per_watt(vflops=ops_per_s, power_w=power.power_w),
        utilisation=utilisation(nodes),
        aiperf=verdict(
            settings,
            members,
            search.candidates,
            rules=RULES,
            durations_s=_durations(search, members, {worker.job for worker in lost}),
            error=error,
            ended=contents.state.complete,
        ),
        task=contents.once(tasks)[record.job].kind,
    )


def _winner(histories: Sequence[CandidateHistory]) -> CandidateHistory | None:
    """Return the candidate with the best evaluation, even if the end of the search cut it off."""
    evaluated = [history for history in histories if history.curve]
    return max(
        evaluated,
        key=lambda history: (
            max(quality for _, quality in history.curve),
            history.state == "trained",
        ),
        default=None,
    )


def _durations(
    search: SearchHistory, members: Sequence[TrainedJob], lost: Collection[int]
) -> dict[int, float]:
    """Return the duration of each worker that was not lost, by worker number from 1."""
    spans = zip(members, search.spans_s, strict=True)
    return {
        number: span_s[1] - span_s[0] if span_s else 0.0
        for number, (member, span_s) in enumerate(spans, start=1)
        if member.record.job not in lost
    }


def _nodes(
    contents: Contents, timeline: WorkerTimeline, window_s: tuple[float, float]
) -> tuple[NodeScore, ...]:
    """Return the scores of the nodes; empty before the first step."""
    return node_scores(contents.folder, timeline, window_s) if window_s[1] > window_s[0] else ()


@dataclass
class _Step:
    """What candidates added between two moments."""

    ops: int = 0
    ended: int = 0
    accuracies: list[float] = field(default_factory=list)


def _moments(search: SearchHistory, first_round: int) -> list[SearchMoment]:
    """Return the score at evenly spaced times. Only moments after the warm-up count."""
    if search.span_s is None or search.span_s[1] <= search.span_s[0]:
        return []
    start_s, end_s = search.span_s
    warm_up_end_s = max(
        (history.last_s for history in search.candidates if history.turn.round + 1 < first_round),
        default=start_s,
    )
    step_s = (end_s - start_s) / MOMENTS
    moments: list[SearchMoment] = []
    ops, ended, best = 0, 0, list[float]()
    for number, step in enumerate(_steps(search, start_s, step_s), start=1):
        time_s = number * step_s
        ops, ended = ops + step.ops, ended + step.ended
        best = [max(best + step.accuracies)] if best or step.accuracies else []
        error = 1 - best[0] if best else None
        ops_per_s = flops(ops=ops, time_s=time_s)
        moments.append(
            SearchMoment(
                time_s=time_s,
                ops=ops,
                ops_per_s=ops_per_s,
                error=error,
                regulated=regulated_score_so_far(flops=ops_per_s, error=error),
                trained=ended,
                counts=ops > 0 and start_s + time_s >= warm_up_end_s - _ROUNDING_S,
            )
        )
    return moments


def _steps(search: SearchHistory, start_s: float, step_s: float) -> list[_Step]:
    """Return what each time step added. Events at the end of a step belong to it."""
    steps = [_Step() for _ in range(MOMENTS)]

    def step(utc_s: float) -> _Step:
        number = ceil((utc_s - start_s - _ROUNDING_S) / step_s) - 1
        return steps[min(max(number, 0), MOMENTS - 1)]

    for history in search.candidates:
        before = 0
        for point in history.points:
            current = step(point.utc_s)
            current.ops += point.ops - before
            before = point.ops
            if point.quality is not None:
                current.accuracies.append(point.quality)
        if history.ended_s is not None and history.state != "cut":
            step(history.ended_s).ended += 1
    return steps


def _largest_regulated(counted: Sequence[SearchMoment]) -> float | None:
    """Return the largest regulated score; None if an error is 0, which makes it infinite."""
    if any(moment.error is not None and moment.error <= 0 for moment in counted):
        return None
    scores = [moment.regulated for moment in counted if moment.regulated is not None]
    return max(scores, default=None)


def _converged(moments: Sequence[SearchMoment], counted: Sequence[SearchMoment]) -> bool | None:
    """Whether the score was stable at the end; None if too few moments count."""
    last = moments[-round(MOMENTS * _CONVERGED_SHARE) :]
    if not last or len(counted) < len(last):
        return None
    return relative_range([moment.ops_per_s for moment in last]) < _CONVERGED_RANGE


def _prediction_error(histories: Sequence[CandidateHistory]) -> float | None:
    """Return the mean error of predicted accuracies.

    The accuracy in each candidate's last epoch is predicted from the first half of its epochs.
    """
    errors = []
    for history in histories:
        curve = sorted({max(round(epoch), 1): value for epoch, value in history.curve}.items())
        half = curve[: len(curve) // 2]
        if half:
            epoch, truth = curve[-1]
            errors.append(abs(predict(half, epoch).error(truth)))
    return mean(errors) if errors else None


def _candidate(history: CandidateHistory, settings: AutomlSettings) -> CandidateScore:
    trained = history.trained
    return CandidateScore(
        candidate=history.begun.candidate,
        worker=history.worker,
        parent=history.begun.parent,
        digest=history.begun.digest,
        state=history.state,
        accuracy=trained.accuracy if trained else max((q for _, q in history.curve), default=None),
        predicted=trained.predicted if trained else None,
        epochs=max((point.epoch for point in history.points), default=0.0),
        batch=history.begun.batch,
        kernel=trained.hyper.kernel if trained else None,
        tuned=history.turn.round + 1 >= settings.search.tune_from,
        parameters=history.begun.parameters,
        ops_per_sample=history.begun.ops_total,
        ops=history.ops,
        samples=history.samples,
        evaluated=history.evaluated,
        batch_ops=history.begun.batch_ops,
        inherited=history.begun.inherited,
        waited_s=history.begun.waited_s,
        message=history.message,
    )
