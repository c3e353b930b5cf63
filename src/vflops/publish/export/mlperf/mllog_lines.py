"""``:::MLLOG`` lines: one JSON object each, in the format of MLCommons' logging package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

TOKEN = ":::MLLOG "

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Line:
    """One line; its time is Unix time in milliseconds."""

    time_ms: int
    key: str
    value: Value = None
    metadata: Mapping[str, Value] = field(default_factory=dict)
    source: str = ""
    """Where the value comes from: a file of the run folder, and its line."""

    @property
    def event_type(self) -> str:
        """The type of the event: start or end of an interval, or a point in time."""
        kinds = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
        return kinds.get(self.key.rpartition("_")[2], "POINT_IN_TIME")

    def __str__(self) -> str:
        file, _, number = self.source.rpartition(":")
        location = {"file": file or self.source, "lineno": int(number) if file else 0}
        entry = {
            "namespace": "",
            "time_ms": self.time_ms,
            "event_type": self.event_type,
            "key": self.key,
            "value": self.value,
            "metadata": {**location, **self.metadata},
        }
        text = json.dumps(entry, allow_nan=False)  # ASCII: the checkers read Latin-1
        return TOKEN + text.replace(TOKEN.rstrip(), TOKEN.rstrip().replace(":", "\\u003a"))


def text_of(lines: Iterable[Line]) -> str:
    """Return the lines as the text of a file."""
    return "".join(f"{line}\n" for line in lines)
