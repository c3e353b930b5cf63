"""Reads and checks the JSON lines that a command prints among its other output."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from vflops.errors import RunFailed, unknown_name
from vflops.metrics.quality import Better
from vflops.record.formats.job_events import PHASES

KEYS = ("samples", "loss", "quality", "evaluated", "phase")
_OURS = ("samples", "quality", "phase")
"""A JSON object with one of these keys is a report; others belong to the script."""
_MEANT = re.compile(rf"""\s*\{{\s*["']({"|".join(KEYS)})["']\s*:""")
"""The beginning of a report, also if it is not valid JSON: a Python dict, a truncated line."""
_SPOKEN_PHASES = PHASES[1:]
"""Start-up is before the first line of a script, so it is never reported."""
_MOST_SAMPLES = 2**63 - 1


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

    better: Better
    validation: int | None
    samples: int = 0
    """The last reported number."""
    _line: int = 0

    def read(self, text: str) -> Report | None:
        """Return the report in a line of output; None if the line is not a report."""
        self._line += 1
        if not text.lstrip().startswith("{"):
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            if _MEANT.match(text):
                raise self._wrong(text, f"it is not a JSON object: {error}") from error
            return None
        if not any(key in data for key in _OURS):
            return None
        try:
            report = self._checked(data)
        except ValueError as error:
            raise self._wrong(text, str(error)) from error
        if report.samples is not None:
            self.samples = report.samples
        return report

    def _checked(self, data: dict[str, Any]) -> Report:
        for key in data:
            if key not in KEYS:
                fault = unknown_name("key", key, KEYS)
                raise ValueError(f"{fault.message}; {fault.hint}")
        if "phase" in data:
            if len(data) > 1:
                raise ValueError("a phase must be the only key in its line")
            if data["phase"] not in _SPOKEN_PHASES:
                expected = ", ".join(_SPOKEN_PHASES)
                raise ValueError(f"phase is {data['phase']!r}: expected one of {expected}")
            return Report(phase=data["phase"])
        if "samples" not in data:
            raise ValueError("a quality needs samples, the number trained on so far")
        samples = _whole("samples", data["samples"])
        if samples < self.samples:
            raise ValueError(f"samples fell from {self.samples} to {samples}: report the total")
        loss = _number("loss", data["loss"]) if data.get("loss") is not None else None
        if "quality" not in data:
            if "evaluated" in data:
                raise ValueError("evaluated is only valid together with quality")
            return Report(samples=samples, loss=loss)
        return Report(samples, loss, self._quality(data["quality"]), self._evaluated(data))

    def _quality(self, value: object) -> float:
        quality = _number("quality", value)
        if not math.isfinite(quality) or quality < 0 or (quality == 0 and self.better == "lower"):
            least = "more than 0" if self.better == "lower" else "0 or more"
            raise ValueError(f"quality is {value!r}: expected a finite number, {least}")
        return quality

    def _evaluated(self, data: dict[str, Any]) -> int:
        evaluated = data.get("evaluated", self.validation)
        if evaluated is None:
            raise ValueError(
                "evaluated, the number of samples in the evaluation, is neither in the line nor in "
                "the settings (--set validation=N)"
            )
        return _whole("evaluated", evaluated, least=1)

    def _wrong(self, text: str, why: str) -> RunFailed:
        shown = text.strip()
        shown = shown if len(shown) <= 120 else f"{shown[:119]}…"
        return RunFailed(
            f"line {self._line} of the command's output cannot be used: {why}: {shown}",
            hint="docs/how-to/workloads.md says what a script may print; fix it, start a new run",
        )


def _whole(name: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_SAMPLES:
        raise ValueError(f"{name} is {value!r}: expected an integer of at least {least}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}: expected a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf
