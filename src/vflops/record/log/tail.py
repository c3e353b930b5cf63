"""Follows a log while somebody else writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vflops.record.log.events import EventLine

Listener = Callable[[str, dict[str, Any]], None]
"""Told kind and data of every event as it is written."""


class Tail:
    """What was added to a log since it was last read."""

    def __init__(self, path: Path, on_event: Listener) -> None:
        self.path = path
        self._on_event = on_event
        self._read = 0

    def read(self) -> None:
        """Tell of every whole line that was added."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return  # it is not there yet
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.split(b"\n")[:-1]:
            try:
                event = EventLine.model_validate_json(line)
            except ValidationError:
                continue  # a damaged line is the check's matter; what follows it is not lost
            self._on_event(event.kind, event.data)
