"""The log of a job: a JSON object a line, appended and synced, each chained to the one before.

``prev`` of a line is the SHA-256 of the line before it (of ``run.json`` for the first), so that a
line that is changed, dropped or moved is found.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.record import atomic
from vflops.record.schema import Data


class EventLine(Data):
    """One line of ``events.jsonl``."""

    kind: str
    data: dict[str, Any]
    time_s: float
    """Monotonic clock of the process that wrote it."""
    utc: str
    prev: str
    """SHA-256 of the line before, or of ``run.json``."""


@dataclass(frozen=True)
class Event:
    """An event, and the file and line that it was read from."""

    kind: str
    data: dict[str, Any]
    utc: str
    source: str


@dataclass(frozen=True)
class Log:
    """All lines of a log that could be read, and what was wrong with the rest."""

    events: tuple[Event, ...]
    faults: tuple[str, ...]
    """Broken links of the chain, each with file and line."""
    torn: str | None
    """A last line that was cut off while it was written."""


class EventWriter:
    """Appends events to a new log; one writer a file."""

    def __init__(self, path: Path, anchor: str) -> None:
        atomic.make_folder(path.parent)
        self._path = path
        self._prev = anchor
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise atomic.cannot_write(path, error) from error

    def write(self, kind: str, **data: Any) -> None:
        """Append one event; it is on disk when this returns."""
        entry = EventLine(
            kind=kind,
            data=data,
            time_s=round(time.monotonic(), 6),
            utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            prev=self._prev,
        )
        line = json.dumps(
            entry.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, allow_nan=False
        ).encode()
        try:
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise atomic.cannot_write(self._path, error) from error
        self._prev = hashlib.sha256(line).hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def read_log(path: Path, anchor: str) -> Log:
    """Every whole line of ``path``; a torn last line is reported, never fatal."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    tail = lines.pop()
    torn = f"{path}:{len(lines) + 1}" if tail else None
    events: list[Event] = []
    faults: list[str] = []
    prev = anchor
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            entry = EventLine.model_validate_json(line)
        except ValidationError:
            faults.append(f"{where}: not an event")
        else:
            events.append(Event(entry.kind, entry.data, entry.utc, where))
            if entry.prev != prev:
                faults.append(f"{where}: does not follow the line before it")
        prev = hashlib.sha256(line).hexdigest()
    return Log(tuple(events), tuple(faults), torn)
