"""Progress of an ensemble's base models: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from vflops.cli.terminal.console import cell, say
from vflops.interruption import unlimited
from vflops.results.score.figure_text import number, rate
from vflops.text import printable
from vflops.units import count, quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from vflops.launch.controller import JobProgress

_MAX_LOSSES, _MAX_LEFT_ROWS = 8, 64
"""How many losses are said at once, and the largest table that is left on the screen."""
_LINE_EVERY_S = 5.0
"""Seconds between two plain lines."""
ANSWER_S = 10.0
"""How long a question waits for its answer: a script that sends Ctrl-C gives none."""


class JobsView:
    """Shows the progress of all jobs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._line_s = 0.0
        self._jobs: Sequence[JobProgress] = ()
        self._keyboard: Keyboard | None = None
        self._losses: dict[int, int] = {}

    def show(self, jobs: Sequence[JobProgress]) -> None:
        """Show the current progress of ``jobs``."""
        self._jobs = jobs
        lost = [job for job in jobs if job.losses > self._losses.get(job.record.job, 0)]
        for job in lost[:_MAX_LOSSES]:
            self._say_loss(job)
        if len(lost) > _MAX_LOSSES:
            more = len(lost) - _MAX_LOSSES
            self._say(f"{more:,} more died; `vflops check` names those that did not finish")
        self._losses |= {job.record.job: job.losses for job in lost}
        if not self._console.is_terminal:
            if time.monotonic() - self._line_s >= _LINE_EVERY_S:
                self._line_s = time.monotonic()
                print(f"  {self.line(jobs)}", file=sys.stderr)
            return
        self._watch_keyboard(over=all(job.over for job in jobs))
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(self._table(max(self._console.height - 4, 4)))

    def _say_loss(self, job: JobProgress) -> None:
        """Say at once that an attempt at a job died, and what happens next."""
        name = f"{self.job_kind} {self.job_number(job)}"
        if job.state == "given up":
            then = f"given up after {count(job.attempts, 'attempt')}"
        else:
            pause_s = max(job.retry_s - time.monotonic(), 0.0)
            started = job.attempts + (job.state == "waiting")
            then = f"attempt {started} of {job.max_attempts}"
            then += f" in {pause_s:.0f} s" if pause_s >= 1 else " now"
        self._say(f"{name} died ({job.reason}): {then}")

    def _say(self, text: str) -> None:
        if self._console.is_terminal:
            self._console.print(cell(text), style="yellow")
        else:
            print(f"  {printable(text)}", file=sys.stderr)

    job_kind = "model"

    def job_number(self, job: JobProgress) -> int:
        """Return the number of a job as the table shows it."""
        bag = job.record.bag
        return bag.model + 1 if bag else job.record.job

    def line(self, jobs: Sequence[JobProgress]) -> str:
        """Return the progress of all jobs in one line."""
        return _summary_line(jobs)

    def close(self) -> None:
        """Leave the last state on the screen, and restore the handling of Ctrl-C."""
        self._watch_keyboard(over=True)
        if self._live is not None:
            self._pause()
            if not 1 < len(self._jobs) <= _MAX_LEFT_ROWS:
                self._console.print(self.line(self._jobs))
            else:
                self._console.print(self._table(len(self._jobs)))

    def _watch_keyboard(self, *, over: bool) -> None:
        """Make Ctrl-C ask a question while jobs run, and only then."""
        if over and self._keyboard is not None:
            self._keyboard.close()
            self._keyboard = None
        elif not over and self._keyboard is None and sys.stdin.isatty():
            self._keyboard = Keyboard()
        if self._keyboard is not None and self._keyboard.pressed:
            self._pause()
            self._keyboard.ask()

    def _pause(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, rows: int) -> Table:
        """Return a table of at most ``rows`` jobs, running ones first; the title counts all."""
        from rich.table import Table

        table = Table(title=self.line(self._jobs), title_justify="left", box=None, pad_edge=False)
        for name in ("model", "state", "where"):
            table.add_column(name)
        unit = _speed_unit(self._jobs)
        for name in ("epoch", "quality", unit, "FLOPS", "attempt"):
            table.add_column(name, justify="right")
        order = sorted(self._jobs, key=lambda job: (job.shown_state != "running", job.record.job))
        for job in order[:rows]:
            table.add_row(
                str(self.job_number(job)),
                job.shown_state,
                job.location,
                f"{job.epoch:.2f}",
                "" if job.quality is None else number(job.quality),
                rate(_speed(job), unit).removesuffix(f" {unit}") if _speed(job) else "",
                "" if job.flops is None else quantity(job.flops, "FLOPS"),
                str(job.attempts or ""),
            )
        return table


class Keyboard:
    """Handles Ctrl-C by asking a question between updates, never while jobs are submitted.

    A second Ctrl-C before the answer interrupts, and so does no answer.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._unlimited = unlimited()  # the user has some time to answer
        self._unlimited.__enter__()
        self._before = signal.signal(signal.SIGINT, self._press)

    def close(self) -> None:
        """Restore the earlier handling of Ctrl-C."""
        signal.signal(signal.SIGINT, self._before)
        self._unlimited.__exit__(None, None, None)

    def ask(self) -> None:
        """Ask whether to leave the jobs running, stop them, or continue."""
        from vflops.launch.controller import Leave

        question = (
            "leave the jobs running (l), end them with checkpoints (e), or continue (Enter)? "
            f"[e in {ANSWER_S:g} s] "
        )
        print(f"\n{question}", end="", file=sys.stderr, flush=True)
        if not select.select([sys.stdin], [], [], ANSWER_S)[0]:
            say(f"\nno answer within {ANSWER_S:g} s: the jobs end with checkpoints")
            raise KeyboardInterrupt
        answer = sys.stdin.readline()
        choice = answer.strip().lower()[:1]
        if choice == "l":
            raise Leave
        if choice == "e" or not answer:  # an empty answer means that the terminal was closed
            raise KeyboardInterrupt
        self.pressed = False

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Return the smallest and the largest value as text; one of them if they look the same."""
    first, last = text(min(values)), text(max(values))
    return first if first == last else f"{first} to {last}"


def _speed_unit(jobs: Sequence[JobProgress]) -> str:
    """Return the unit of the speed: tokens/s if samples are windows of tokens, else samples/s."""
    unit = jobs[0].record.data.unit if jobs else None
    return f"{unit.name if unit else 'samples'}/s"


def _speed(job: JobProgress) -> float | None:
    return job.units_per_s if job.record.data.unit else job.samples_per_s


def _summary_line(jobs: Sequence[JobProgress]) -> str:
    """Return the progress of all jobs in one line."""
    states = Counter(job.shown_state for job in jobs)
    summary = ", ".join(f"{states[state]} {state}" for state in states)
    locations = {job.location for job in jobs}
    if [*states] == ["waiting"] and len(locations) == 1 and locations != {""}:
        summary += f" ({locations.pop()})"  # all jobs wait in one queue
    epochs = [job.epoch for job in jobs]
    qualities = [job.quality for job in jobs if job.quality is not None]
    line = f"{count(len(jobs), 'model')}: {summary}; epoch {_range(epochs, '{:.2f}'.format)}"
    if qualities:
        line += f", {jobs[0].record.goal.quality} {_range(qualities, number)}"
    active = [job for job in jobs if job.state in ("running", "ended")]
    if speeds := [job.flops for job in active if job.flops]:
        line += f", together {quantity(sum(speeds), 'FLOPS')}"
    if rates := [units_per_s for job in active if (units_per_s := job.units_per_s)]:
        line += f", {rate(sum(rates), _speed_unit(jobs))}"
    return line
