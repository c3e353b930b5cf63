"""The contents of a submission, with caches for what many submissions and rules have in common."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar, cast

from pydantic_core import from_json

from vflops.record.files.document import Data, Document
from vflops.record.folder import History
from vflops.record.formats.graph import Graph
from vflops.record.log.events import Event, Log
from vflops.record.readout.contents import Contents

MAX_BYTES = 1 << 20
"""The maximum size of a cached graph, so that submissions cannot fill the memory."""
_MAX_GRAPHS = 8

Kind = TypeVar("Kind", bound=Document)
Payload = TypeVar("Payload", bound=Data)


class SubmissionContents(Contents):
    """The contents of a run; graphs are shared with runs that hold the same bytes.

    Every event is validated once, although many rules read it.
    """

    def read(self, kind: type[Kind], path: Path) -> Kind:
        """Return a document of the folder; graphs come from the cache."""
        if kind is not Graph:
            return super().read(kind, path)
        return cast(Kind, self._once((kind, str(path)), lambda: _cached_graph(path)))

    @cached_property
    def history(self) -> History:
        """The logs of all jobs."""
        jobs = self.folder.history().jobs
        return History({job: tuple(map(_validated_once, logs)) for job, logs in jobs.items()})


@dataclass(frozen=True)
class _ValidatedEvent(Event):
    """An event that keeps its validated data."""

    payloads: dict[type[Data], Data] = field(default_factory=dict, compare=False, repr=False)

    def payload(self, type: type[Payload]) -> Payload:
        """Return the event's data as ``type``, or raise an error that names the line."""
        if type not in self.payloads:
            self.payloads[type] = super().payload(type)
        return cast(Payload, self.payloads[type])


def _validated_once(log: Log) -> Log:
    events = (
        _ValidatedEvent(event.kind, event.data, event.utc, event.source, event.time_s)
        for event in log.events
    )
    return Log(tuple(events), log.faults, log.torn)


def _cached_graph(path: Path) -> Graph:
    with suppress(Exception):  # Graph.read below raises an error with the name of the file
        data = path.read_bytes()
        if len(data) <= MAX_BYTES:
            return _parse_graph(data)
    return Graph.read(path)


@lru_cache(maxsize=_MAX_GRAPHS)
def _parse_graph(data: bytes) -> Graph:
    """Return the graph that ``data`` holds; it is immutable, so it can be shared."""
    return Graph.parse(from_json(data), Path("graph"))
