"""The rule against rehearsals: every rank had a device to itself, and the run says so.

Each rank records its accelerator or the cores that it may use. Ranks that ran at the same time must
not share an accelerator, and on CPUs there must be a core for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from vflops.errors import VflopsError
from vflops.record.formats.job_events import JobStarted, RankPlace
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import RUN_LOG
from vflops.results.check.rule import Outcome
from vflops.units import count
from vflops.workloads.contract.profile_batch import batch_fault
from vflops.workloads.contract.registry import workload

RULE = "rehearsal"

_CPU = "cpu"
_CLOCK_S = 60.0
"""By how much the clocks of two hosts may differ, as in the rule ``clocks``."""


@dataclass(frozen=True)
class _Attempt:
    """The ranks of an attempt at a job, and when they ran."""

    job: int
    event: Event
    last: Event
    clock: str | None
    started: JobStarted

    def span_s(self, *, by_utc: bool) -> tuple[float, float]:
        """Return when its ranks met and when it ended; by UTC, when it ran for certain."""
        if by_utc:
            return self.event.utc_s + _CLOCK_S, self.last.utc_s - _CLOCK_S
        return self.event.time_s, self.last.time_s

    @property
    def ranks(self) -> Iterator[_Rank]:
        """Its ranks in order."""
        for number, place in enumerate(self.started.places):
            yield _Rank(self.job, number, place, self.event.source)


class _Rank(NamedTuple):
    job: int
    rank: int
    place: RankPlace
    source: str

    def __str__(self) -> str:
        return f"rank {self.rank} of job {self.job}"


def check_rehearsal(contents: Contents) -> Outcome:
    """Fail if the run is a rehearsal, or if ranks shared a device although it is none."""
    attempts = list(_attempts(contents))
    is_rehearsal = contents.folder.record.settings.launch.rehearse
    shared = next(_shared(attempts), None)
    if is_rehearsal:
        evidence = "a rehearsal of a layout: " + (shared[0] if shared else "no device was shared")
        evidence = "; ".join([evidence, *real_run_faults(contents)])
        return Outcome("fail", evidence, shared[1] if shared else RUN_LOG)
    if shared:
        evidence = f"{shared[0]}, although the run does not say that it is a rehearsal"
        return Outcome("fail", evidence, shared[1])
    for attempt in attempts:
        if attempt.started.rehearsal:
            evidence = f"the ranks of job {attempt.job} say that they rehearse, the run does not"
            return Outcome("fail", evidence, attempt.event.source)
    placed = [attempt for attempt in attempts if attempt.started.places]
    if not placed:
        return Outcome("not applicable", "no log records the devices of ranks")
    for attempt in attempts:
        recorded, ranks = len(attempt.started.places), attempt.started.ranks
        if recorded != ranks and attempt.started.torch is not None:  # it is no command
            evidence = f"job {attempt.job} records the devices of {recorded} of its {ranks} ranks"
            return Outcome("fail", evidence, attempt.event.source)
    ranks = sum(len(attempt.started.places) for attempt in placed)
    return Outcome("pass", f"{count(ranks, 'rank')}, each on a device or core of its own")


def real_run_faults(contents: Contents) -> list[str]:
    """Return why the run that a rehearsal stands for would be refused, once per workload."""
    profile = contents.folder.record.settings.profile
    faults: dict[str, None] = {}
    for job in (*contents.training_jobs, *contents.workers):
        record = job.record
        try:
            spec = workload(record.workload)
            train = record.settings_as(spec.settings).train
        except VflopsError:  # another rule reports it
            continue
        fault = batch_fault(profile, spec, train, record.data.train)
        if fault is not None:
            faults[fault.of_real_run] = None
    return list(faults)


def _attempts(contents: Contents) -> Iterator[_Attempt]:
    for job in (*contents.training_jobs, *contents.workers):
        for log in job.logs:
            for event in log.events:
                if event.kind == "job":
                    started = event.payload(JobStarted)
                    yield _Attempt(job.record.job, event, log.events[-1], log.clock, started)


def _shared(attempts: Sequence[_Attempt]) -> Iterator[tuple[str, str]]:
    """Yield which ranks shared what, and where that follows from."""
    for running in _running_together(attempts):
        ranks = [rank for attempt in running for rank in attempt.ranks]
        ranks.sort(key=lambda rank: (rank.job, rank.rank))
        yield from _shared_accelerators(ranks)
        yield from _crowded_cores(ranks)


def _running_together(attempts: Sequence[_Attempt]) -> Iterator[Sequence[_Attempt]]:
    """Yield the attempts that ran at one moment, for all moments before one of them ended.

    Times of one clock are compared exactly, those of several hosts with a margin.
    """
    by_clock: dict[str | None, list[_Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_clock[attempt.clock].append(attempt)
    yield from ([attempt] for attempt in by_clock.pop(None, ()))
    timelines = [(group, False) for group in by_clock.values()]
    if len(timelines) != 1 or len(timelines[0][0]) < len(attempts):
        timelines.append(([*attempts], True))
    for group, by_utc in timelines:
        spans = ((attempt.span_s(by_utc=by_utc), attempt) for attempt in group)
        running: list[tuple[float, int, _Attempt]] = []  # a heap by their ends
        order = sorted(spans, key=lambda item: item[0])
        for number, ((begin_s, end_s), attempt) in enumerate(order):
            if running and running[0][0] <= begin_s:
                yield [other for _, _, other in running]
            while running and running[0][0] <= begin_s:
                heappop(running)
            if end_s > begin_s:
                heappush(running, (end_s, number, attempt))
        yield [other for _, _, other in running]


def _shared_accelerators(ranks: Sequence[_Rank]) -> Iterator[tuple[str, str]]:
    users: dict[tuple[object, ...], list[_Rank]] = defaultdict(list)
    for rank in ranks:
        place = rank.place
        if place.device != _CPU:
            # Without an id, a device number means the same only within a job.
            own = (rank.job, place.node, place.device)
            users[(place.id,) if place.id is not None else own].append(rank)
    for sharing in users.values():
        if len(sharing) > 1:
            device = f"{sharing[0].place.device} of {sharing[0].place.node}"
            name = f" ({sharing[0].place.id})" if sharing[0].place.id else ""
            yield f"{_words(sharing)} shared {device}{name}", sharing[-1].source


def _crowded_cores(ranks: Sequence[_Rank]) -> Iterator[tuple[str, str]]:
    """Yield groups of ranks that had fewer cores than they are."""
    by_node: dict[str, list[tuple[int, list[_Rank]]]] = defaultdict(list)
    for rank in ranks:
        if rank.place.device != _CPU:
            continue
        cores, members = int(rank.place.cores, 16), [rank]
        apart = []
        for known, others in by_node[rank.place.node]:
            if known & cores:
                cores, members = cores | known, [*others, *members]
            else:
                apart.append((known, others))
        by_node[rank.place.node] = [*apart, (cores, members)]
    for node, groups in by_node.items():
        for cores, members in groups:
            if len(members) > cores.bit_count():
                shared = f"{count(cores.bit_count(), 'core')} of {node}"
                yield f"{_words(members)} shared {shared}", members[-1].source


def _words(ranks: Sequence[_Rank]) -> str:
    if len(ranks) > 3:
        return f"{len(ranks)} ranks, from {ranks[0]} to {ranks[-1]},"
    return " and ".join(map(str, ranks))
