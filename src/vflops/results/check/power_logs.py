"""Plausibility of imported power logs of a node or its power supply.

The score ignores a log that covers too little of a job, so such a log is not checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.metrics.summation import sum_in_order
from vflops.record.files.read_once import is_file
from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.node import telemetry_file
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import Attempt, TrainedJob
from vflops.results.data_sheets import data_sheet
from vflops.units import count, quantity

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Part, Telemetry
    from vflops.results.power.run_power import PowerSummary

MIN_W = 1.0
"""The minimum power of a node per rank; even the smallest computers draw more."""
MIN_PROCESSOR_W = 1.0
"""The minimum power of a processor that trains; those of telephones draw more."""
MAX_W = 1e6
"""The maximum power of a node; a whole row of racks draws less."""
MIN_SHARE_OF_PARTS = 0.9
"""The minimum ratio of a node's power to the sum of its parts; meters differ by a few percent."""
MIN_READINGS = 3
"""The minimum number of readings during a job for a mean power."""


def device_floors_w(attempt: Attempt) -> dict[Part, float]:
    """Return the least mean power of the devices that an attempt trained on, by their part."""
    start = next((event for event in attempt.log.events if event.kind == "job"), None)
    if start is None:
        return {}
    started = start.payload(JobStarted)
    if started.device == "cpu":
        return {"processor": MIN_PROCESSOR_W}
    sheet = data_sheet(started.device_name)
    if sheet is None or sheet.idle_w is None:
        return {}
    return {"accelerator": sheet.idle_w}


def power_log_faults(contents: Contents) -> Iterator[tuple[Path, str | None]]:
    """Yield each log that the score uses for a job, with its fault or None."""
    from vflops.record.log.imported_power import imported_files

    paths = imported_files(contents.folder.path)
    logs = [(path, contents.telemetry(path)) for path in paths]
    for path, log in logs:
        if log.faults:
            yield path, log.faults[0]
    for job in (*contents.training_jobs, *contents.workers) if logs else ():
        for folder, attempt in zip(job.folders, job.attempts, strict=True):
            sampled = telemetry_file(folder, 0)
            is_one_node = all(node.nodes == 1 for node in job.nodes_of(folder))
            if attempt.span_s is None or not is_file(sampled) or not is_one_node:
                continue  # the score does not use the log
            telemetry = contents.telemetry(sampled)
            aligned = {path: log.on_clock_of(telemetry) for path, log in logs if not log.faults}
            floor_w = max(MIN_W, device_floors_w(attempt).get("accelerator", 0.0))
            least_w = job.record.ranks * floor_w
            for path, fault in _log_faults(job, telemetry, aligned, attempt.span_s, least_w):
                yield path, fault and f"job {job.record.job}: {fault}"


def _log_faults(
    job: TrainedJob,
    telemetry: Telemetry,
    aligned: dict[Path, Telemetry],
    span_s: tuple[float, float],
    least_w: float,
) -> Iterator[tuple[Path, str | None]]:
    from vflops.results.power.run_power import NODE_MUST_COVER, host_power

    summary = host_power([telemetry], *span_s, list(aligned.values()))
    node = next(part for part in summary.parts if part.part == "node")
    if not aligned or node.covered < NODE_MUST_COVER:
        return
    for path, log in aligned.items():
        inside = sum(span_s[0] <= time_s <= span_s[1] for time_s in log.times_s)
        few = f"{count(inside, 'reading')} while it trained; at least {MIN_READINGS} are required"
        yield path, few if inside < MIN_READINGS else None
    fault = _fault(summary, node.power_w or 0.0, job.record.ranks, least_w)
    if fault:
        yield next(iter(aligned)), fault


def _fault(summary: PowerSummary, power_w: float, ranks: int, least_w: float) -> str | None:
    """Return why a node cannot draw that power; None if it can."""
    mean = f"{quantity(power_w, 'W')} on average"
    if power_w < least_w:
        minimum = quantity(least_w, "W")
        return f"{mean}, but training with {count(ranks, 'rank')} draws at least {minimum}"
    if power_w > MAX_W:
        return f"{mean}, but no node draws more than {quantity(MAX_W, 'W')}"
    parts_w = sum_in_order(part.power_w or 0.0 for part in summary.parts if part.part != "node")
    if power_w < MIN_SHARE_OF_PARTS * parts_w:
        return f"{mean}, but its parts alone draw {quantity(parts_w, 'W')}"
    return None
