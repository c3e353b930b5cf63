"""Reads and checks the JSON lines that a command prints among its other output."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from vflops.errors import RunFailed, unknown_name
from vflops.metrics.quality import bounds_fault
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import PHASES

KEYS = ("samples", "loss", "quality", "evaluated", "phase")
_REPORT_KEYS = ("samples", "quality", "phase")
"""A JSON object with one of these keys is a report; others belong to the script."""
_REPORT_START = re.compile(rf"""\s*\{{\s*["']({"|".join(KEYS)})["']\s*:""")
"""The beginning of a report, even if it is not valid JSON: a Python dict or a truncated line."""
_REPORTED_PHASES = PHASES[1:]
"""Start-up ends with the first line of a script, so a script never reports it."""
_MAX_SAMPLES = 2**63 - 1


@dataclass(frozen=True)
class Report:
    """One report of the command."""

    samples: int | None = None
    """Samples trained on so far, over all ranks and attempts."""
    loss: float | None = None
    quality: float | None = None
    evaluated: int | None = None
    phase: str | None = None


@dataclass
class Reader:
    """Reads the lines of one attempt, in order."""

    goal: Goal
    validation: int | None
    samples: int = 0
    """The last reported number of samples."""
    _line: int = 0

    def read(self, text: str) -> Report | None:
        """Return the report in a line of output; None if the line is not a report."""
        self._line += 1
        if not text.lstrip().startswith("{"):
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            if _REPORT_START.match(text):
                raise self._error(text, f"it is not a JSON object: {error}") from error
            return None
        if not any(key in data for key in _REPORT_KEYS):
            return None
        try:
            report = self._parse(data)
        except ValueError as error:
            raise self._error(text, str(error)) from error
        if report.samples is not None:
            self.samples = report.samples
        return report

    def _parse(self, data: dict[str, Any]) -> Report:
        for key in data:
            if key not in KEYS:
                fault = unknown_name("key", key, KEYS)
                raise ValueError(f"{fault.message}; {fault.hint}")
        if "phase" in data:
            if len(data) > 1:
                raise ValueError("a phase must be the only key in its line")
            if data["phase"] not in _REPORTED_PHASES:
                expected = ", ".join(_REPORTED_PHASES)
                raise ValueError(f"phase is {data['phase']!r}: expected one of {expected}")
            return Report(phase=data["phase"])
        if "samples" not in data:
            raise ValueError("a quality needs samples, the number trained on so far")
        samples = _require_integer("samples", data["samples"])
        if samples < self.samples:
            raise ValueError(f"samples fell from {self.samples} to {samples}: report the total")
        loss = _require_number("loss", data["loss"]) if data.get("loss") is not None else None
        if "quality" not in data:
            if "evaluated" in data:
                raise ValueError("evaluated is only valid together with quality")
            return Report(samples=samples, loss=loss)
        return Report(samples, loss, self._quality(data["quality"]), self._evaluated(data))

    def _quality(self, value: object) -> float:
        quality = _require_number("quality", value)
        if not math.isfinite(quality) or quality < 0:
            raise ValueError(f"quality is {value!r}: expected a finite number, 0 or more")
        fault = bounds_fault(self.goal.quality, quality, self.goal.bounds)
        if fault:
            share = " (a share, not percent)" if self.goal.bounds == (0, 1) else ""
            raise ValueError(
                f"{fault}: report it in this range{share}, or set other bounds: "
                "--set 'command.bounds=[0, 100]'"
            )
        return quality

    def _evaluated(self, data: dict[str, Any]) -> int:
        evaluated = data.get("evaluated", self.validation)
        if evaluated is None:
            raise ValueError(
                "evaluated, the number of samples in the evaluation, is neither in the line nor in "
                "the settings (--set validation=N)"
            )
        return _require_integer("evaluated", evaluated, minimum=1)

    def _error(self, text: str, reason: str) -> RunFailed:
        excerpt = text.strip()
        excerpt = excerpt if len(excerpt) <= 120 else f"{excerpt[:119]}…"
        return RunFailed(
            f"line {self._line} of the command's output cannot be used: {reason}: {excerpt}",
            hint="see docs/how-to/workloads.md, fix the script, and start a new run",
        )


def _require_integer(name: str, value: object, minimum: int = 0) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not minimum <= value <= _MAX_SAMPLES
    ):
        raise ValueError(f"{name} is {value!r}: expected an integer of at least {minimum}")
    return value


def _require_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}: expected a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf
