"""The rule that nothing was computed faster than the measured ceilings of the devices used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from vflops.counting.conventions import convention
from vflops.counting.count import count as counted_by
from vflops.metrics import flops
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.graph import Graph
from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import (
    candidate_event_location,
    event_location,
    measurement_location,
)
from vflops.results.check.rule import Outcome
from vflops.results.check.search_rules import Searched, all_searches
from vflops.results.roofline.analysis import COMPUTE, bounding_benchmarks
from vflops.units import percent, quantity
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.candidate_history import END_EVENTS, CandidateHistory

NOISE = 0.05
"""The share by which training may exceed a ceiling, because a ceiling is a median."""
_RULES = "executed"
"""Analytic counts may exceed any ceiling."""
_COURSE = (*PROGRESS_EVENTS, *END_EVENTS)


@dataclass(frozen=True)
class _Speed:
    """What the devices of a job executed per second in some of its time."""

    what: str
    flops: float
    job: TrainedJob
    where: Callable[[], str]
    """Returns the location of the evidence; to find it takes longer than to judge."""
    benchmarks: Sequence[str] = COMPUTE
    """The benchmarks that bound it."""


def check_upper_bounds(contents: Contents) -> Outcome:
    """Fail if a job executed more operations per second than the ceiling of its devices."""
    if not contents.training_jobs and not contents.workers:
        return Outcome("not applicable", "nothing was trained in this run")
    nearest, doubts = 0.0, set[str]()
    for speed in (*_training_speeds(contents), *_search_speeds(contents)):
        bounding = job_ceilings(contents, speed.job)
        if bounding.reason:
            return Outcome("cannot tell", f"{speed.what}: {bounding.reason}", speed.where())
        bound = _bound(bounding.measurements, speed)
        if bound is None:
            continue
        item, ceiling = bound
        if speed.flops > ceiling * (1 + NOISE):
            evidence = (
                f"{speed.what} executed {quantity(speed.flops, 'FLOPS')}, "
                f"but the measured ceiling is {quantity(ceiling, 'FLOPS')}"
            )
            if item.caveat:
                doubt = f"{evidence}, which is in doubt: {item.caveat}"
                return Outcome("cannot tell", doubt, measurement_location(contents, item))
            return Outcome("fail", evidence, speed.where())
        nearest = max(nearest, speed.flops / ceiling)
        if item.caveat:
            doubts.add(
                f"; the ceiling {item.benchmark} {item.precision} is in doubt: {item.caveat}"
            )
    if not nearest:
        return Outcome("not applicable", "no job has both counted operations and a ceiling")
    evidence = f"at most {percent(nearest)} of the measured ceiling was reached"
    return Outcome("pass", evidence + "".join(sorted(doubts)))


def _bound(measurements: Sequence[Measurement], speed: _Speed) -> tuple[Measurement, float] | None:
    """Return the ceiling that bounds a job, and its value for all devices of the job.

    Ceilings without a caveat are preferred. A caveat means that the ceiling may be too low, for
    example because the machine was busy. A job below such a ceiling is also below the true one; a
    job above it proves nothing.
    """
    known = _ceilings(measurements, speed.job, speed.benchmarks)
    sure = [bound for bound in known if bound[0].caveat is None]
    enough = [bound for bound in sure if speed.flops <= bound[1] * (1 + NOISE)]
    return max(enough or known, key=lambda bound: (bound[1], not bound[0].caveat), default=None)


def _ceilings(
    measurements: Sequence[Measurement], job: TrainedJob, benchmarks: Sequence[str]
) -> list[tuple[Measurement, float]]:
    """Return the ceilings in the precision of a job, and their values for all of its devices."""
    precision = job.started.ceiling_precision if job.started else None
    return [
        (item, item.value * job.devices)
        for item in measurements
        if item.value is not None and item.benchmark in benchmarks and item.precision == precision
    ]


def highest_ceiling(
    measurements: Sequence[Measurement], job: TrainedJob, graph: Graph
) -> float | None:
    """Return the highest ceiling of a model on all devices of a job; None if there is none.

    A ceiling with a caveat is in doubt: it may be too low.
    """
    known = _ceilings(measurements, job, bounding_benchmarks(graph))
    is_doubtful = not known or any(item.caveat for item, _ in known)
    return None if is_doubtful else max(value for _, value in known)


def _training_speeds(contents: Contents) -> Iterator[_Speed]:
    """Yield the speed of each training whose operations were counted, not declared."""
    graphs = {graph.model: graph for graph in contents.graphs}
    for job in contents.training_jobs:
        declared = job.record.declared is not None or job.record.graph_declared
        graph = graphs.get(job.record.workload)
        if declared or graph is None or job.work_s <= 0:
            continue
        ops = counted_by(graph, convention(_RULES)).total.total // graph.batch
        yield _Speed(
            f"job {job.record.job}",
            flops(ops=ops * job.samples_timed, time_s=job.work_s),
            job,
            partial(event_location, job, *PROGRESS_EVENTS),
            bounding_benchmarks(graph),
        )


def _search_speeds(contents: Contents) -> Iterator[_Speed]:
    """Yield the speed of each candidate, then of each worker over all of its candidates.

    The time includes what else happened in it, such as compilation, so the true speed is higher.
    No search is faster than the sum of its workers.
    """
    counted: dict[tuple[str, int], BatchOps] = {}
    for searched in contents.once(all_searches) if contents.workers else ():
        histories = searched.history.candidates
        ops = [_executed_ops(searched, history, counted) for history in histories]
        for history, done in zip(histories, ops, strict=True):
            yield _Speed(
                f"candidate {history.begun.candidate}",
                _rate(done, history.last_s - history.began_s),
                searched.members[history.worker],
                partial(candidate_event_location, searched.members, history, _COURSE, {}),
            )
        for worker, (job, span_s) in enumerate(
            zip(searched.members, searched.history.spans_s, strict=True)
        ):
            own = (
                done
                for history, done in zip(histories, ops, strict=True)
                if history.worker == worker
            )
            start_s, end_s = span_s or (0.0, 0.0)
            yield _Speed(
                f"worker {worker} (job {job.record.job})",
                _rate(sum(own), end_s - start_s),
                job,
                partial(event_location, job, *PROGRESS_EVENTS),
            )


def _rate(ops: int, time_s: float) -> float:
    """Return operations per second; infinite if there were operations but no time."""
    if not ops:
        return 0.0
    return flops(ops=ops, time_s=time_s) if time_s > 0 else inf


def _executed_ops(
    searched: Searched, history: CandidateHistory, counted: dict[tuple[str, int], BatchOps]
) -> int:
    """Return what training and evaluating a candidate executed, by its architecture."""
    network, batch = searched.proposal(history).architecture, searched.rank_batch(history)
    key = (network.digest, batch)
    if key not in counted:
        ops = architecture_cost.ops(network, _RULES, batch)
        counted[key] = BatchOps(batch=batch, forward=ops.forward, total=ops.total)
    exact = counted[key]
    return exact.of_training(history.samples) + exact.of_evaluation(history.evaluated)
