"""How ranks shared a training, as its logs have it, beside what the job was told.

The attempt that came to the end tells each thing once. One that was killed between its end and its
words leaves them out for good: where an attempt follows, they may be missing. How long the ranks of
a pipeline waited is a measurement: only that it could be one is asked.
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
    Fact,
    Span,
    Team,
    averaged_bytes,
    said,
    shared_bytes,
)
from vflops.workloads.automl.search_events import CandidateBegun
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import ENGINE

_ROUNDING = 1e-9
_OPERATIONS_SHARE = 0.001
"""Of all operations that may be lost where a module's are divided by the nodes of its trace."""

Found = tuple[Event, str]


def shared_otherwise(contents: Contents, job: TrainedJob) -> Iterator[Found]:
    """What the logs of a job say of its stages or its exchange that was not told, or cannot be."""
    told = [event for log in job.logs for event in log.events]
    events = [event for event in told if event.kind in ("stages", "exchange")]
    searches = job.record.worker is not None and job.record.ranks > 1
    tells = searches or _tells(job.record)
    if not events and not tells:
        return
    if tells is False:
        yield events[0], f"{events[0].kind} of a job whose ranks do not tell of it"
        return
    try:
        train = TrainSettings.model_validate(job.record.settings.get("train", {}))
    except ValidationError as error:
        for event in (*events, *told)[:1]:
            yield event, f"its settings do not hold train: {first_fault(error)}"
        return
    if searches:
        for attempt, place in zip_longest(job.attempts, job.folders[: len(job.attempts)]):
            yield from _candidates(train, attempt, place)
        return
    graph = next((each for each in contents.graphs if each.model == job.record.workload), None)
    ended = False
    for attempt, place in zip_longest(job.attempts, job.folders[: len(job.attempts)]):
        yield from _attempt(train, attempt, place, graph, ended, last=attempt is job.attempts[-1])
        ended = ended or any(event.kind == "finished" for event in attempt.log.events)


def _tells(record: JobRecord) -> bool | None:
    """Whether several ranks train a model by the loop of this package; None: it is not known."""
    if record.ranks == 1:
        return False
    try:
        return workload(record.workload).runner == ENGINE
    except UsageError:  # of a package that is not installed here
        return None


def _attempt(
    train: TrainSettings,
    attempt: Attempt,
    place: Path | None,
    graph: Graph | None,
    ended: bool,
    *,
    last: bool,
) -> Iterator[Found]:
    """Of one attempt; ``ended``: an earlier one has trained to the end."""
    events = attempt.log.events
    cut = [event for event in events if event.kind == "stages"]
    sent = [event for event in events if event.kind == "exchange"]
    end = next((event for event in reversed(events) if event.kind == "finished"), None)
    begun = next((event for event in events if event.kind == "job"), None)
    if begun is None or (end is None and not ended):
        for event in (*cut, *sent)[:1]:
            yield event, f"{event.kind} before the end of the training"
        return
    steps = end.payload(Finished).step - attempt.first_step if end else 0
    team = _team(train, steps, begun.payload(JobStarted), place, graph)
    sharing = get_args(ModelSharing)
    within = [event for event in sent if event.payload(Exchanged).mode in sharing]
    between = [event for event in sent if event not in within]
    per_rank = train.parallel.stages(train.ranks) // team.sharing if _cuts(train) else 1
    wanted = (
        ("stages", cut, int(_cuts(train))),
        ("exchange of a copy", within, int(steps > 0 and train.parallel.inner != "data")),
        ("exchange of gradients", between, per_rank if steps > 0 and team.copies > 1 else 0),
    )
    for what, found, times in wanted:
        for event in found[times:]:
            yield event, f"{what}: told {len(found)} times, {times} expected"
        if end and last and len(found) < times:
            yield end, f"{what}: told {len(found)} times, {times} expected"
    for event in cut:
        yield from _faults(event, _stages(team, event.payload(StagesRun), graph))
    for event in sent:
        yield from _faults(event, said(team, event.payload(Exchanged)))
    for event in within:
        yield from _faults(event, shared_bytes(team, event.payload(Exchanged)))
    if between and len(between) == per_rank:
        told = [event.payload(Exchanged) for event in between]
        yield from _faults(between[0], averaged_bytes(team, told))


