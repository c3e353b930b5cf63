"""Follows a log while another process writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vflops.record.log.events import EventLine

Listener = Callable[[str, dict[str, Any]], None]
"""A function that is called with the kind and the data of each new event."""


class Tail:
    """Reads the events that were added to a log since the last call."""

    def __init__(self, path: Path, on_event: Listener) -> None:
        self.path = path
        self._on_event = on_event
        self._offset = 0

    def read(self) -> None:
        """Pass every complete new line to the listener."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return  # the log does not exist yet
        complete_lines = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        for line in complete_lines.split(b"\n")[:-1]:
            try:
                event = EventLine.model_validate_json(line)
            except ValidationError:
                continue  # `vflops check` reports the invalid line
            self._on_event(event.kind, event.data)
