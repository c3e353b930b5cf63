"""Plausibility of imported power logs of a node or its power supply.

A log that covers too little of a training is not used by the score, so it is not judged here.
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

MIN_W = 1.0
"""The least power of a node per rank: even the smallest computers draw more."""
MAX_W = 1e6
"""The largest power of a node: a whole row of racks draws less."""
MIN_SHARE_OF_PARTS = 0.9
"""The least ratio of a node's power to the sum of its parts: meters differ by some percent."""
MIN_READINGS = 3
"""The least number of readings within a training for a mean power."""


def power_log_faults(contents: Contents) -> Iterator[tuple[Path, str | None]]:
    """Yield each log that counts for a training, with its fault or None."""
    from vflops.record.log.imported_power import imported_files

    paths = imported_files(contents.folder.path)
    logs = [(path, contents.telemetry(path)) for path in paths]
    for path, log in logs:
        if log.faults:
            yield path, log.faults[0]
    for job in (*contents.trained, *contents.workers) if logs else ():
        for folder, attempt in zip(job.folders, job.attempts, strict=True):
            sampled = telemetry_file(folder, 0)
            alone = all(node.nodes == 1 for node in node_records(folder))
            if attempt.span_s is None or not sampled.is_file() or not alone:
                continue  # the node of the log is unknown, and the score ignores it
            telemetry = contents.telemetry(sampled)
            aligned = {path: log.on_clock_of(telemetry) for path, log in logs if not log.faults}
            for path, words in _judged(job, telemetry, aligned, attempt.span_s):
                yield path, words and f"job {job.record.job}: {words}"


def _judged(
    job: TrainedJob,
    telemetry: Telemetry,
    aligned: dict[Path, Telemetry],
    span_s: tuple[float, float],
) -> Iterator[tuple[Path, str | None]]:
    from vflops.results.power.run_power import NODE_MUST_COVER, host_power

    summary = host_power([telemetry], *span_s, list(aligned.values()))
    node = next(part for part in summary.parts if part.part == "node")
    if not aligned or node.covered < NODE_MUST_COVER:
        return
    for path, log in aligned.items():
        inside = sum(span_s[0] <= at_s <= span_s[1] for at_s in log.times_s)
        few = f"{count(inside, 'reading')} while it trained, at least {MIN_READINGS} are required"
        yield path, few if inside < MIN_READINGS else None
    fault = _fault(summary, node.power_w or 0.0, job.record.ranks)
    if fault:
        yield next(iter(aligned)), fault


def _fault(summary: PowerSummary, power_w: float, ranks: int) -> str | None:
    """Return why a node cannot draw that power; None if it can."""
    mean = f"{quantity(power_w, 'W')} on average"
    if power_w < MIN_W * ranks:
        least = quantity(MIN_W * ranks, "W")
        return f"{mean}, but training with {count(ranks, 'rank')} draws at least {least}"
    if power_w > MAX_W:
        return f"{mean}, but no node draws more than {quantity(MAX_W, 'W')}"
    parts_w = sum(part.power_w or 0.0 for part in summary.parts if part.part != "node")
    if power_w < MIN_SHARE_OF_PARTS * parts_w:
        return f"{mean}, but its parts alone draw {quantity(parts_w, 'W')}"
    return None
