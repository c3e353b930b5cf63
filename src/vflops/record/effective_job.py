"""What a job runs as: as it was planned, or as it was told to go on."""

from __future__ import annotations

from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobRearranged


def running_record(folder: RunFolder, job: int) -> JobRecord:
    """The record of a job's next attempt; ``job.json`` stays that of the first."""
    record = JobRecord.read(folder.job_file(job))
    events = [event.payload(JobRearranged) for event in folder.history().events("job-rearranged")]
    newest = next((each for each in reversed(events) if each.job == job), None)
    if newest is None:
        return record
    return record.model_copy(update={"ranks": newest.ranks, "settings": newest.settings})
