"""Rules for the pace of a training: its compilation, its evaluations and its progress events.

Time in start-up, compilation and evaluation does not count as work, so a training looks faster if
slow steps are recorded as one of them. The limits follow from the training loop: it compiles in its
first steps and at its first evaluation, it evaluates with a forward pass, and it reports every
second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from vflops.counting.conventions import convention
from vflops.counting.count import count as counted_by
from vflops.metrics.summation import sum_in_order
from vflops.record.formats.job_events import Committed, Evaluated, JobStarted, ProgressPoint
from vflops.record.log.events import Event
from vflops.record.readout.commitment_lineage import COMMITMENTS
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_job import PROGRESS_EVENTS, Attempt, TrainedJob
from vflops.results.check.rule import Outcome
from vflops.results.check.upper_bounds import NOISE, highest_ceiling
from vflops.units import count, integer, percent, quantity, seconds

WARM_STEPS = 4
"""The most steps of an attempt that include compilation: three, then the recording of a graph."""
MAX_COMPILING_S = 3600.0
"""The longest compilation of an attempt. The detector, the slowest model, takes minutes."""
AHEAD_STEPS = 16
"""Steps beyond those that fit into the time of an interval with compilation: the host submits up to
four steps before the device has computed them, and the first ones are uneven."""
FASTER = 2.0
"""How much faster than in all other intervals the steps of such an interval may be."""
EVALUATION_FACTOR = 3.0
"""The longest time to evaluate a sample, relative to training on one, which also needs a backward
pass of twice the operations. Honest runs took 0.13 to 0.52 times as long."""
EVALUATION_START_S, EVALUATION_EACH_S = 30.0, 1.0
"""Time for an attempt's first reading of the validation data, and for each evaluation."""
MAX_SILENCE_S, SILENT_STEPS = 60.0, 5.0
"""The longest time without a progress event: seconds, plus steps of mean length. One is written
after the first step that ends more than a second after the last event."""
MAX_SILENT_SHARE = 0.1
"""The share of the working time that may lie in longer silences, as when a machine stalls."""

_ROUNDED_S = 1e-5
"""The rounding of phases, of which two are added."""
_NONE = Outcome("not applicable", "nothing was trained in this run")
_WORK = ("data", "training")
_COMMAND = "command"
"""The reason with which a user's script ends; its reports come when the script writes them."""


class _Reached(NamedTuple):
    """When a step was made, in seconds of work."""

    step: int
    work_s: float
    event: Event


@dataclass(frozen=True)
class _Interval:
    """The time between two progress events of an attempt, or before the first one."""

    event: Event
    """The event at its end."""
    start: ProgressPoint | None
    end: ProgressPoint

    def spent_s(self, *phases: str) -> float:
        """Return the time in some phases."""
        earlier = self.start.phases if self.start else {}
        return sum_in_order(
            self.end.phases.get(name, 0.0) - earlier.get(name, 0.0) for name in phases
        )

    @property
    def work_s(self) -> float:
        """Time for reading data and training."""
        return self.spent_s(*_WORK)


@dataclass(frozen=True)
class _Attempt:
    """An attempt of a job that trains by the loop of vflops, with what it started as."""

    job: TrainedJob
    attempt: Attempt
    started: JobStarted
    intervals: tuple[_Interval, ...]

    def steps(self, interval: _Interval) -> int:
        """Return the steps of an interval; a search starts again at 0 with each candidate."""
        before = interval.start.step if interval.start else self.attempt.first_step
        return interval.end.step - (before if interval.end.step >= before else 0)

    def where(self, text: str) -> str:
        """Return a text with the number of the job."""
        return f"job {self.job.record.job}: {text}"


def _attempts(jobs: Sequence[TrainedJob]) -> Iterator[_Attempt]:
    for job in jobs:
        if job.finished is not None and job.finished.reason == _COMMAND:
            continue
        for attempt in job.attempts:
            events = [event for event in attempt.log.events if event.kind in PROGRESS_EVENTS]
            starts = [event for event in attempt.log.events if event.kind == "job"]
            if not starts or not events:
                continue
            points = [None, *attempt.points]
            intervals = tuple(
                _Interval(event, start, end)
                for event, (start, end) in zip(events, pairwise(points), strict=True)
                if end is not None
            )
            yield _Attempt(job, attempt, starts[0].payload(JobStarted), intervals)


