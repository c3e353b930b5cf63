"""Power logs that were imported: what a node or its supply says of itself, held against reason.

A log that covers too little of a training is not counted by the score, so it is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.record.formats.node import node_records, telemetry_file
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.figure_text import count
from vflops.units import quantity

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry
    from vflops.results.power.run_power import PowerSummary

LEAST_W = 1.0
"""Of a node, for each rank that trains: the smallest computers take more."""
MOST_W = 1e6
"""Of a node: a whole row of racks takes less."""
LEAST_OF_PARTS = 0.9
"""Of a node's power to that of its accelerators and processors: meters differ by some percent."""
LEAST_READINGS = 3
"""Within a training, of which a mean power is one."""


def judged_logs(contents: Contents) -> Iterator[tuple[Path, str | None]]:
    """The logs that count for a training, and what of them cannot be."""
    from vflops.record.log.imported_power import imported_files

    paths = imported_files(contents.folder.path)
    logs = [(path, contents.telemetry(path)) for path in paths]
    for path, log in logs:
        if log.faults:
            yield path, log.faults[0]
    for job in (*contents.trained, *contents.workers) if logs else ():
        for place, attempt in zip(job.folders, job.attempts, strict=True):
            sampled = telemetry_file(place, 0)
            alone = all(node.nodes == 1 for node in node_records(place))
            if attempt.span_s is None or not sampled.is_file() or not alone:
                continue  # whose node the log is of is not known, and the score leaves it out
            own = contents.telemetry(sampled)
            placed = {path: log.on_clock_of(own) for path, log in logs if not log.faults}
            for path, words in _judged(job, own, placed, attempt.span_s):
                yield path, words and f"job {job.record.job}: {words}"


def _judged(
    job: TrainedJob, own: Telemetry, placed: dict[Path, Telemetry], span_s: tuple[float, float]
) -> Iterator[tuple[Path, str | None]]:
    from vflops.results.power.run_power import NODE_MUST_COVER, host_power

    summary = host_power([own], *span_s, list(placed.values()))
    node = next(part for part in summary.parts if part.part == "node")
    if not placed or node.covered < NODE_MUST_COVER:
        return
    for path, log in placed.items():
        inside = sum(span_s[0] <= at_s <= span_s[1] for at_s in log.times_s)
        few = (
            f"{count(inside, 'reading')} of power while it trained, {LEAST_READINGS} are the least"
        )
        yield path, few if inside < LEAST_READINGS else None
    fault = _fault(summary, node.power_w or 0.0, job.record.ranks)
    if fault:
        yield next(iter(placed)), fault


def _fault(summary: PowerSummary, power_w: float, ranks: int) -> str | None:
    """Why a node does not draw that."""
    told = f"{quantity(power_w, 'W')} on average"
    if power_w < LEAST_W * ranks:
        least = quantity(LEAST_W * ranks, "W")
        return f"{told}, and what trains with {count(ranks, 'rank')} draws {least} at least"
    if power_w > MOST_W:
        return f"{told}, and no node draws more than {quantity(MOST_W, 'W')}"
    parts_w = sum(part.power_w or 0.0 for part in summary.parts if part.part != "node")
    if power_w < LEAST_OF_PARTS * parts_w:
        return f"{told}, and its parts alone say {quantity(parts_w, 'W')}"
    return None
