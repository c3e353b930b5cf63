"""The thread that reads all sensors during a run; its errors never affect the run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from vflops.machine.probe import reason_of
from vflops.machine.telemetry.cpu_sensor import CpuSensor
from vflops.machine.telemetry.disk_sensor import DeviceSensor, RunDiskSensor
from vflops.machine.telemetry.network_sensor import network_sensor
from vflops.machine.telemetry.nvidia_sensor import nvidia_sensor
from vflops.machine.telemetry.other_programs import OtherPrograms
from vflops.machine.telemetry.rapl_sensor import rapl_sensor
from vflops.machine.telemetry.sensor import Sensor
from vflops.record.files.atomic import cannot_write
from vflops.record.formats.telemetry import Absent, Header
from vflops.record.log.telemetry_log import TelemetryWriter

_SENSOR_TIMEOUT_S = 10.0
"""The longest time by which a hanging driver may delay the start and the end of a run."""

_PROGRAMS_EVERY_S = 30.0
"""How often all processes of the machine are read, which takes some milliseconds."""


class Sampler:
    """Writes telemetry to ``path`` between ``start`` and ``stop``, or inside a ``with`` block.

    It should run in the launcher: in the training process it would compete for the interpreter
    lock. A sample is taken at the start, at the end, and every ``interval_s`` in between.
    """

    def __init__(
        self,
        path: Path,
        folder: Path,
        interval_s: float = 1.0,
        *,
        used: Sequence[int] | None = None,
        node: int = 0,
        pid: int | None = None,
        root: Path = Path("/"),
    ) -> None:
        """``used`` are CUDA's indices of the job's devices; None for all that are visible."""
        if interval_s <= 0:
            raise ValueError(f"interval_s is {interval_s!r}: expected more than 0")
        self.fault: str | None = None
        """Why sampling ended early or never started; None without an error."""
        self._path = path
        self._interval_s = interval_s
        self._node = node
        pid = os.getpid() if pid is None else pid
        self._pid, self._root, self._folder = pid, root, folder
        self._factories: dict[str, Callable[[], Sensor]] = {
            "NVIDIA accelerators": lambda: nvidia_sensor(root=root, used=used),
            "processor energy": lambda: rapl_sensor(root),
            "cpu": lambda: CpuSensor(pid, root),
            "network": lambda: network_sensor(root),
            "disk": lambda: DeviceSensor(folder, root),
            "disk of the run": lambda: RunDiskSensor(pid, root),
        }
        self._sensors: list[Sensor] = []
        self._absent: list[Absent] = []
        self._started = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vflops-telemetry", daemon=True)

    def start(self) -> None:
        """Start the thread and wait for its first sample."""
        try:
            self._thread.start()
        except RuntimeError as error:  # the user's thread limit is reached
            self.fault = f"telemetry cannot start: {error}"
            return
        if not self._started.wait(_SENSOR_TIMEOUT_S):
            self.fault = f"a sensor did not answer within {_SENSOR_TIMEOUT_S:g} s"

    def stop(self) -> None:
        """Take the last sample and end the thread; a second call does nothing."""
        self._stop.set()
        if self._thread.ident is None:
            return  # the thread never started
        self._thread.join(_SENSOR_TIMEOUT_S)
        if self._thread.is_alive():
            self.fault = f"a sensor did not answer within {_SENSOR_TIMEOUT_S:g} s"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._record()
        except OSError as error:
            self.fault = cannot_write(self._path, error).message
        except Exception as error:  # an error here must never end a run
            self.fault = f"telemetry ended: {reason_of(error, str(self._path))}"
        finally:
            self._started.set()

    def _record(self) -> None:
        self._make_sensors()
        writer = TelemetryWriter(self._path, self._header())
        try:
            programs = OtherPrograms(self._pid, self._root, run_folder=self._folder)
            began_s = read_s = time.monotonic()
            self._sample(writer)
            self._started.set()
            while not self._stop.wait(_delay_s(began_s, time.monotonic(), self._interval_s)):
                is_due = time.monotonic() - read_s >= _PROGRAMS_EVERY_S
                read_s = time.monotonic() if is_due else read_s
                self._sample(writer, programs if is_due else None)
            self._sample(writer, programs)
        finally:
            writer.close()

    def _make_sensors(self) -> None:
        for name, make in self._factories.items():
            try:
                sensor = make()
                sensor.series()
            except Exception as error:
                self._absent.append(Absent(what=name, reason=reason_of(error, name)))
            else:
                self._sensors.append(sensor)
                self._absent += sensor.absent

    def _header(self) -> Header:
        return Header(
            node=self._node,
            interval_s=self._interval_s,
            series=tuple(series for sensor in self._sensors for series in sensor.series()),
            absent=tuple(self._absent),
        )

    def _sample(self, writer: TelemetryWriter, programs: OtherPrograms | None = None) -> None:
        began_s = time.monotonic()
        values = [value for sensor in self._sensors for value in _read_values(sensor)]
        # Reading eight accelerators takes some milliseconds: record the middle of that time.
        half_s = (time.monotonic() - began_s) / 2
        utc_s = time.time() - half_s
        writer.write(began_s + half_s, utc_s, values, programs.shares() if programs else None)


def _read_values(sensor: Sensor) -> list[float | None]:
    """Return the values of a sensor; all None if it fails, so that columns keep their positions."""
    width = len(sensor.series())
    if not width:
        return []
    try:
        values = sensor.read()
    except Exception:
        return [None] * width
    return values if len(values) == width else [None] * width


def _delay_s(began_s: float, now_s: float, interval_s: float) -> float:
    """Return the seconds until the next multiple of the interval, so that delays do not add up.

    A multiple that is almost reached is skipped, since a timer that fires early would sample twice.
    """
    passed = int((now_s - began_s) / interval_s + 0.1)
    return began_s + (passed + 1) * interval_s - now_s
