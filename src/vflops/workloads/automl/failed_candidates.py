"""Candidates that a rank could not train, recorded beside the log, which the first rank writes.

The worker restarts after such a failure, because other ranks may wait for this one within a step;
its next attempt writes the failure to the log.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from vflops.errors import FolderError
from vflops.record.files.document import Document
from vflops.workloads.automl.search_events import CandidateFailed


class FailedCandidate(Document):
    """``rank-<r>.candidate.json`` of an attempt: the candidate that ended it."""

    schema_name: ClassVar[str] = "vflops.failed-candidate"

    failed: CandidateFailed


def write_failed_candidate(attempt: Path, rank: int, failed: CandidateFailed) -> None:
    """Write the file of a rank."""
    FailedCandidate(failed=failed).write(attempt / f"rank-{rank}.candidate.json")


def read_failed_candidates(job: Path) -> list[CandidateFailed]:
    """Return the candidates that ranks could not train in any attempt at a job, each once."""
    found: dict[str, CandidateFailed] = {}
    for path in sorted(job.glob("*/rank-*.candidate.json")):
        with suppress(FolderError):  # it was not written completely: the candidate is tried again
            failed = FailedCandidate.read(path).failed
            earlier = found.get(failed.candidate)
            if earlier is None or failed.out_of_memory > earlier.out_of_memory:
                found[failed.candidate] = failed
    return list(found.values())