def check_compilation(contents: Contents) -> Outcome:
    """Fail if an attempt started up or compiled later or longer than the training loop can."""
    compiling_s, attempts = 0.0, 0
    for attempt in _attempts(contents.training_jobs):
        fault = next(_compilation_faults(attempt), None)
        if fault:
            return Outcome("fail", attempt.where(fault[1]), fault[0].source)
        compiling_s += attempt.attempt.phases.get("compilation", 0.0)
        attempts += 1
    if not attempts:
        return _NONE
    subject = f"{seconds(compiling_s)} in {count(attempts, 'attempt')}"
    return Outcome("pass", f"{subject}, only in first steps and first evaluations")


def _compilation_faults(attempt: _Attempt) -> Iterator[tuple[Event, str]]:
    first, batch = attempt.attempt.first_step, attempt.started.batch
    can_compile = attempt.started.compiled or attempt.started.device != "cpu"
    rate = _highest_rate(attempt)
    evaluations = 0
    for interval in attempt.intervals:
        event, end = interval.event, interval.end
        grown_s = interval.spent_s("compilation")
        started_at = interval.start.step if interval.start else first
        most = min(end.step - first, WARM_STEPS) * batch
        is_evaluation = event.kind == "evaluation"
        is_first_evaluation = is_evaluation and not evaluations
        evaluations += is_evaluation
        # A signal may end an attempt in its first evaluation.
        is_abandoned = interval is attempt.intervals[-1] and not evaluations
        if interval.start is not None and interval.spent_s("start-up") > 0:
            yield (
                event,
                f"{seconds(interval.spent_s('start-up'))} in start-up after its first event",
            )
        if end.phases.get("compilation", 0.0) > MAX_COMPILING_S:
            spent = seconds(end.phases["compilation"])
            yield event, f"{spent} in compilation; at most {seconds(MAX_COMPILING_S)} is possible"
        if end.samples_compiling > most:
            claimed = f"{count(end.samples_compiling, 'sample')} while it compiled"
            yield event, f"{claimed}; the first {WARM_STEPS} steps have {integer(most)}"
        if grown_s > 0 and not can_compile:
            yield event, f"{seconds(grown_s)} in compilation, but nothing was compiled"
        if grown_s <= 0:
            continue
        if started_at - first >= WARM_STEPS and not is_first_evaluation and not is_abandoned:
            late = f"{seconds(grown_s)} in compilation after step {started_at}"
            yield event, f"{late}: only first steps and the first evaluation compile"
        if rate is None:
            continue
        trained = end.step - started_at - end.samples_compiling // batch
        fit = FASTER * rate * interval.work_s + AHEAD_STEPS
        if trained > fit:
            steps = f"{count(trained, 'step')} in {seconds(interval.work_s)} beside compilation"
            yield event, f"{steps}, but the fastest other steps took {seconds(1 / rate)} each"


def _highest_rate(attempt: _Attempt) -> float | None:
    """Return the most steps per second in an interval without compilation; None without one."""
    rates = [
        attempt.steps(interval) / interval.work_s
        for interval in attempt.intervals
        if interval.spent_s("compilation") <= 0 and interval.work_s > 0 and attempt.steps(interval)
    ]
    return max(rates, default=None)


def check_evaluation_times(contents: Contents) -> Outcome:
    """Fail if evaluating took far longer than training on as many samples, or was impossibly fast.

    Training time cannot be recorded as evaluation without making evaluation slower than training.
    """
    evaluations, slowest = 0, 0.0
    for attempt in _attempts(contents.training_jobs):
        taken = [interval for interval in attempt.intervals if isinstance(interval.end, Evaluated)]
        own = attempt.attempt
        trained = own.samples - own.first_sample - own.samples_compiling
        work_s = sum_in_order(own.phases.get(name, 0.0) for name in _WORK)
        evaluated_s = own.phases.get("evaluation", 0.0)
        samples = sum(
            interval.end.evaluated for interval in taken if isinstance(interval.end, Evaluated)
        )
        if not taken or trained <= 0 or not samples:
            continue
        as_training_s = work_s / trained * samples
        allowed_s = EVALUATION_START_S + EVALUATION_EACH_S * len(taken)
        most_s = allowed_s + EVALUATION_FACTOR * _stages(attempt) * as_training_s
        where = taken[-1].event.source
        if evaluated_s > most_s:
            spent = f"{count(len(taken), 'evaluation')} of {count(samples, 'sample')} in all"
            took = f"took {seconds(evaluated_s)}, but training on as many {seconds(as_training_s)}"
            limit = f"at most {seconds(most_s)} can be believed"
            return Outcome("fail", attempt.where(f"{spent} {took}: {limit}"), where)
        fault = _impossible_speed(contents, attempt, samples, evaluated_s)
        if fault:
            return Outcome("fail", attempt.where(fault), where)
        evaluations += len(taken)
        slowest = max(slowest, evaluated_s / as_training_s if as_training_s else 0.0)
    if not evaluations:
        return Outcome("not applicable", "no attempt both trained and evaluated")
    speed = f"at most {slowest:.2g} times as long as training on as many samples"
    return Outcome("pass", f"{count(evaluations, 'evaluation')}, {speed}")


