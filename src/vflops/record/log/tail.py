"""Follows a log while another process writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vflops.record.log.events import EventLine

Listener = Callable[[str, dict[str, Any]], None]
"""Called with kind and data of every new event."""


class Tail:
    """Reads what was added to a log since the last call."""

    def __init__(self, path: Path, on_event: Listener) -> None:
        self.path = path
        self._on_event = on_event
        self._read = 0

    def read(self) -> None:
        """Pass every complete new line to the listener."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return  # it does not exist yet
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.split(b"\n")[:-1]:
            try:
                event = EventLine.model_validate_json(line)
            except ValidationError:
                continue  # `vflops check` reports it; the lines that follow are read
            self._on_event(event.kind, event.data)
