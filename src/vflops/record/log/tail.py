"""Follows a log while another process writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vflops.record.files.regular_file import open_regular
from vflops.record.log.events import parse_line

Listener = Callable[[str, dict[str, Any]], None]
"""A function that is called with the kind and the data of each new event."""


class Tail:
    """Reads the events that were added to a log since the last call."""

    def __init__(self, path: Path, on_event: Listener) -> None:
        self.path = path
        self._on_event = on_event
        self._offset = 0
        self.ended = False
        """Whether the log has the event ``end``, by which a job is judged."""

    def read(self) -> None:
        """Pass every complete new line to the listener."""
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return  # the log does not exist yet
        complete_lines = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete_lines)
        for line in complete_lines.split(b"\n")[:-1]:
            event = parse_line(line)
            if event is not None:  # `vflops check` reports an invalid line
                self.ended = self.ended or event.kind == "end"
                self._on_event(event.kind, event.data)
