"""The counting convention of a job and of a counted model."""

from __future__ import annotations

from vflops.counting.conventions import Convention, convention
from vflops.errors import FolderError, UsageError
from vflops.models.model_registry import default_convention
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents


def job_convention(record: JobRecord) -> Convention:
    """Return the convention of a job; raise ``FolderError`` if it is not installed here."""
    try:
        return convention(record.rules)
    except UsageError as error:
        raise FolderError(
            f"job {record.job} counts its operations by the convention {record.rules!r}, "
            "which is not installed",
            hint="install the package that provides it; vflops list shows what is installed",
        ) from error


def model_convention(contents: Contents, model: str) -> Convention:
    """Return the convention for a counted model: that of the workload that trains it, if any."""
    for job in (*contents.training_jobs, *contents.workers):
        if job.record.workload == model:
            return job_convention(job.record)
    return convention(default_convention(model))
