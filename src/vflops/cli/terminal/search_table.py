"""The workers of a search as a person sees them: a live table, or plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.cli.terminal.jobs_table import JobsView
from vflops.results.score.figure_text import count, number
from vflops.results.score.search_score import regulated
from vflops.units import quantity, seconds
from vflops.workloads.automl.worker_progress import WorkerProgress

if TYPE_CHECKING:
    from rich.table import Table

    from vflops.launch.controller import JobProgress

_COLUMNS = ("worker", "state", "where", "candidate", "epoch", "accuracy", "trained", "best")
_WORDS = 4
"""The first columns are words, the others numbers."""


class SearchView(JobsView):
    """Shows where all workers stand, and what the search has come to."""

    def line(self, jobs: Sequence[JobProgress]) -> str:
        """Return the search in one line."""
        workers = [each.observer for each in jobs if isinstance(each.observer, WorkerProgress)]
        running = sum(each.state == "running" for each in jobs)
        told = [f"{running} of {count(len(jobs), 'worker')} at work", *_so_far(workers)]
        left_s = max(
            (
                job.observer.left_s()
                for job in jobs
                if isinstance(job.observer, WorkerProgress) and job.state != "ended"
            ),
            default=0.0,
        )
        # A replay takes as long as it takes: its time is that of all candidates, not of a clock.
        if left_s and not any(each.record.settings["search"]["ledger"] for each in jobs):
            told.append(f"{seconds(float(round(left_s)))} left")
        return ", ".join(told)

    def _table(self, rows: int) -> Table:
        """Return the workers that fit, those at work first."""
        from rich.table import Table

        table = Table(title=self.line(self._jobs), title_justify="left", box=None, pad_edge=False)
        for place, name in enumerate(_COLUMNS):
            table.add_column(name, justify="left" if place < _WORDS else "right")
        order = sorted(self._jobs, key=lambda each: (each.state != "running", each.record.job))
        for each in order[:rows]:
            table.add_row(*_row(each))
        return table


def _so_far(workers: Sequence[WorkerProgress]) -> list[str]:
    """Candidates, the best of them, and the score, once there is one."""
    told = [count(sum(each.trained for each in workers), "candidate") + " trained"]
    elapsed_s = max((each.elapsed_s for each in workers), default=0.0)
    ops = sum(each.ops for each in workers)
    known = [each for each in workers if each.best is not None]
    best = max(known, key=lambda each: each.best or 0.0, default=None)
    if best is not None:
        told.append(f"best accuracy {number(best.best or 0.0)} ({best.best_candidate})")
    if ops and elapsed_s:
        told.append(quantity(ops / elapsed_s, "OPS"))
        weighed = regulated(ops / elapsed_s, None if best is None else 1 - (best.best or 0.0))
        if weighed is not None:
            told.append(f"regulated {quantity(weighed, 'OPS')}")
    return told


def _row(job: JobProgress) -> tuple[str, ...]:
    worker, at = job.record.worker, job.observer
    assert worker is not None and isinstance(at, WorkerProgress)
    busy = job.state == "running"
    return (
        str(worker.worker + 1),
        job.state,
        job.location,
        at.candidate or ("waits for one" if busy else ""),
        f"{at.epoch:.2f}" if at.candidate else "",
        number(at.accuracy) if at.candidate and at.accuracy is not None else "",
        str(at.trained),
        "" if at.best is None else number(at.best),
    )
