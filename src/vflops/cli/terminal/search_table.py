"""Progress of a search's workers: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.cli.terminal.jobs_table import JobsView
from vflops.metrics import regulated_score_so_far
from vflops.results.score.figure_text import number
from vflops.units import count, quantity, seconds
from vflops.workloads.automl.worker_progress import WorkerProgress

if TYPE_CHECKING:
    from rich.table import Table

    from vflops.launch.controller import JobProgress

_COLUMNS = ("worker", "state", "where", "candidate", "epoch", "accuracy", "trained", "best")
_TEXT_COLUMNS = 4
"""How many of the first columns are text; the others are numbers."""


class SearchView(JobsView):
    """Shows the progress of all workers and of the search."""

    job_kind = "worker"

    def job_number(self, job: JobProgress) -> int:
        """Return the number of a worker as the table shows it."""
        worker = job.record.worker
        return worker.worker + 1 if worker else job.record.job

    def line(self, jobs: Sequence[JobProgress]) -> str:
        """Return the progress of the search in one line."""
        workers = [job.observer for job in jobs if isinstance(job.observer, WorkerProgress)]
        running = sum(job.state == "running" for job in jobs)
        parts = [f"{running} of {count(len(jobs), 'worker')} running", *_progress_parts(workers)]
        left_s = max(
            (
                job.observer.left_s()
                for job in jobs
                if isinstance(job.observer, WorkerProgress) and job.state != "ended"
            ),
            default=0.0,
        )
        # A replay has no deadline: it ends with its last candidate.
        if left_s and not any(job.record.settings["search"]["ledger"] for job in jobs):
            parts.append(f"{seconds(float(round(left_s)))} left")
        return ", ".join(parts)

    def _table(self, rows: int) -> Table:
        """Return a table of at most ``rows`` workers, running ones first."""
        from rich.table import Table

        table = Table(title=self.line(self._jobs), title_justify="left", box=None, pad_edge=False)
        for index, name in enumerate(_COLUMNS):
            table.add_column(name, justify="left" if index < _TEXT_COLUMNS else "right")
        order = sorted(self._jobs, key=lambda job: (job.state != "running", job.record.job))
        for job in order[:rows]:
            table.add_row(*_row(job))
        return table


def _progress_parts(workers: Sequence[WorkerProgress]) -> list[str]:
    """Return the number of candidates, the best of them, and the score so far."""
    parts = [count(sum(worker.trained for worker in workers), "candidate") + " trained"]
    elapsed_s = max((worker.elapsed_s for worker in workers), default=0.0)
    ops = sum(worker.ops for worker in workers)
    with_accuracy = [worker for worker in workers if worker.best is not None]
    best = max(with_accuracy, key=lambda worker: worker.best or 0.0, default=None)
    if best is not None:
        parts.append(f"best accuracy {number(best.best or 0.0)} ({best.best_candidate})")
    if ops and elapsed_s:
        ops_per_s = ops / elapsed_s
        parts.append(quantity(ops_per_s, "OPS"))
        error = None if best is None else 1 - (best.best or 0.0)
        regulated = regulated_score_so_far(flops=ops_per_s, error=error)
        if regulated is not None:
            parts.append(f"regulated {quantity(regulated, 'OPS')}")
    return parts


def _row(job: JobProgress) -> tuple[str, ...]:
    worker, progress = job.record.worker, job.observer
    assert worker is not None and isinstance(progress, WorkerProgress)
    is_running = job.state == "running"
    return (
        str(worker.worker + 1),
        job.state,
        job.location,
        progress.candidate or ("waiting" if is_running else ""),
        f"{progress.epoch:.2f}" if progress.candidate else "",
        number(progress.accuracy) if progress.candidate and progress.accuracy is not None else "",
        str(progress.trained),
        "" if progress.best is None else number(progress.best),
    )
