"""Checks that stages and traffic in the logs of a job agree with its settings.

The attempt that finishes records stages and traffic once. If it is killed between finishing and
recording, they are lost, so they may be missing if another attempt follows. The bubble of a
pipeline is a measurement, so only its range is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from vflops.config.training import TrainSettings
from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.count import count
from vflops.errors import UsageError
from vflops.record.files.document import first_fault
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import (
    Exchanged,
    Finished,
    JobStarted,
    ModelSharing,
    StagesRun,
)
from vflops.record.formats.node import node_records
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import Attempt, TrainedJob
from vflops.results.check.expected_traffic import (
    Bounds,
    Fact,
    Team,
    averaged_bytes,
    exchange_facts,
    shared_bytes,
)
from vflops.workloads.automl.search_events import CandidateBegun
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import ENGINE

_ROUNDING = 1e-9
_OPERATIONS_SHARE = 0.001
"""The share of operations that rounding may lose when they are divided into layers."""

EventFault = tuple[Event, str]


def parallelism_faults(contents: Contents, job: TrainedJob) -> Iterator[EventFault]:
    """Yield events about stages and traffic that contradict the settings of a job."""
    logged = [event for log in job.logs for event in log.events]
    events = [event for event in logged if event.kind in ("stages", "exchange")]
    searches = job.record.worker is not None and job.record.ranks > 1
    expected = searches or _is_recorded(job.record)
    if not events and not expected:
        return
    if expected is False:
        yield events[0], f"a job of this kind does not record {events[0].kind!r} events"
        return
    try:
        train = TrainSettings.model_validate(job.record.settings.get("train", {}))
    except ValidationError as error:
        for event in (*events, *logged)[:1]:
            yield event, f"its train settings are invalid: {first_fault(error)}"
        return
    if searches:
        for attempt, folder in zip_longest(job.attempts, job.folders[: len(job.attempts)]):
            yield from _candidate_faults(train, attempt, folder)
        return
    graph = next((graph for graph in contents.graphs if graph.model == job.record.workload), None)
    ended = False
    for attempt, folder in zip_longest(job.attempts, job.folders[: len(job.attempts)]):
        yield from _attempt_faults(
            train, attempt, folder, graph, ended, last=attempt is job.attempts[-1]
        )
        ended = ended or any(event.kind == "finished" for event in attempt.log.events)


def _is_recorded(record: JobRecord) -> bool | None:
    """Whether the job records traffic: several ranks train with the loop of this package.

    None if the workload is not installed, so that this is not known.
    """
    if record.ranks == 1:
        return False
    try:
        return workload(record.workload).runner == ENGINE
    except UsageError:  # its package is not installed here
        return None


def _attempt_faults(
    train: TrainSettings,
    attempt: Attempt,
    folder: Path | None,
    graph: Graph | None,
    ended: bool,
    *,
    last: bool,
) -> Iterator[EventFault]:
    """Yield the faults of one attempt; ``ended`` tells whether an earlier one finished training."""
    events = attempt.log.events
    stages = [event for event in events if event.kind == "stages"]
    sent = [event for event in events if event.kind == "exchange"]
    end = next((event for event in reversed(events) if event.kind == "finished"), None)
    started = next((event for event in events if event.kind == "job"), None)
    if started is None or (end is None and not ended):
        for event in (*stages, *sent)[:1]:
            yield event, f"{event.kind} recorded before the training finished"
        return
    steps = end.payload(Finished).step - attempt.first_step if end else 0
    team = _team(train, steps, started.payload(JobStarted), folder, graph)
    sharing = get_args(ModelSharing)
    in_copy = [event for event in sent if event.payload(Exchanged).mode in sharing]
    across_copies = [event for event in sent if event not in in_copy]
    per_rank = (
        train.parallel.stages(train.ranks) // team.ranks_per_copy if _cuts_layers(train) else 1
    )
    expectations = (
        ("stages", stages, int(_cuts_layers(train))),
        ("exchange of a copy", in_copy, int(steps > 0 and train.parallel.inner != "data")),
        ("exchange of gradients", across_copies, per_rank if steps > 0 and team.copies > 1 else 0),
    )
    for what, recorded, times in expectations:
        for event in recorded[times:]:
            yield event, f"{what}: recorded {len(recorded)} times, {times} expected"
        if end and last and len(recorded) < times:
            yield end, f"{what}: recorded {len(recorded)} times, {times} expected"
    for event in stages:
        yield from _faults(event, _stage_facts(team, event.payload(StagesRun), graph))
    for event in sent:
        yield from _faults(event, exchange_facts(team, event.payload(Exchanged)))
    for event in in_copy:
        yield from _faults(event, shared_bytes(team, event.payload(Exchanged)))
    if across_copies and len(across_copies) == per_rank:
        exchanges = [event.payload(Exchanged) for event in across_copies]
        yield from _faults(across_copies[0], averaged_bytes(team, exchanges))


def _candidate_faults(
    train: TrainSettings, attempt: Attempt, folder: Path | None
) -> Iterator[EventFault]:
    """Yield the faults of a worker's attempt, which records the traffic of each candidate once.

    A candidate may have been suspended and resumed, so its last step is only an upper bound for
    the steps of this attempt.
    """
    device: JobStarted | None = None
    candidate: CandidateBegun | None = None
    steps: int | None = None
    exchanges: list[Event] = []
    for event in attempt.log.events:
        if event.kind == "job":
            device = event.payload(JobStarted)
        elif event.kind == "candidate":
            candidate, steps, exchanges = event.payload(CandidateBegun), None, []
        elif event.kind == "finished":
            steps = event.payload(Finished).step
        elif event.kind == "stages":
            yield event, "a search recorded stages, but its ranks are only data parallel"
        elif event.kind == "exchange":
            sent = event.payload(Exchanged)
            exchanges.append(event)
            if device is None or candidate is None or steps is None or len(exchanges) > 1:
                yield event, "the exchange does not belong to a finished candidate"
                continue
            team = replace(
                _team(train, sent.steps, device, folder, None), parameters=candidate.parameters
            )
            yield from _faults(event, iter([Fact("steps", sent.steps, Bounds(1, steps))]))
            yield from _faults(event, exchange_facts(team, sent))
            yield from _faults(event, averaged_bytes(team, [sent]))
        elif event.kind == "candidate-trained" and steps and not exchanges:
            yield event, "the traffic of this candidate was not recorded"


def _team(
    train: TrainSettings, steps: int, started: JobStarted, folder: Path | None, graph: Graph | None
) -> Team:
    nodes: Sequence[int] = [node.nodes for node in node_records(folder)] if folder else ()
    return Team(
        train=train,
        device=started.device,
        steps=steps,
        ranks_per_node=train.ranks // max(nodes, default=1),
        parameters=graph.parameter_count if graph else started.parameters or 0,
        graph=graph,
    )


def _cuts_layers(train: TrainSettings) -> bool:
    return train.ranks > 1 and train.parallel.cuts_layers


def _faults(event: Event, facts: Iterator[Fact]) -> Iterator[EventFault]:
    for fact in facts:
        if fact.fault:
            yield event, fact.fault


def _stage_facts(team: Team, run: StagesRun, graph: Graph | None) -> Iterator[Fact]:
    """Yield the facts of stages and of the pipeline's bubble, with their expected values."""
    parallel, parts = team.train.parallel, team.train.accumulate
    stages = parallel.stages(team.train.ranks)
    yield Fact("stages:", len(run.operations), stages, "configured")
    yield Fact("ranks of a copy:", run.ranks, team.ranks_per_copy, "configured")
    yield Fact("micro-batches:", run.micro_batches, parts, "configured")
    yield Fact("schedule", run.schedule, parallel.effective_schedule, "configured")
    bubble = (team.ranks_per_copy - 1) / (
        stages // team.ranks_per_copy * parts + team.ranks_per_copy - 1
    )
    if abs(run.bubble_theory - bubble) > _ROUNDING:
        yield Fact("bubble_theory", run.bubble_theory, bubble)
    if team.device == "cpu" and team.steps > 1:
        if run.bubble is None or not 0 < run.bubble < 1:
            yield Fact("bubble", run.bubble, "a measurement between 0 and 1")
    elif run.bubble is not None:
        yield Fact("bubble", run.bubble, "None, because it cannot be measured")
    elif not run.reason:
        yield Fact("reason for the missing bubble:", run.reason, "a text")
    if min(run.operations) == 0:
        yield Fact("operations", 0, "some in every stage")
    if graph is not None:
        ops = count(graph, EXECUTED).total
        total = (ops.forward + ops.backward) // graph.batch
        bounds = Bounds(total - int(_OPERATIONS_SHARE * total), total)
        yield Fact("operations of all stages:", sum(run.operations), bounds)
