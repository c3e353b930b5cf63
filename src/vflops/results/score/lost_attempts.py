"""The attempts at jobs that were lost, as rows of text: when, on which node, and why."""

from __future__ import annotations

from contextlib import suppress

from vflops.errors import FolderError
from vflops.record.formats.job_events import JobLost
from vflops.record.readout.contents import Contents
from vflops.units import count

_MOST_LISTED = 16
LOST = ("lost", "job", "node", "reason", "costs")
"""The columns of ``lost_rows``."""


def lost_rows(contents: Contents) -> list[tuple[str, ...]]:
    """Return a row for each lost attempt; if there are many, for the first ones."""
    rows: list[tuple[str, ...]] = []
    for event in contents.history.events("job-lost")[:_MOST_LISTED]:
        with suppress(FolderError):  # `vflops check` reports an invalid event
            lost = event.payload(JobLost)
            nodes = ", ".join(lost.suspects) or lost.where or "—"
            began = f"{event.utc[:16].replace('T', ' ')} UTC"
            costs = "no attempt" if lost.excused else "an attempt"
            rows.append((began, str(lost.job), nodes, lost.reason, costs))
    return rows


def lost_line(contents: Contents) -> str:
    """Return how many attempts were lost, and how many are listed; empty if none was."""
    number = len(contents.history.events("job-lost"))
    listed = f"; the first {_MOST_LISTED} are listed" if number > _MOST_LISTED else ""
    return f"{count(number, 'attempt')} at jobs were lost{listed}" if number else ""
