"""The contents of a submission, with caches for what many submissions and rules have in common."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar, cast

from pydantic_core import from_json

from vflops.record.files.document import Data, Document
from vflops.record.files.read_once import read_bytes
from vflops.record.folder import History
from vflops.record.formats.graph import Graph
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score, score_text

MAX_BYTES = 1 << 20
"""The maximum size of a cached document, so that submissions cannot fill the memory."""
_MAX_SHARED = 32
_SHARED = (Graph, SystemRecord)
"""Documents that are equal in many submissions: the same model, the same machine."""

Kind = TypeVar("Kind", bound=Document)
Payload = TypeVar("Payload", bound=Data)


class SubmissionContents(Contents):
    """The contents of a run; graphs and systems are shared with runs that hold the same bytes.

    Every event is validated once, although many rules read it.
    """

    def read(self, kind: type[Kind], path: Path) -> Kind:
        """Return a document of the folder; graphs and systems come from the cache."""
        if kind is Score:
            return cast(Kind, self._once((kind, str(path)), lambda: self._read_score(path)))
        if kind in _SHARED:
            return cast(Kind, self._once((kind, str(path)), lambda: _shared(kind, path)))
        return super().read(kind, path)

    def _read_score(self, path: Path) -> Score:
        """Return the recorded score; it is not parsed if it is the computed one to the byte."""
        with suppress(Exception):  # Score.read below raises an error with the name of the file
            if read_bytes(path) == self.once(score_text).encode():
                return self.once(score)
        return Score.read(path)

    @cached_property
    def history(self) -> History:
        """The logs of all jobs."""
        return self.folder.history(event_type=_ValidatedEvent)


@dataclass(frozen=True)
class _ValidatedEvent(Event):
    """An event that keeps its validated data."""

    payloads: dict[type[Data], Data] = field(default_factory=dict, compare=False, repr=False)

    def payload(self, type: type[Payload]) -> Payload:
        """Return the event's data as ``type``, or raise an error that names the line."""
        known = self.payloads.get(type)
        if known is None:
            known = self.payloads[type] = super().payload(type)
        return cast(Payload, known)


def _shared(kind: type[Document], path: Path) -> Document:
    with suppress(Exception):  # kind.read below raises an error with the name of the file
        data = read_bytes(path)
        if len(data) <= MAX_BYTES:
            return _parse(kind, data)
    return kind.read(path)


@lru_cache(maxsize=_MAX_SHARED)
def _parse(kind: type[Document], data: bytes) -> Document:
    """Return the document that ``data`` holds; it is immutable, so it can be shared."""
    return kind.parse(from_json(data), Path(kind.schema_name))