def _candidates(train: TrainSettings, attempt: Attempt, place: Path | None) -> Iterator[Found]:
    """Of a worker's attempt: each candidate that was trained to its end tells once what was sent.

    What one did before it was put aside is not known here, so its steps are at most its last.
    """
    device: JobStarted | None = None
    candidate: CandidateBegun | None = None
    steps: int | None = None
    told: list[Event] = []
    for event in attempt.log.events:
        if event.kind == "job":
            device = event.payload(JobStarted)
        elif event.kind == "candidate":
            candidate, steps, told = event.payload(CandidateBegun), None, []
        elif event.kind == "finished":
            steps = event.payload(Finished).step
        elif event.kind == "stages":
            yield event, "stages of a search, whose ranks share data only"
        elif event.kind == "exchange":
            sent = event.payload(Exchanged)
            told.append(event)
            if device is None or candidate is None or steps is None or len(told) > 1:
                yield event, "exchange that belongs to no candidate that was trained to its end"
                continue
            team = replace(
                _team(train, sent.steps, device, place, None), parameters=candidate.parameters
            )
            yield from _faults(event, iter([Fact("steps", sent.steps, Span(1, steps))]))
            yield from _faults(event, said(team, sent))
            yield from _faults(event, averaged_bytes(team, [sent]))
        elif event.kind == "candidate-trained" and steps and not told:
            yield event, "a candidate whose ranks do not tell what they sent"


def _team(
    train: TrainSettings, steps: int, begun: JobStarted, place: Path | None, graph: Graph | None
) -> Team:
    nodes: Sequence[int] = [each.nodes for each in node_records(place)] if place else ()
    return Team(
        train=train,
        device=begun.device,
        steps=steps,
        local=train.ranks // max(nodes, default=1),
        parameters=graph.parameter_count if graph else begun.parameters or 0,
        graph=graph,
    )


def _cuts(train: TrainSettings) -> bool:
    return train.ranks > 1 and train.parallel.cuts_layers


def _faults(event: Event, facts: Iterator[Fact]) -> Iterator[Found]:
    for fact in facts:
        if fact.fault:
            yield event, fact.fault


def _stages(team: Team, run: StagesRun, graph: Graph | None) -> Iterator[Fact]:
    """How a model was cut, and how long its ranks waited."""
    parallel, parts = team.train.parallel, team.train.accumulate
    stages = parallel.stages(team.train.ranks)
    yield Fact("stages:", len(run.operations), stages, "was told")
    yield Fact("ranks of a copy:", run.ranks, team.sharing, "was told")
    yield Fact("micro-batches:", run.micro_batches, parts, "was told")
    yield Fact("schedule", run.schedule, parallel.running, "was told")
    waits = (team.sharing - 1) / (stages // team.sharing * parts + team.sharing - 1)
    if abs(run.bubble_theory - waits) > _ROUNDING:
        yield Fact("bubble_theory", run.bubble_theory, waits)
    if team.device == "cpu" and team.steps > 1:
        if run.bubble is None or not 0 < run.bubble < 1:
            yield Fact("bubble", run.bubble, "a measurement between 0 and 1")
    elif run.bubble is not None:
        yield Fact("bubble", run.bubble, "none that could be measured")
    elif not run.reason:
        yield Fact("reason why the bubble is not known:", run.reason, "words")
    if min(run.operations) == 0:
        yield Fact("operations", 0, "some in each stage")
    if graph is not None:
        ops = count(graph, EXECUTED).total
        whole = (ops.forward + ops.backward) // graph.batch
        span = Span(whole - int(_OPERATIONS_SHARE * whole), whole)
        yield Fact("operations of all stages:", sum(run.operations), span)
