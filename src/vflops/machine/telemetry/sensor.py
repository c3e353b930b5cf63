"""The interface of a sensor, which names its series and reads one value for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vflops.machine.probe import filled_text, reason_of
from vflops.record.formats.telemetry import Absent, Series


class Sensor(Protocol):
    """Reads one or more series on one machine."""

    @property
    def absent(self) -> Sequence[Absent]:
        """The series that are absent, with the reasons."""
        ...

    def series(self) -> Sequence[Series]:
        """Return the series that the sensor reads; the same at every call."""
        ...

    def read(self) -> list[float | None]:
        """Return one value per series; None if the reading failed."""
        ...


@dataclass(frozen=True)
class Channel:
    """One series and the function that reads its value."""

    series: Series
    read: Callable[[], float]
    """May raise any exception; the value is then None."""


class Channels:
    """A sensor that reads its series one by one; series whose first reading fails are absent."""

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
        """Return the series whose first reading succeeded."""
        return [channel.series for channel in self._channels]

    def read(self) -> list[float | None]:
        """Return one value per series; None for those whose reading failed."""
        return [_read_value(channel.read) for channel in self._channels]


def number_reader(path: Path, scale: float = 1) -> Callable[[], float]:
    """Return a function that reads the number in a small file of ``/sys``, times ``scale``."""
    return lambda: scale * float(filled_text(path))


def _read_value(read: Callable[[], float]) -> float | None:
    try:
        return read()
    except Exception:  # for example, a device was lost or a file was removed
        return None
