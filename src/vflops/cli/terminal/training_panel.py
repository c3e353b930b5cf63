"""Progress of one training job: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vflops.cli.terminal.console import cell
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import WORK_PHASES
from vflops.results.score.figure_text import number, rate
from vflops.units import percent, quantity, seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

_LINE_EVERY_S = 5.0
"""Seconds between two plain lines."""
_SPEED_EVENTS = 10
"""How many progress events the speed is averaged over, since checkpoints distort single ones."""
_BARS = "▁▂▃▄▅▆▇█"


class TrainingView:
    """Shows one training job from its events."""

    def __init__(
        self, console: Console, record: JobRecord, place: str, ops_per_sample: int | None
    ) -> None:
        self._console = console
        self._record = record
        self._place = place
        self._ops = ops_per_sample
        self._device = ""
        self._state = "starting"
        self._first_sample = 0
        self._loss_step: int | None = None
        self._qualities: list[float] = []
        self._latest: dict[str, Any] = {}
        self._speed_points: deque[tuple[float, int]] = deque(maxlen=_SPEED_EVENTS)
        self._line_s = time.monotonic()
        self._live: Live | None = None
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "job": self._job,
            "resumed": self._resumed,
            "stopping": self._stopping,
            "rank-failed": self._rank_failed,
            "kernels": self._kernels,
            "fallback": self._fallback,
            "progress": self._progress,
            "evaluation": self._evaluation,
            "finished": self._finished,
        }
        if console.is_terminal:
            from rich.live import Live
            from rich.spinner import Spinner

            # A spinner shows activity while the model compiles, which can take minutes.
            self._spinner = Spinner("dots")
            self._live = Live(self._panel(), console=console, refresh_per_second=8, transient=True)
            self._live.start()
        else:
            self._say(f"{self._title()} …")

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Show an event of the job."""
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(data)
        if self._live is not None:
            self._live.update(self._panel())

    def close(self) -> None:
        """Leave the last state on the screen, in one line."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            if self._latest:
                self._console.print(cell(f"{self._title()}: {self._row_text()}"))

    def _job(self, data: dict[str, Any]) -> None:
        ranks = f"{data['ranks']} ranks" if data["ranks"] > 1 else "1 rank"
        compiled = ", compiled" if data["compiled"] else ""
        size = f", {data['parameters']:,} parameters" if data["parameters"] else ""
        framework = data.get("framework", "pytorch")
        by = "" if framework == "pytorch" else f", {framework} {data['framework_version']}"
        self._device = f"{data['device_name']}, {ranks}, {data['precision']}{compiled}{by}{size}"
        self._state = "compiling" if data["compiled"] else "training"
        if self._live is None:
            self._say(f"  on {self._device}, batch {data['batch']}")

    def _stopping(self, data: dict[str, Any]) -> None:
        self._state = "stopping"
        self._say(
            "  stopping after this step, with a checkpoint; press Ctrl-C again to stop at once …"
        )

    def _rank_failed(self, data: dict[str, Any]) -> None:
        self._say(f"  {data['message']}: ending the other ranks …")

    def _kernels(self, data: dict[str, Any]) -> None:
        largest = [f"{kernel['kind']} {percent(kernel['share'])}" for kernel in data["kernels"][:4]]
        self._say(f"  kernels: {', '.join(largest)} …")

    def _resumed(self, data: dict[str, Any]) -> None:
        self._first_sample = data["samples"]
        epoch = data["samples"] / (self._record.data.train or 1)
        self._say(f"  resumes at step {data['step']:,}, epoch {epoch:.2f}, from {data['file']}")

    def _fallback(self, data: dict[str, Any]) -> None:
        self._say(
            f"  checkpoint {data['file']} cannot be used ({data['reason']}): using the previous one"
        )

    def _progress(self, data: dict[str, Any]) -> None:
        self._loss_step = data["step"]
        self._update(data)
        if self._live is None and time.monotonic() - self._line_s >= _LINE_EVERY_S:
            self._line_s = time.monotonic()
            self._say(f"  {self._row_text()}")

    def _evaluation(self, data: dict[str, Any]) -> None:
        self._update(data)
        self._qualities.append(data["quality"])
        if self._live is None:
            self._say(f"  epoch {data['epoch']:g}: {self._quality()}")

    def _finished(self, data: dict[str, Any]) -> None:
        self._latest = {**self._latest, **data}
        if self._loss_step != data["step"]:  # the known loss is of an earlier step
            self._latest.pop("loss", None)
        self._state = "ended"
        work_s = sum(data["phases"].get(phase, 0.0) for phase in WORK_PHASES)
        # Show the mean over this attempt, as in the score, not the current speed.
        self._speed_points.clear()
        self._speed_points += [(0.0, self._first_sample), (work_s, data["samples"])]

    def _update(self, data: dict[str, Any]) -> None:
        """Update the progress; only the time of work phases counts for the speed."""
        self._state = "training"
        self._latest = {**self._latest, **data}
        work_s = sum(data["phases"].get(phase, 0.0) for phase in WORK_PHASES)
        self._speed_points.append((work_s, data["samples"]))

    @property
    def _rate(self) -> float | None:
        """Samples per second over the last progress events."""
        if len(self._speed_points) < 2:
            return None
        (first_s, before), (last_s, now) = self._speed_points[0], self._speed_points[-1]
        return (now - before) / (last_s - first_s) if last_s > first_s and now > before else None

    def _title(self) -> str:
        record = self._record
        return f"training {record.workload}, seed {record.seed}{self._place}"

    def _quality(self) -> str:
        goal = self._record.goal
        text = f"{goal.quality} {number(self._qualities[-1])} (target {goal.target:g}"
        return text + (", reached)" if any(map(self._is_good, self._qualities)) else ")")

    def _is_good(self, quality: float) -> bool:
        goal = self._record.goal
        return quality <= goal.target if goal.better == "lower" else quality >= goal.target

    def _rows(self) -> list[tuple[str, str]]:
        """Return the rows of the panel: names and values."""
        latest = self._latest
        epochs = self._record.settings.get("train", {}).get("epochs")
        rows = [("epoch", f"{latest.get('epoch', 0):.2f}" + (f" of {epochs}" if epochs else ""))]
        if latest.get("loss") is not None:
            rows.append(("loss", f"{latest['loss']:.4f}"))
        if self._qualities:
            name = self._record.goal.quality
            rows.append((name, self._quality().removeprefix(f"{name} ")))
        if self._rate:
            unit = self._record.data.unit
            speed = rate(self._rate * unit.count, f"{unit.name}/s") if unit else rate(self._rate)
            rows.append(("speed", speed))
            if self._ops:
                rows.append(("FLOPS", quantity(self._rate * self._ops, "FLOPS")))
            remaining = (epochs or 0) * self._record.data.train - latest.get("samples", 0)
            if remaining > 0 and self._state != "ended":
                rows.append(("left", f"about {seconds(remaining / self._rate)}"))
        return rows

    def _row_text(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._rows())

    def _panel(self) -> RenderableType:
        """Return the table under its title with a spinner."""
        from rich.console import Group

        busy = {"starting": " · starting the processes", "compiling": " · compiling"}
        self._spinner.update(text=self._title() + busy.get(self._state, ""), style="bold")
        return Group(self._spinner, self._table()) if self._device else self._spinner

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        table.add_row("device", self._device)
        if self._latest:
            for name, value in self._rows():
                table.add_row(name, value)
        if self._qualities:
            width = max(self._console.width - 30, 10)
            table.add_row("curve", self._curve(width))
        return table

    def _curve(self, width: int) -> Any:
        """Return the qualities so far as bars, green if they reach the target."""
        from rich.text import Text

        line = Text()
        top = max([*self._qualities, self._record.goal.target, 1e-9])
        for quality in self._qualities[-width:]:
            height = min(max(int(quality / top * len(_BARS)), 0), len(_BARS) - 1)
            line.append(_BARS[height], style="green" if self._is_good(quality) else "")
        return line

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._console.print(text)
        else:
            print(text, file=sys.stderr)
