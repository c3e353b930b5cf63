"""The log of a job: one JSON object per line, synced, and chained to the previous line.

``prev`` of a line is the SHA-256 of the previous line. In the first line it is the SHA-256 of
``run.json`` or, for a later attempt, of the whole log of the previous attempt. A line that is
changed, removed or moved breaks the chain.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from vflops import interruption
from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.document import Data, first_fault
from vflops.record.files.read_once import read_bytes
from vflops.record.files.strict_json import parse_json
from vflops.record.formats.bounded_numbers import Positive
from vflops.record.formats.recorded_names import ModelName
from vflops.record.log.boot import monotonic_clock_id, suspended_s

_SUSPENDED_S = 1.0
"""Shorter suspensions are not recorded: the two clocks are read one after the other."""


class EventLine(Data):
    """One line of ``events.jsonl``."""

    kind: str
    data: dict[str, Any]
    time_s: float
    """Time by the monotonic clock of the process that wrote the event."""
    utc: str
    prev: str
    """SHA-256 of the previous line; in the first line, of ``run.json`` or of the previous log."""
    clock: str | None = None
    """In the first line, the id of the monotonic clock: logs with the same id share it."""
    suspended_s: float | None = None
    """For how long the machine was suspended since the previous line, which ``time_s`` omits."""


class Described(Data):
    """The system was described."""

    sha256: str
    """Hash of ``system.json``."""


class Counted(Data):
    """The operations of a model were counted."""

    model: ModelName
    batch: Positive
    sha256: str
    """Hash of the graph file."""


class Planned(Data):
    """The keys of the measurements that will be made."""

    measurements: tuple[tuple[str, str, str | None], ...]


Payload = TypeVar("Payload", bound=Data)


@dataclass(frozen=True)
class Event:
    """An event; ``source`` is the file and line that it was read from."""

    kind: str
    data: dict[str, Any]
    utc: str
    source: str
    time_s: float = 0.0
    clock: str | None = None
    """The id of the monotonic clock, in the first event of a log; None in earlier versions."""
    suspended_s: float | None = None
    """For how long the machine was suspended before the event; None if it was not."""

    @property
    def utc_s(self) -> float:
        """When the event was written, as Unix time."""
        try:
            return datetime.fromisoformat(self.utc).timestamp()
        except (ValueError, OverflowError, OSError) as error:  # OSError for years before 1
            raise FolderError(f"{self.source}: utc is {self.utc!r}, expected a time") from error

    def payload(self, type: type[Payload]) -> Payload:
        """Return the event's data as ``type``, or raise an error that names the line."""
        try:
            return type.model_validate(self.data)
        except ValidationError as error:
            fault = first_fault(error)
            raise FolderError(f"{self.source}: not a {self.kind} event: {fault}") from error


@dataclass(frozen=True)
class Log:
    """All lines of a log that could be read, and what was wrong with the others."""

    events: tuple[Event, ...]
    faults: tuple[str, ...]
    """Invalid lines and broken links of the chain, each with file and line."""
    torn: str | None
    """File and number of a last line that was cut off while it was being written."""

    @property
    def clock(self) -> str | None:
        """The id of the monotonic clock of its events; None if it was not recorded."""
        return self.events[0].clock if self.events else None


class EventWriter:
    """Appends events to a new log; one writer per file."""

    def __init__(self, path: Path, anchor: str) -> None:
        atomic.make_folder(path.parent)
        self._path = path
        self._prev = anchor
        self._clock = monotonic_clock_id()
        self._suspended_s = suspended_s()
        try:
            # Unbuffered: a line that could not be written must not be tried again at the end.
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            raise atomic.cannot_write(path, error) from error

    def write(self, kind: str, /, *, sync: bool = True, **data: Any) -> None:
        """Append one event; with ``sync``, it is on disk when the call returns."""
        entry = EventLine(
            kind=kind,
            data=data,
            time_s=round(time.monotonic(), 6),
            utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            prev=self._prev,
            clock=self._clock,
            suspended_s=self._newly_suspended_s(),
        )
        fields = entry.model_dump(mode="json")
        for optional in ("clock", "suspended_s"):
            if fields[optional] is None:
                del fields[optional]
        line = json.dumps(fields, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
        with interruption.protected():  # an event after Ctrl-C must follow this one
            try:
                if self._file.write(line + b"\n") != len(line) + 1:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if sync:
                    os.fsync(self._file.fileno())
            except OSError as error:
                needed_b = len(line) + 1
                raise atomic.cannot_write(self._path, error, needed_b=needed_b) from error
            self._prev = hashlib.sha256(line).hexdigest()
            self._clock = None

    def _newly_suspended_s(self) -> float | None:
        """Return for how long the machine was suspended since the last line; None if it was not."""
        before_s, self._suspended_s = self._suspended_s, suspended_s()
        if before_s is None or self._suspended_s is None:
            return None
        new_s = self._suspended_s - before_s
        return round(new_s, 3) if new_s > _SUSPENDED_S else None

    def sync(self) -> None:
        """Make sure that events written without ``sync`` are on disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise atomic.cannot_write(self._path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def has_event(path: Path, kind: str) -> bool:
    """Whether a log has an event of a kind; only lines that may be one are parsed."""
    name = json.dumps(kind, ensure_ascii=False).encode()
    for line in reversed(_read_lines(path)[:-1]):
        if name in line:
            entry = parse_line(line)
            if entry is not None and entry.kind == kind:
                return True
    return False


def parse_line(line: bytes) -> EventLine | None:
    """Return a line of a log; None if it is not an event."""
    try:
        return EventLine.model_validate(parse_json(line))
    except ValueError:  # not JSON, a key twice, or a wrong field
        return None


def _read_lines(path: Path) -> list[bytes]:
    """Return the lines of a log; the last one is empty, or was cut off."""
    try:
        return read_bytes(path).split(b"\n")
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error


def read_log(path: Path, anchor: str, event_type: type[Event] = Event) -> Log:
    """Read every complete line of ``path``; an incomplete last line is reported, not an error."""
    lines = _read_lines(path)
    tail = lines.pop()
    torn = f"{path}:{len(lines) + 1}" if tail else None
    events: list[Event] = []
    faults: list[str] = []
    prev, name = anchor, str(path)
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        entry = parse_line(line)
        if entry is None:
            faults.append(f"{where}: not an event")
        else:
            events.append(
                event_type(
                    entry.kind,
                    entry.data,
                    entry.utc,
                    where,
                    entry.time_s,
                    entry.clock,
                    entry.suspended_s,
                )
            )
            if entry.prev != prev:
                faults.append(f"{where}: does not follow the line before it")
        prev = hashlib.sha256(line).hexdigest()
    return Log(tuple(events), tuple(faults), torn)
