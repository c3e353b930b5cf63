"""CSV tables with one row per scored pass (and units in the header), or one row per reading."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO

from vflops.publish.export.scored_passes import FACTS, QUANTITIES, Pass, passes
from vflops.record.formats.job_events import Evaluated, Progressed
from vflops.record.formats.node import telemetry_file
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.unscored import is_rehearsal

SERIES = ("run", "job", "attempt", "node", "UTC", "series", "unit", "value")

Cell = str | int | float | None


def runs_csv(runs: Iterable[Contents]) -> str:
    """Return one row per pass; a figure that was not measured is an empty cell."""
    titles = (
        f"{figure.name} [{figure.unit}]" if figure.unit else figure.name for figure in QUANTITIES
    )
    header = ("run", "kind", "workload", "job", "repeat", *FACTS, *titles)
    return _csv_text(header, (_row(scored) for contents in runs for scored in passes(contents)))


def series_csv(runs: Iterable[Contents]) -> str:
    """Return one row per reading of loss, learning rate, samples, quality and telemetry."""
    return _csv_text(SERIES, (row for contents in runs for row in _readings(contents)))


def _row(scored: Pass) -> list[Cell]:
    facts = (scored.facts.get(name) for name in FACTS)
    figures = (scored.figures.get(quantity.name) for quantity in QUANTITIES)
    return [scored.run, scored.kind, scored.workload, scored.job, scored.repeat, *facts, *figures]


def _readings(contents: Contents) -> Iterator[list[Cell]]:
    run = contents.folder.record.id + (" (rehearsal)" if is_rehearsal(contents) else "")
    for job in (*contents.training_jobs, *contents.workers):
        for attempt in range(len(job.logs)):
            prefix: list[Cell] = [run, job.record.job, int(job.folders[attempt].name)]
            yield from ([*prefix, 0, *rest] for rest in _log_readings(job, attempt))
            yield from ([*prefix, *rest] for rest in _telemetry_readings(job, attempt))


def _log_readings(job: TrainedJob, attempt: int) -> Iterator[list[Cell]]:
    """Yield the readings of the job's log."""
    for event in job.logs[attempt].events:
        if event.kind == "progress":
            progress = event.payload(Progressed)
            yield [event.utc, "samples", "", progress.samples]
            yield [event.utc, "loss", "", progress.loss]
            yield [event.utc, "learning rate", "", progress.learning_rate]
        elif event.kind == "evaluation":
            quality = event.payload(Evaluated).quality
            yield [event.utc, job.record.goal.quality, "", quality]


def _telemetry_readings(job: TrainedJob, attempt: int) -> Iterator[list[Cell]]:
    """Yield the telemetry of the nodes, series by series."""
    from vflops.record.log.telemetry_log import read

    node = 0
    while (path := telemetry_file(job.folders[attempt], node)).is_file():
        telemetry = read(path)
        timestamps = [
            datetime.fromtimestamp(utc_s, UTC).isoformat(timespec="milliseconds")
            for utc_s in telemetry.utc_s
        ]
        for series in telemetry.header.series:
            for utc, value in zip(timestamps, telemetry.column(series.id), strict=True):
                yield [node, utc, series.id, series.unit, value]
        node += 1


def _csv_text(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_spreadsheet_safe(cell) for cell in row] for row in rows)
    return out.getvalue()


def _spreadsheet_safe(cell: Cell) -> Cell:
    """Return ``cell``, quoted if a spreadsheet would evaluate it as a formula."""
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{cell}"
    return cell
