"""The rule that the samples that were read are those whose hashes the job records."""

from __future__ import annotations

from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import DataRead
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import event_location, job_file
from vflops.results.check.rule import Outcome
from vflops.units import count, integer

LABELLED = ("image-classification", "automl", "extreme-weather")
"""Workloads whose samples have labels and are compared with each other when they are packed."""
COMPARED = (*LABELLED, "language-model")
"""Workloads whose samples are hashed when they are packed and when they are read."""


def check_contents(contents: Contents) -> Outcome:
    """Fail unless jobs compared what they read with the content hashes of their data."""
    jobs = [
        job
        for job in (*contents.training_jobs, *contents.workers)
        if job.record.workload in COMPARED
    ]
    if not jobs:
        return Outcome("not applicable", "no images, climate fields or text were trained on")
    known: dict[str, JobRecord] = {}
    for job in jobs:
        record = job.record
        first = known.setdefault(record.workload, record)
        if not record.data.contents:
            return _without_hashes(record)
        if record.data.contents != first.data.contents:
            evidence = f"jobs {first.job} and {record.job} have different content hashes"
            return Outcome("fail", evidence, job_file(record))
        fault = _fault(job)
        if fault:
            return Outcome("fail", f"job {record.job}: {fault}", event_location(job, "data-read"))
    reads = [job.data_read for job in jobs if job.data_read is not None]
    if not reads:
        if any(map(_has_ended, jobs)):
            return Outcome("cannot tell", "nothing was read", job_file(jobs[0].record))
        return Outcome("not applicable", "no job has finished", job_file(jobs[0].record))
    compared = sum(split.compared for read in reads for split in read.splits.values())
    return Outcome(
        "pass", f"{count(compared, 'sample')} compared by {count(len(reads), 'job')}, none differed"
    )


def _without_hashes(record: JobRecord) -> Outcome:
    """Return the verdict for data that was packed without digests of its samples."""
    if record.data.contents is None:
        evidence = "the run is of an older version, which did not hash samples"
        return Outcome("not applicable", evidence, job_file(record))
    evidence = (
        "its samples have no digests, because an older version packed the data: vflops data verify "
        "adds them"
    )
    return Outcome("cannot tell", evidence, job_file(record))


def _fault(job: TrainedJob) -> str | None:
    """Return what the job read otherwise than it records; None for a job that has not ended."""
    read = job.data_read
    if read is None:
        ended = job.record.worker is None and _has_ended(job)
        return "it ended without a record of the samples that it read" if ended else None
    data = job.record.data
    known = data.contents or {}
    samples = {"train": data.train, "validation": data.validation, "test": data.test}
    sizes = samples if data.parts is None else data.parts
    for name, split in read.splits.items():
        if split.sha256 != known.get(name):
            return f"the content hash of {name} is not that of the data"
        if split.samples != sizes.get(name) or split.compared > split.samples:
            return (
                f"{integer(split.compared)} of {integer(split.samples)} samples of {name} were "
                f"compared, but the data has {integer(sizes.get(name, 0))}"
            )
    return _validation_fault(read)


def _has_ended(job: TrainedJob) -> bool:
    return bool(job.logs) and any(event.kind == "end" for event in job.logs[-1].events)


def _validation_fault(read: DataRead) -> str | None:
    """Return whether evaluations, which cover all samples, left some uncompared."""
    validation = read.splits.get("validation")
    if validation is None:
        return "no sample for validation was compared"
    missing = validation.samples - validation.compared
    return f"{count(missing, 'sample')} for validation were not compared" if missing else None
