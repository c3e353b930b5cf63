"""Whether the task of a workload is closed, that is, defined by a profile of vflops.

VFLOPS and time to quality depend on the task, so that only those of closed tasks can be promised.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from vflops.results.score.score_file import Score


class TaskState(NamedTuple):
    """What a score says about the task of a workload."""

    kind: Literal["closed", "open"]
    digest: str | None = None
    """The hash of the task's definition."""
    why: str = ""
    """How an open task differs from the profile's."""


def task_state(score: Score, workload: str) -> TaskState | None:
    """Return the state of a task; None if the workload was not trained, as for a ceiling."""
    for task in score.tasks:
        if task.workload == workload:
            return TaskState(task.kind, task.digest, "; ".join(task.differences))
    return None
