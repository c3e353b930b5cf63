"""Training as a person sees it: one live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vflops.record.training import JobRecord
from vflops.units import quantity, seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

_LINE_S = 5.0
"""Seconds between two plain lines."""


class TrainingView:
    """Shows one training job from what it writes down."""

    def __init__(
        self, console: Console, record: JobRecord, planned: int, ops_per_sample: int | None
    ) -> None:
        self._console = console
        self._record = record
        self._planned = planned
        self._ops = ops_per_sample
        self._qualities: list[tuple[float, float]] = []
        self._standing: dict[str, Any] = {}
        self._rate: float | None = None
        self._before: tuple[float, int] | None = None
        self._line_s = 0.0
        self._live: Live | None = None
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "job": self._job,
            "resumed": self._resumed,
            "fallback": self._fallback,
            "progress": self._progress,
            "evaluation": self._evaluation,
            "finished": self._finished,
        }
        if console.is_terminal:
            from rich.live import Live

            self._live = Live(console=console, refresh_per_second=4, transient=True)
            self._live.start()
        else:
            self._say(self._title())

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Take in what the job wrote down."""
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(data)
        if self._live is not None:
            self._live.update(self._table())

    def close(self) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            if self._standing:
                self._console.print(self._table())

    def _job(self, data: dict[str, Any]) -> None:
        self._device = f"{data['device_name']}, {data['ranks']} rank(s), {data['precision']}"

    def _resumed(self, data: dict[str, Any]) -> None:
        self._say(f"  goes on from {data['file']} at step {data['step']}")

    def _fallback(self, data: dict[str, Any]) -> None:
        self._say(f"  checkpoint {data['file']} cannot be used ({data['reason']}): the one before")

    def _progress(self, data: dict[str, Any]) -> None:
        phases = data["phases"]
        spent_s = phases["training"] + phases["data"] + phases["checkpointing"]
        if self._before is not None and spent_s > self._before[0]:
            self._rate = (data["samples"] - self._before[1]) / (spent_s - self._before[0])
        self._before = (spent_s, data["samples"])
        self._standing = data
        if self._live is None and time.monotonic() - self._line_s >= _LINE_S:
            self._line_s = time.monotonic()
            self._say("  " + ", ".join(f"{name} {value}" for name, value in self._rows()))

    def _evaluation(self, data: dict[str, Any]) -> None:
        self._qualities.append((data["epoch"], data["quality"]))
        if self._live is None:
            goal = self._record.goal
            self._say(
                f"  epoch {data['epoch']:g}: {goal.quality} {data['quality']:.4f}, "
                f"target {goal.target:g}"
            )

    def _finished(self, data: dict[str, Any]) -> None:
        self._standing = {**self._standing, **data}

    def _title(self) -> str:
        record = self._record
        again = f", {record.job} of {self._planned}" if self._planned > 1 else ""
        return f"training {record.workload}, seed {record.seed}{again} …"

    def _rows(self) -> list[tuple[str, str]]:
        """What is known by now, in the order in which it is read."""
        now, goal = self._standing, self._record.goal
        epochs = self._record.settings.get("train", {}).get("epochs")
        rows = [("epoch", f"{now.get('epoch', 0):.2f}" + (f" of {epochs}" if epochs else ""))]
        if now.get("loss") is not None:
            rows.append(("loss", f"{now['loss']:.4f}"))
        if self._qualities:
            reached = self._qualities[-1][1]
            rows.append((goal.quality, f"{reached:.4f} (target {goal.target:g})"))
        if self._rate:
            rows.append(("speed", quantity(self._rate, "samples/s")))
            if self._ops:
                rows.append(("FLOPS", quantity(self._rate * self._ops, "FLOPS")))
            left = (epochs or 0) * self._record.data.train - now.get("samples", 0)
            if epochs and left > 0:
                rows.append(("left", f"about {seconds(left / self._rate)}"))
        return rows

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(title=self._title(), title_justify="left", show_header=False, box=None)
        for name, value in self._rows():
            table.add_row(name, value)
        if self._qualities:
            table.add_row(
                "curve", _curve([q for _, q in self._qualities], self._record.goal.target)
            )
        return table

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._console.print(text)
        else:
            print(text, file=sys.stderr)


def _curve(qualities: list[float], target: float) -> str:
    """The qualities so far as a line of bars, full height at the target or the best."""
    bars = "▁▂▃▄▅▆▇█"
    top = max([*qualities, target, 1e-9])
    return "".join(bars[min(int(q / top * len(bars)), len(bars) - 1)] for q in qualities[-60:])