def _stages(attempt: _Attempt) -> int:
    """Return how many ranks may take turns in an evaluation, which has one batch in flight."""
    parallel = attempt.job.record.settings.get("train", {}).get("parallel", {})
    shares_layers = parallel.get("mode", "data") in ("model", "pipeline", "mixed")
    return attempt.started.ranks if shares_layers else 1


def _impossible_speed(
    contents: Contents, attempt: _Attempt, samples: int, evaluated_s: float
) -> str | None:
    """Return how an attempt evaluated faster than its ceiling allows; None if it did not."""
    job = attempt.job
    graph = next((graph for graph in contents.graphs if graph.model == job.record.workload), None)
    bounding = job_ceilings(contents, job)
    if graph is None or job.record.graph_declared or job.record.declared or bounding.reason:
        return None
    ceiling = highest_ceiling(bounding.measurements, job, graph)
    if ceiling is None:
        return None
    forward = counted_by(graph, convention("executed")).total.forward // graph.batch
    executed = forward * samples / evaluated_s if evaluated_s > 0 else float("inf")
    if not forward or executed <= ceiling * (1 + NOISE):
        return None
    speed = f"its evaluations executed {quantity(executed, 'FLOPS')}"
    return f"{speed}, but the measured ceiling is {quantity(ceiling, 'FLOPS')}"


def check_state_times(contents: Contents) -> Outcome:
    """Fail if the times of committed states do not fit those of progress.

    An audit compares the former with its own, and the score follows from the latter.
    """
    states = 0
    for job in (*contents.training_jobs, *contents.workers):
        for attempt in job.attempts:
            for points in _work_by_step(attempt):
                states += sum(point.event.kind in COMMITMENTS for point in points)
                for before, after in pairwise(points):
                    if before.step < after.step and before.work_s > after.work_s + _ROUNDED_S:
                        text = f"job {job.record.job}: step {after.step:,} was made after "
                        text += f"{seconds(after.work_s)} of work, but step {before.step:,} after "
                        return Outcome("fail", text + seconds(before.work_s), after.event.source)
    if not states:
        return Outcome("not applicable", "no committed state has a time")
    return Outcome("pass", f"{count(states, 'committed state')} in the order of their times")


def _work_by_step(attempt: Attempt) -> Iterator[list[_Reached]]:
    """Yield when the steps of a training were made, of each candidate of a search by itself."""
    types: dict[str, type[Committed | ProgressPoint]] = {**COMMITMENTS, **PROGRESS_EVENTS}
    points: list[_Reached] = []
    for event in attempt.log.events:
        if event.kind == "candidate":
            yield sorted(points, key=lambda point: (point.step, point.work_s))
            points = []
        elif event.kind in types:
            item = event.payload(types[event.kind])
            if item.phases:
                work_s = sum_in_order(item.phases.get(name, 0.0) for name in _WORK)
                points.append(_Reached(item.step, work_s, event))
    yield sorted(points, key=lambda point: (point.step, point.work_s))


def check_progress(contents: Contents) -> Outcome:
    """Fail if an attempt has far fewer progress events than the training loop writes."""
    points, longest_s = 0, 0.0
    for attempt in _attempts((*contents.training_jobs, *contents.workers)):
        work_s = sum_in_order(interval.work_s for interval in attempt.intervals)
        steps = sum(attempt.steps(interval) for interval in attempt.intervals)
        if not steps:
            continue
        most_s = MAX_SILENCE_S + SILENT_STEPS * work_s / steps
        silent = [interval for interval in attempt.intervals if interval.work_s > most_s]
        silent_s = sum_in_order(interval.work_s for interval in silent)
        if silent_s > MAX_SILENT_SHARE * work_s:
            share = f"{seconds(silent_s)} of {seconds(work_s)}"
            evidence = f"no progress event for {share} of training; one is written every second"
            allowed = f"at most {percent(MAX_SILENT_SHARE)} may lie in such silences"
            return Outcome(
                "fail", attempt.where(f"{evidence}, and {allowed}"), silent[0].event.source
            )
        points += len(attempt.intervals)
        longest_s = max(longest_s, *(interval.work_s for interval in attempt.intervals))
    if not points:
        return _NONE
    events = count(points, "progress event")
    return Outcome("pass", f"{events}, at most {seconds(longest_s)} of training between two")
