"""A cache of graphs in each process, since most submissions hold the same graphs."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

from pydantic_core import from_json

from vflops.record.files.document import Document
from vflops.record.formats.graph import Graph
from vflops.record.readout.contents import Contents

MAX_BYTES = 1 << 20
"""The maximum size of a cached graph, so that submissions cannot fill the memory."""
_MAX_GRAPHS = 8

Kind = TypeVar("Kind", bound=Document)


class SharedGraphs(Contents):
    """The contents of a run whose graphs are shared with runs that hold the same bytes."""

    def read(self, kind: type[Kind], path: Path) -> Kind:
        """Return a document of the folder; graphs come from the cache."""
        if kind is not Graph:
            return super().read(kind, path)
        return cast(Kind, self._once((kind, str(path)), lambda: _cached_graph(path)))


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
