"""The base models of an ensemble as a person sees them: a live table, or plain lines elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from vflops.results.score.figure_text import count, number
from vflops.units import quantity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from vflops.launch.controller import JobProgress

_LINE_S = 5.0
"""Seconds between two plain lines."""


class JobsView:
    """Shows where all jobs stand."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._line_s = 0.0
        self._jobs: Sequence[JobProgress] = ()
        self._keyboard: Keyboard | None = None

    def show(self, jobs: Sequence[JobProgress]) -> None:
        """Take in where they stand now."""
        self._jobs = jobs
        if not self._console.is_terminal:
            if time.monotonic() - self._line_s >= _LINE_S:
                self._line_s = time.monotonic()
                print(f"  {self.line(jobs)}", file=sys.stderr)
            return
        self._mind_the_keyboard(over=all(each.over for each in jobs))
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        self._live.update(self._table(max(self._console.height - 4, 4)))

    def line(self, jobs: Sequence[JobProgress]) -> str:
        """Return all of them in one line."""
        return _line(jobs)

    def close(self) -> None:
        """Leave the last state on the screen, and the keyboard as it was."""
        self._mind_the_keyboard(over=True)
        if self._live is not None:
            self._pause()
            self._console.print(self._table(len(self._jobs)))

    def _mind_the_keyboard(self, *, over: bool) -> None:
        """Ctrl-C is a question while there are jobs that it could be about, and only then."""
        if over and self._keyboard is not None:
            self._keyboard.close()
            self._keyboard = None
        elif not over and self._keyboard is None and sys.stdin.isatty():
            self._keyboard = Keyboard()
        if self._keyboard is not None and self._keyboard.struck:
            self._pause()
            self._keyboard.ask()

    def _pause(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self, rows: int) -> Table:
        """Return the jobs that fit, those that run first; the rest is counted in the title."""
        from rich.table import Table

        table = Table(title=self.line(self._jobs), title_justify="left", box=None, pad_edge=False)
        for name in ("model", "state", "where"):
            table.add_column(name)
        for name in ("epoch", "quality", "FLOPS", "attempt"):
            table.add_column(name, justify="right")
        order = sorted(
            self._jobs, key=lambda each: (each.shown_state != "running", each.record.job)
        )
        for each in order[:rows]:
            bag = each.record.bag
            table.add_row(
                str(bag.model + 1 if bag else each.record.job),
                each.shown_state,
                each.location,
                f"{each.epoch:.2f}",
                "" if each.quality is None else number(each.quality),
                "" if each.flops is None else quantity(each.flops, "FLOPS"),
                str(each.attempts or ""),
            )
        return table


class Keyboard:
    """Ctrl-C as a question: it is asked when the jobs are looked at, never amid a submission.

    A second Ctrl-C before there is an answer is one.
    """

    def __init__(self) -> None:
        self.struck = False
        self._before = signal.signal(signal.SIGINT, self._strike)

    def close(self) -> None:
        """Ctrl-C is again what it was."""
        signal.signal(signal.SIGINT, self._before)

    def ask(self) -> None:
        """Leave the jobs, end them, or go on, as the person wants."""
        from vflops.launch.controller import Leave

        words = "leave the jobs running (l), end them with checkpoints (e), or go on (Enter)? "
        print(f"\n{words}", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        wish = answer.strip().lower()[:1]
        if wish == "l":
            raise Leave
        if wish == "e" or not answer:  # the terminal is gone
            raise KeyboardInterrupt
        self.struck = False

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self.struck:
            raise KeyboardInterrupt
        self.struck = True


def _line(jobs: Sequence[JobProgress]) -> str:
    """Return all of them in one line."""
    states = Counter(each.shown_state for each in jobs)
    said = ", ".join(f"{states[state]} {state}" for state in states)
    places = {each.location for each in jobs}
    if [*states] == ["waiting"] and len(places) == 1 and places != {""}:
        said += f" ({places.pop()})"  # all of them in a queue, in its own words
    epochs = [each.epoch for each in jobs]
    known = [each.quality for each in jobs if each.quality is not None]
    line = f"{count(len(jobs), 'model')}: {said}; epoch {min(epochs):.2f} to {max(epochs):.2f}"
    if known:
        line += f", {jobs[0].record.goal.quality} {number(min(known))} to {number(max(known))}"
    speeds = [each.flops for each in jobs if each.flops and each.state in ("running", "ended")]
    if speeds:
        line += f", together {quantity(sum(speeds), 'FLOPS')}"
    return line
