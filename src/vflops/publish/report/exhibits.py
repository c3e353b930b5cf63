"""Figures that a workload draws from the exhibits of its jobs.

An exhibit is a file of arrays beside the log of an attempt. A fault in it, or in the code that
draws it, becomes a sentence of the page: a report must not fail over an illustration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflops.errors import FolderError, VflopsError
from vflops.extensions import import_object
from vflops.publish.pages.chart_style import with_style
from vflops.record.files.npz_arrays import read_npz
from vflops.record.files.regular_file import read_regular
from vflops.record.formats.job_events import MAX_EXHIBIT_BYTES, Exhibited
from vflops.record.readout.trained_job import TrainedJob
from vflops.workloads.contract.exhibit import Figure
from vflops.workloads.contract.registry import workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = MAX_EXHIBIT_BYTES
"""The maximum size of the file; decompressed, it may be four times as large."""


@dataclass(frozen=True)
class ExhibitFigures:
    """The figures that a report shows for a workload, or why there are none."""

    source: str | None
    """Which of several seeds the figures belong to; None for a single seed."""
    figures: tuple[Figure, ...]
    fault: str | None
    """Why there are no figures; None if there are."""


def exhibit_figures(jobs: Sequence[tuple[TrainedJob, bool]]) -> ExhibitFigures | None:
    """Return the figures of the first complete job with an exhibit; None if there is none.

    ``jobs`` are the jobs of one workload, each with whether it is complete.
    """
    with_exhibit = [(job, complete) for job, complete in jobs if _has_exhibit(job)]
    if not with_exhibit:
        reason = next((reason for job, _ in jobs if (reason := job.exhibit_skipped)), None)
        return None if reason is None else ExhibitFigures(None, (), reason)
    complete_jobs = [job for job, complete in with_exhibit if complete]
    chosen = complete_jobs[0] if complete_jobs else with_exhibit[0][0]
    note = None
    if not complete_jobs:
        note = f"of seed {chosen.record.seed}, which did not finish"
    elif len(jobs) > 1:
        which = f"the first of {len(complete_jobs)}" if len(complete_jobs) > 1 else "the only one"
        note = f"of seed {chosen.record.seed}, {which} that finished with an exhibit"
    try:
        return ExhibitFigures(note, _figures(chosen), None)
    except VflopsError as error:
        return ExhibitFigures(note, (), error.message)


def _has_exhibit(job: TrainedJob) -> bool:
    return any(event.kind == "exhibit" for log in job.logs for event in log.events)


def _figures(job: TrainedJob) -> tuple[Figure, ...]:
    exhibit = job.exhibit
    if exhibit is None:
        raise FolderError(f"the exhibit of job {job.record.job} is not in the run folder")
    arrays = load(exhibit.path, exhibit.payload)
    draw = workload(job.record.workload).exhibit
    if draw is None:
        raise FolderError(f"workload {job.record.workload} cannot draw figures from its exhibit")
    try:
        figures = tuple(import_object(draw)(arrays))
        for figure in figures:
            if not isinstance(figure, Figure):
                raise TypeError(f"{figure!r} is not a Figure")
            json.dumps(figure.chart, allow_nan=False)
        return tuple(_styled(figure) for figure in figures)
    except VflopsError:
        raise
    except Exception as error:  # code of a workload may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise FolderError(f"{draw} cannot draw {exhibit.path}: {reason}") from error


def _styled(figure: Figure) -> Figure:
    if figure.chart is None:
        return figure
    return replace(figure, chart=with_style(figure.chart))


def load(path: Path, payload: Exhibited) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of an exhibit; raise unless the file is the one that was logged."""
    content = _content(path)
    if hashlib.sha256(content).hexdigest() != payload.sha256:
        raise FolderError(f"{path} is not the exhibit that the job wrote: its hash differs")
    try:
        return read_npz(content, max_bytes=4 * MAX_BYTES)
    except ValueError as error:
        raise FolderError(f"{path} cannot be read as arrays: {error}") from error


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, max_bytes=MAX_BYTES, follow_links=False)
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror or error}") from error
