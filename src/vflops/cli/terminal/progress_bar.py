"""Progress of long operations: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from vflops.units import integer, percent, quantity, seconds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LINE_EVERY_S = 5.0


class Bar:
    """Shows ``done`` of ``total`` on stderr; ``what`` is the unit, e.g. ``images packed``."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._start_s = self._last_s = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=None)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """Show ``done`` of ``total``."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
            return
        now_s = time.monotonic()
        if not self._quiet and now_s - self._last_s >= _LINE_EVERY_S:
            self._last_s = now_s
            print(self._line(done, total, now_s - self._start_s), file=sys.stderr, flush=True)

    def _line(self, done: int, total: int, elapsed_s: float) -> str:
        amounts = [
            quantity(value, "B") if self._what.startswith("bytes") else integer(value)
            for value in (done, total)
        ]
        remaining_s = elapsed_s * (total - done) / done if done else None
        estimate = "" if remaining_s is None else f", about {seconds(remaining_s)} left"
        return f"  {amounts[0]} of {amounts[1]} {self._what} ({percent(done / total)}{estimate})"
