"""The common timeline: times of several nodes, converted to the clock of the controller.

Times come from monotonic clocks, which nobody sets: a wall clock that is set during a run changes
no duration. Run folders of earlier versions did not compare the monotonic clocks of nodes; their
times are those of wall clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from vflops.errors import FolderError
from vflops.record.files.read_once import is_file
from vflops.record.formats.node import NodeRecord, telemetry_file
from vflops.record.log.events import Event
from vflops.record.readout.trained_job import TrainedJob

Span = tuple[float, float]
_MAX_UNRECORDED = 256
"""The most nodes of an attempt that are listed although they left no record."""


@dataclass(frozen=True)
class Part:
    """The part of one node in an attempt at a job."""

    job: int
    host: str
    record: NodeRecord | None
    """None if the node wrote no record."""
    telemetry: Path | None
    span_s: Span
    """From the attempt's first step to its last progress event, on the common timeline."""
    offset_s: float
    """Offset of the node's wall clock from the common timeline; 0 if it is not known."""
    zero_s: float | None = None
    """The zero of the node's monotonic clock on the common timeline; None if it is not known."""


def concurrent_parts(parts: Sequence[Part]) -> list[list[Part]]:
    """Return for each part the parts of other jobs at the same time, in the order of ``parts``.

    The time that this takes grows with the number of such pairs, not with that of all pairs.
    """
    concurrent: list[list[int]] = [[] for _ in parts]
    active: list[int] = []
    for index in sorted(range(len(parts)), key=lambda number: parts[number].span_s):
        part = parts[index]
        active = [other for other in active if parts[other].span_s[1] > part.span_s[0]]
        for other in active:
            if parts[other].job != part.job and parts[other].span_s[0] < part.span_s[1]:
                concurrent[index].append(other)
                concurrent[other].append(index)
        active.append(index)
    return [[parts[other] for other in sorted(others)] for others in concurrent]


class Timeline:
    """Several jobs on one timeline.

    Offsets are relative to the reference host of the first job. A resumed run may have a controller
    on another host: offsets from that host are treated as unknown.
    """

    def __init__(self, members: Sequence[TrainedJob]) -> None:
        self._members = members
        self._nodes = {
            folder: member.nodes_of(folder) for member in members for folder in member.folders
        }
        known = (node.reference for nodes in self._nodes.values() for node in nodes)
        self._reference = next((host for host in known if host is not None), None)
        self._zeros_s: dict[tuple[str | None, str | None], float] = {}
        for node in (node for nodes in self._nodes.values() for node in nodes):
            clock, zero_s = node.clock.reference_clock, node.clock.reference_zero_s
            if clock is not None and zero_s is not None:
                # The first reading counts: the wall clock of the reference may be set later.
                self._zeros_s.setdefault((node.reference, clock), zero_s)

    @property
    def corrected_s(self) -> float:
        """The largest clock offset that was corrected."""
        return max((abs(self._log_offset_s(folder) or 0.0) for folder in self._nodes), default=0.0)

    @property
    def jobs_without_clock(self) -> tuple[int, ...]:
        """The jobs with an attempt whose clock offset is not known."""
        return tuple(
            member.record.job
            for member in self._members
            if not member.folders
            or any(self._log_offset_s(path) is None for path in member.folders)
        )

    def start_s(self, job: TrainedJob) -> float:
        """Return when the job began its first step."""
        return self._known_times_s(job, "job")[0]

    def end_s(self, job: TrainedJob) -> float:
        """Return when the job's training ended, including its last evaluation and checkpoint."""
        return self._known_times_s(job, "finished")[-1]

    def began_s(self, job: TrainedJob) -> float:
        """Return when the processes of the job started, before its first step."""
        times_s = [self.start_s(job)]
        for attempt, folder in zip(job.attempts, self._folders(job), strict=True):
            if attempt.began_s is not None:
                first = attempt.log.events[0]
                times_s.append(self.event_s(first, folder) - (first.time_s - attempt.began_s))
        return min(times_s)

    def evaluations_s(self, job: TrainedJob) -> dict[int, float]:
        """Return when each evaluation of the job that counts was done, by its step."""
        folders = self._folders(job)
        return {
            timed.evaluated.step: self.event_s(timed.event, folders[timed.attempt])
            for timed in job.evaluations
        }

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """The parts of all attempts with progress, by host, in the order of the jobs."""
        parts: dict[str, list[Part]] = {}
        for job in self._members:
            for folder, attempt in zip(job.folders, job.attempts, strict=True):
                if attempt.edges is not None:
                    first, last = attempt.edges
                    span_s = self.event_s(first, folder), self.event_s(last, folder)
                    for part in self.parts_of(job.record.job, folder, span_s):
                        parts.setdefault(part.host, []).append(part)
        return parts

    def offset_s(self, node: NodeRecord) -> float | None:
        """Return the offset of the node's clock from the timeline; None if it is not known."""
        return node.clock.offset_s if node.reference == self._reference else None

    def zero_s(self, node: NodeRecord) -> float | None:
        """Return the zero of the node's monotonic clock on the timeline; None if not known."""
        clock = node.clock
        reading = node.reference, clock.reference_clock
        reference_s = self._zeros_s.get(reading, clock.reference_zero_s)
        if reference_s is None or clock.monotonic_offset_s is None:
            return None
        return reference_s - clock.monotonic_offset_s

    def event_s(self, event: Event, folder: Path | None) -> float:
        """Return the time of an event of the attempt in ``folder``."""
        node = self._writer(folder) if folder else None
        zero_s = self.zero_s(node) if node else None
        if zero_s is not None:
            return zero_s + event.time_s
        return event.utc_s - ((self.offset_s(node) if node else None) or 0.0)

    def parts_of(self, job: int, folder: Path, span_s: Span) -> list[Part]:
        """Return each node's part of an attempt; the node that wrote the log comes first."""
        nodes = {node.node: node for node in self._nodes[folder]}
        count = max((node.nodes for node in nodes.values()), default=1)
        unrecorded = (number for number in range(count) if number not in nodes)
        parts = []
        for number in sorted({*nodes, *islice(unrecorded, _MAX_UNRECORDED)}):
            node, path = nodes.get(number), telemetry_file(folder, number)
            parts.append(
                Part(
                    job=job,
                    host=node.host if node else f"node {number} of job {job}",
                    record=node,
                    telemetry=path if is_file(path) else None,
                    span_s=span_s,
                    offset_s=(self.offset_s(node) if node else None) or 0.0,
                    zero_s=self.zero_s(node) if node else None,
                )
            )
        return parts

    def _log_offset_s(self, folder: Path) -> float | None:
        """Return the clock offset of the node that wrote an attempt's log."""
        node = self._writer(folder)
        return self.offset_s(node) if node else None

    def _writer(self, folder: Path) -> NodeRecord | None:
        """Return the node that wrote an attempt's log."""
        return next((node for node in self._nodes[folder] if node.node == 0), None)

    def _known_times_s(self, job: TrainedJob, kind: str) -> list[float]:
        times_s = self._event_times_s(job, kind)
        if not times_s:
            raise FolderError(f"the log of job {job.record.job} has no event {kind!r}")
        return times_s

    def _event_times_s(self, job: TrainedJob, kind: str) -> list[float]:
        return [
            self.event_s(event, folder)
            for log, folder in zip(job.logs, self._folders(job), strict=True)
            for event in log.events
            if event.kind == kind
        ]

    @staticmethod
    def _folders(job: TrainedJob) -> Sequence[Path | None]:
        """Return the folder of each log; None for each if only the logs are known."""
        return job.folders or [None] * len(job.logs)
