"""The common time line: moments of several nodes by one clock, that of the run's controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vflops.record.formats.node import NodeRecord, node_records, telemetry_file
from vflops.record.log.events import Event
from vflops.record.readout.trained_job import TrainedJob

Span = tuple[float, float]


@dataclass(frozen=True)
class Part:
    """What one node did for an attempt at a job."""

    job: int
    host: str
    record: NodeRecord | None
    """None where the node did not describe itself."""
    telemetry: Path | None
    span_s: Span
    """From the attempt's first step to its last note, on the common time line."""
    offset_s: float
    """Of its clock; 0 where that is not known."""


class Timeline:
    """The jobs of some trainings on one time line.

    A later controller may be on another machine: offsets count against the first job's reference.
    """

    def __init__(self, members: Sequence[TrainedJob]) -> None:
        self._members = members
        self._nodes = {place: node_records(place) for each in members for place in each.folders}
        known = (node.reference for nodes in self._nodes.values() for node in nodes)
        self._reference = next((each for each in known if each is not None), None)

    @property
    def corrected_s(self) -> float:
        """The largest correction that was applied."""
        return max((abs(self._of_log(place) or 0.0) for place in self._nodes), default=0.0)

    @property
    def unknown(self) -> tuple[int, ...]:
        """The jobs of which an attempt's clock is not known."""
        return tuple(
            each.record.job
            for each in self._members
            if not each.folders or any(self._of_log(place) is None for place in each.folders)
        )

    def start_s(self, trained: TrainedJob) -> float:
        """When the job began its first step."""
        return self._moments(trained, "job")[0]

    def end_s(self, trained: TrainedJob) -> float:
        """When the job's training was over, its last evaluation and checkpoint included."""
        return self._moments(trained, "finished")[-1]

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """What each host did for all attempts that trained, in the order of the jobs."""
        found: dict[str, list[Part]] = {}
        for trained in self._members:
            for place, attempt in zip(trained.folders, trained.attempts, strict=True):
                if attempt.span_utc_s is not None:
                    early_s = self._of_log(place) or 0.0
                    start_s, end_s = attempt.span_utc_s
                    span_s = start_s - early_s, end_s - early_s
                    for part in self.parts_of(trained.record.job, place, span_s):
                        found.setdefault(part.host, []).append(part)
        return found

    def offset_s(self, node: NodeRecord) -> float | None:
        """The node's clock less that of the time line; None where it is not known."""
        return node.clock.offset_s if node.reference == self._reference else None

    def parts_of(self, job: int, place: Path, span_s: Span) -> list[Part]:
        """What each node did for the attempt in ``place``, the one that wrote its log first."""
        nodes = {node.node: node for node in self._nodes[place]}
        count = max((node.nodes for node in nodes.values()), default=1)
        parts = []
        for number in range(count):
            node, path = nodes.get(number), telemetry_file(place, number)
            parts.append(
                Part(
                    job=job,
                    host=node.host if node else f"node {number} of job {job}",
                    record=node,
                    telemetry=path if path.is_file() else None,
                    span_s=span_s,
                    offset_s=(self.offset_s(node) if node else None) or 0.0,
                )
            )
        return parts

    def _of_log(self, place: Path) -> float | None:
        """The offset of the node that wrote an attempt's log."""
        first = next((node for node in self._nodes[place] if node.node == 0), None)
        return self.offset_s(first) if first else None

    def _moments(self, trained: TrainedJob, kind: str) -> list[float]:
        places: Sequence[Path | None] = trained.folders or [None] * len(trained.logs)
        return [
            self._utc_s(event, place)
            for log, place in zip(trained.logs, places, strict=True)
            for event in log.events
            if event.kind == kind
        ]

    def _utc_s(self, event: Event, place: Path | None) -> float:
        return event.utc_s - ((self._of_log(place) if place else None) or 0.0)
