"""Ends a search that the user has stopped, without training any further."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from shutil import rmtree

from vflops.errors import Hint, UsageError, VflopsError
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobGivenUp, JobPlanned


def can_be_ended(folder: RunFolder) -> bool:
    """Whether the run has a search that was stopped, whose workers have all ended in order."""
    with suppress(VflopsError):  # a scheduler may not answer, and this is only for a hint
        workers = _workers(folder)
        stopped = any(not folder.ended(record.job) for record in workers)
        return stopped and _fault(folder) is None
    return False


def require_can_be_ended(folder: RunFolder) -> None:
    """Raise ``UsageError`` unless ``vflops resume --end`` can end the searches of the run."""
    if not _workers(folder):
        raise UsageError(
            f"{folder.path} has no search that could be ended",
            hint=Hint("resume it", f"vflops resume {folder.path}"),
        )
    if fault := _fault(folder):
        raise UsageError(
            f"the search in {folder.path} cannot be ended here: {fault}",
            hint=Hint("resume it, and stop it then", f"vflops resume {folder.path}"),
        )


def delete_checkpoints(folder: RunFolder, records: Sequence[JobRecord]) -> None:
    """Delete the checkpoints of candidates that will not be trained any further."""
    for record in records:
        rmtree(folder.job_file(record.job).parent / "checkpoint", ignore_errors=True)


def _workers(folder: RunFolder) -> list[JobRecord]:
    planned = [event.payload(JobPlanned).job for event in folder.history(0).events("job-planned")]
    records = (JobRecord.read(folder.job_file(job)) for job in dict.fromkeys(planned))
    return [record for record in records if record.worker is not None]


def _fault(folder: RunFolder) -> str | None:
    """Return why the searches of the run cannot be ended; None if they can."""
    from vflops.launch.cancel import active_jobs

    workers = _workers(folder)
    if active := active_jobs(folder, workers):
        return f"job {', '.join(map(str, sorted(active)))} is still active"
    events = folder.history(0).events("job-given-up")
    given_up = {event.payload(JobGivenUp).job for event in events}
    for record in workers:
        logs = folder.job_history(record.job)
        last = logs[-1].events[-1].kind if logs and logs[-1].events else None
        if last not in ("stopped", "end") and record.job not in given_up:
            how = "has not begun" if last is None else f"was not stopped: its log ends with {last}"
            return f"job {record.job} {how}"
    return None
