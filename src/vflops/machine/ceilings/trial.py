"""The candidates of a search: settings, their calls and samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vflops.machine.ceilings.sample_statistics import median
from vflops.record.formats.measurement import Trial


@dataclass(frozen=True)
class Kernel:
    """A call to time, and a check of its result."""

    call: Callable[[], object]
    check: Callable[[], float]
    """Fills the output with NaN, makes one call and returns the relative error."""


@dataclass(frozen=True)
class Candidate:
    """A setting that may be the fastest."""

    setting: dict[str, int | str]
    work: int
    """FLOPs or bytes per call."""
    build: Callable[[], Kernel]
    family: str = ""
    """Candidates of one family have similar speeds, from which the time of a trial is estimated."""


@dataclass
class TimedCandidate:
    """A candidate whose result was correct, and its samples."""

    candidate: Candidate
    error: float
    times_s: list[float]
    threads: int | None
    """The fastest thread count of a CPU; None for an accelerator."""

    @property
    def call_s(self) -> float:
        """Median seconds of a call."""
        return median(self.times_s)

    @property
    def speeds(self) -> list[float]:
        """Work per second of each sample."""
        return [self.candidate.work / time_s for time_s in self.times_s]

    @property
    def speed(self) -> float:
        """Median work per second."""
        return median(self.speeds)

    @property
    def setting(self) -> dict[str, int | str]:
        """The setting of the candidate, with the number of threads on a CPU."""
        setting = self.candidate.setting
        return setting if self.threads is None else {**setting, "threads": self.threads}

    @property
    def trial(self) -> Trial:
        """The trial as it is recorded."""
        return Trial(setting=self.setting, value=self.speed)
