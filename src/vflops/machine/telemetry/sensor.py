"""What a sensor is: it names its series, and reads one value for each when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vflops.machine.probe import reason_of, text
from vflops.record.formats.telemetry import Absent, Series


class Sensor(Protocol):
    """Reads some series of one machine."""

    @property
    def absent(self) -> Sequence[Absent]:
        """What this sensor looked for and did not find."""
        ...

    def series(self) -> Sequence[Series]:
        """What it reads; the same at every call."""
        ...

    def read(self) -> list[float | None]:
        """One value a series, None where this reading failed."""
        ...


@dataclass(frozen=True)
class Channel:
    """One series and the way to its value."""

    series: Series
    read: Callable[[], float]
    """May raise anything: the reading is then null."""


class Channels:
    """A sensor whose series are read one by one; those that fail at first are absent."""

    def __init__(self, candidates: Iterable[Channel], absent: Iterable[Absent] = ()) -> None:
        self.absent: list[Absent] = list(absent)
        self._channels: list[Channel] = []
        for channel in candidates:
            try:
                channel.read()
            except Exception as error:
                reason = reason_of(error, channel.series.source)
                self.absent.append(Absent(what=channel.series.id, reason=reason))
            else:
                self._channels.append(channel)

    def series(self) -> list[Series]:
        """The series that answered when asked first."""
        return [channel.series for channel in self._channels]

    def read(self) -> list[float | None]:
        """One value a series; a thing that stopped answering is None."""
        return [_value(channel.read) for channel in self._channels]


def number(path: Path, scale: float = 1) -> Callable[[], float]:
    """A way to the number that a small file of ``/sys`` holds, times ``scale``."""
    return lambda: scale * float(text(path))


def _value(read: Callable[[], float]) -> float | None:
    try:
        return read()
    except Exception:  # a device was lost, a file is gone: the sample says null, the run goes on
        return None
