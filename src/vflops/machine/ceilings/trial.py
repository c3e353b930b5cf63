"""What a search tries: a setting, the call it stands for, and the samples taken of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vflops.machine.ceilings.sample_statistics import median
from vflops.record.formats.measurement import Trial


@dataclass(frozen=True)
class Kernel:
    """A call that is ready to be timed."""

    call: Callable[[], object]
    check: Callable[[], float]
    """Makes one call into a poisoned output; the relative error of what it wrote."""


@dataclass(frozen=True)
class Candidate:
    """A setting that may be the fastest."""

    setting: dict[str, int | str]
    work: int
    """FLOPs or bytes of a call."""
    build: Callable[[], Kernel]
    family: str = ""
    """Candidates of one family run at a similar speed, from which their time is foretold."""


@dataclass
class Tried:
    """A candidate whose result was right, and its samples."""

    candidate: Candidate
    error: float
    times_s: list[float]
    threads: int | None
    """Of a CPU, where it was fastest."""

    @property
    def call_s(self) -> float:
        """Median seconds of a call."""
        return median(self.times_s)

    @property
    def speeds(self) -> list[float]:
        """Work a second, of each sample."""
        return [self.candidate.work / time_s for time_s in self.times_s]

    @property
    def speed(self) -> float:
        """Median work a second."""
        return median(self.speeds)

    @property
    def setting(self) -> dict[str, int | str]:
        """The candidate's, with the number of threads where that matters."""
        own = self.candidate.setting
        return own if self.threads is None else {**own, "threads": self.threads}

    @property
    def trial(self) -> Trial:
        """For the record."""
        return Trial(setting=self.setting, value=self.speed)
