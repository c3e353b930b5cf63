"""The rule against rehearsals: every rank had a device to itself, and the run says so.

Each rank records its accelerator or the cores that it may use. Ranks that ran at the same time must
not share an accelerator, and on CPUs there must be a core for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vflops.record.formats.job_events import JobStarted, RankPlace, RanksPlaced
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import RUN_LOG
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count

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
    placed: RanksPlaced

    def runs_when_begins(self, other: _Attempt) -> bool:
        """Whether it certainly ran at the moment at which the ranks of ``other`` met."""
        if self.clock is not None and self.clock == other.clock:
            return self.event.time_s <= other.event.time_s < self.last.time_s
        begins_s, ends_s = self.event.utc_s + _CLOCK_S, self.last.utc_s - _CLOCK_S
        return begins_s <= other.event.utc_s < ends_s


@dataclass(frozen=True)
class _Rank:
    job: int
    rank: int
    place: RankPlace

    def __str__(self) -> str:
        return f"rank {self.rank} of job {self.job}"


def check_rehearsal(contents: Contents) -> Outcome:
    """Fail if the run is a rehearsal, or if ranks shared a device although it is none."""
    attempts = list(_attempts(contents))
    is_rehearsal = contents.folder.record.settings.launch.rehearse
    shared = next(_shared(attempts), None)
    if is_rehearsal:
        evidence = "a rehearsal of a layout: " + (shared[0] if shared else "no device was shared")
        return Outcome("fail", evidence, shared[1] if shared else RUN_LOG)
    if shared:
        evidence = f"{shared[0]}, although the run does not say that it is a rehearsal"
        return Outcome("fail", evidence, shared[1])
    for attempt in attempts:
        if attempt.placed.rehearsal:
            evidence = f"the ranks of job {attempt.job} say that they rehearse, the run does not"
            return Outcome("fail", evidence, attempt.event.source)
    if not attempts:
        return Outcome("not applicable", "no log records the devices of ranks")
    missing = _unplaced(contents)
    if missing is not None:
        return Outcome("fail", "the places of some ranks are missing", missing)
    ranks = sum(len(attempt.placed.places) for attempt in attempts)
    return Outcome("pass", f"{count(ranks, 'rank')}, each on a device or core of its own")


def _attempts(contents: Contents) -> Iterator[_Attempt]:
    for job in (*contents.training_jobs, *contents.workers):
        for log in job.logs:
            for event in log.events:
                if event.kind == "ranks":
                    placed = event.payload(RanksPlaced)
                    yield _Attempt(job.record.job, event, log.events[-1], log.clock, placed)


def _unplaced(contents: Contents) -> str | None:
    """Return the location of an attempt that trained and has not placed all of its ranks."""
    for job in contents.training_jobs:
        for log in job.logs:
            placed = 0
            for event in log.events:
                if event.kind == "ranks":
                    placed = len(event.payload(RanksPlaced).places)
                elif event.kind == "job":
                    started = event.payload(JobStarted)
                    if started.torch is not None and started.ranks != placed:
                        return event.source
    return None


def _shared(attempts: Sequence[_Attempt]) -> Iterator[tuple[str, str]]:
    """Yield which ranks shared what, and where that follows from."""
    for attempt in attempts:
        running = [
            _Rank(other.job, number, place)
            for other in attempts
            if other is attempt or other.runs_when_begins(attempt)
            for number, place in enumerate(other.placed.places)
        ]
        for text in (*_shared_accelerators(running), *_crowded_cores(running)):
            yield text, attempt.event.source


def _shared_accelerators(ranks: Sequence[_Rank]) -> Iterator[str]:
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
            yield f"{_words(sharing)} shared {device}{name}"


def _crowded_cores(ranks: Sequence[_Rank]) -> Iterator[str]:
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
                yield f"{_words(members)} shared {count(cores.bit_count(), 'core')} of {node}"


def _words(ranks: Sequence[_Rank]) -> str:
    if len(ranks) > 3:
        return f"{len(ranks)} ranks, from {ranks[0]} to {ranks[-1]},"
    return " and ".join(map(str, ranks))
