"""The ceilings of a run for a roofline: those of the nodes that trained, and their origin."""

from __future__ import annotations

from vflops.record.formats.measurement import Measurement
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import (
    LINKS,
    job_ceilings,
    main_ceilings,
    node_kinds,
)
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.roofline.analysis import Ceilings, measured_ceilings


def run_ceilings(contents: Contents) -> Ceilings:
    """Return the ceilings of the kind of node that trained, with the links of its jobs."""
    jobs = (*contents.training_jobs, *contents.workers)
    ranks = next((job.record.ranks for job in jobs), None)
    return measured_ceilings(main_ceilings(contents), ranks)


def model_ceilings(contents: Contents, model: str) -> tuple[Ceilings, str | None]:
    """Return the ceilings for a model, and why they do not bound its training if that is so.

    They are those of the first job that trained it, or of the run if none did.
    """
    job = contents.once(_first_trained).get(model)
    return (run_ceilings(contents), None) if job is None else ceilings_for(contents, job)


def ceilings_for(contents: Contents, job: TrainedJob) -> tuple[Ceilings, str | None]:
    """Return the ceilings for a job that trained, and why they do not bound it if that is so."""
    bounding = job_ceilings(contents, job)
    return measured_ceilings(bounding.measurements, job.record.ranks), bounding.reason


def measured_where(contents: Contents) -> str | None:
    """Return the nodes on which the ceilings of the run were measured; None on one machine."""
    kinds = contents.once(node_kinds)
    if not kinds:
        return None
    texts = []
    for kind in dict.fromkeys(kinds.values()):
        names = dict.fromkeys(item.node for item in _of_nodes(contents) if item.kind == kind)
        number = sum(other == kind for other in kinds.values())
        equal = f", 1 of {number:,} equal nodes" if number > 1 else ""
        on = " and ".join(name for name in names if name) or "none of its nodes"
        texts.append(f"on {on}{equal} ({kind})")
    return f"measured {'; '.join(texts)}"


def _of_nodes(contents: Contents) -> list[Measurement]:
    return [item for item in contents.measurements if item.benchmark not in LINKS]


def _first_trained(contents: Contents) -> dict[str, TrainedJob]:
    """Return the first job of each workload that made progress."""
    first: dict[str, TrainedJob] = {}
    for job in (*contents.training_jobs, *contents.workers):
        name = job.record.workload
        if name not in first and any(attempt.has_progress for attempt in job.attempts):
            first[name] = job
    return first
