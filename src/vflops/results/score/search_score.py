"""The score of a search: AIPerf's operations per second, plain and weighted by the error."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vflops.metrics import mean, regulated_score_so_far, vflops_per_watt
from vflops.metrics.summation import sum_in_order
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.aiperf_conformance import MAX_PAUSE_S, verdict
from vflops.results.score.aiperf_table import SearchSetup
from vflops.results.score.node_power import node_scores, total_power, utilisation
from vflops.results.score.score_file import CandidateScore, NodeScore, SearchMoment, SearchScore
from vflops.results.score.search_workers import (
    ACTIVITIES,
    WorkerTimeline,
    lost_workers,
    search_ending,
    search_history,
    searches,
    time_by_activity,
)
from vflops.results.task.closed_tasks import tasks
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.search.learning_curve import predict
from vflops.workloads.automl.search_events import RULES
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.search_moments import (
    Moment,
    has_converged,
    search_moments,
    variation,
)
from vflops.workloads.automl.settings import AutomlSettings


def search_scores(contents: Contents) -> tuple[SearchScore, ...]:
    """Return one score per search, in the order of the searches."""
    return tuple(_score(contents, members) for members in searches(contents))


def _score(contents: Contents, members: Sequence[TrainedJob]) -> SearchScore:
    record = members[0].record
    settings = record.settings_as(AutomlSettings)
    search, timeline = search_history(members), WorkerTimeline(members)
    over_time = search_moments(search, settings.search.score_from_round)
    moments = [_score_at(moment) for moment in over_time]
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
    converged, ending = has_converged(over_time), search_ending(contents, members)
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
        converged=converged,
        variation=variation(over_time),
        ending=ending,
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
            SearchSetup(settings, record.data, RULES),
            members,
            search.candidates,
            durations_s=_durations(search, members, {worker.job for worker in lost}),
            was_paused=any(pause_s > MAX_PAUSE_S for pause_s in search.pauses_s),
            error=error,
            ending=ending,
            converged=converged,
            variation=variation(over_time),
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
    """Return the duration of each worker that was not lost, by worker number from 1.

    Long interruptions, in which it did not search, are not part of it.
    """
    spans = zip(members, search.spans_s, search.pauses_s, strict=True)
    return {
        number: span_s[1] - span_s[0] - max(pause_s - MAX_PAUSE_S, 0.0) if span_s else 0.0
        for number, (member, span_s, pause_s) in enumerate(spans, start=1)
        if member.record.job not in lost
    }


def _nodes(
    contents: Contents, timeline: WorkerTimeline, window_s: tuple[float, float]
) -> tuple[NodeScore, ...]:
    """Return the scores of the nodes; empty before the first step."""
    return node_scores(contents.folder, timeline, window_s) if window_s[1] > window_s[0] else ()


def _score_at(moment: Moment) -> SearchMoment:
    error = None if moment.accuracy is None else 1 - moment.accuracy
    return SearchMoment(
        time_s=moment.time_s,
        ops=moment.ops,
        ops_per_s=moment.ops_per_s,
        error=error,
        regulated=regulated_score_so_far(flops=moment.ops_per_s, error=error),
        trained=moment.ended,
        counts=moment.counts,
    )


def _largest_regulated(counted: Sequence[SearchMoment]) -> float | None:
    """Return the largest regulated score; None if an error is 0, which makes it infinite."""
    if any(moment.error is not None and moment.error <= 0 for moment in counted):
        return None
    scores = [moment.regulated for moment in counted if moment.regulated is not None]
    return max(scores, default=None)


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
