"""The contents of a run folder, read and validated once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vflops.errors import FolderError
from vflops.record.files.digest import Digest, file_digest
from vflops.record.files.document import Document
from vflops.record.files.lock import is_locked
from vflops.record.folder import History, RunFolder, State
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobPlanned
from vflops.record.formats.measurement import Measurement
from vflops.record.log.events import Counted
from vflops.record.readout.trained_job import TrainedJob

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry

_LARGEST_KEPT_BYTES = 1 << 20
"""Larger telemetry files are read again instead of being kept in memory."""

Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=Document)


class Contents:
    """The files of a run folder as data; each is read when it is first used."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._known: dict[Any, Any] = {}

    def once(self, find: Callable[[Contents], Result]) -> Result:
        """Return ``find(self)``; it is called once, and the result is kept."""
        result: Result = self._once(find, lambda: find(self))
        return result

    def read(self, kind: type[Kind], path: Path) -> Kind:
        """Read a document of the folder."""
        result: Kind = self._once((kind, str(path)), lambda: kind.read(path))
        return result

    def digest(self, path: Path) -> Digest:
        """Return hash and size of a file of the folder."""
        result: Digest = self._once(str(path), lambda: file_digest(path))
        return result

    def hash(self, path: Path) -> str:
        """Return the SHA-256 of a file of the folder."""
        return self.digest(path).sha256

    def telemetry(self, path: Path) -> Telemetry:
        """Read a telemetry file."""
        from vflops.record.log.telemetry_log import read

        if path.stat().st_size > _LARGEST_KEPT_BYTES:
            return read(path)
        result: Telemetry = self._once((read, str(path)), lambda: read(path))
        return result

    def _once(self, key: object, find: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    @cached_property
    def history(self) -> History:
        """All logs."""
        return self.folder.history()

    @cached_property
    def in_progress(self) -> bool:
        """Whether a process is still working on the run."""
        return not self.history.state.complete and is_locked(self.folder.lock)

    @property
    def state(self) -> State:
        """Whether the run is complete; if not, whether it is in progress or how it stopped."""
        return State(False, "it is in progress") if self.in_progress else self.history.state

    @cached_property
    def measurements(self) -> list[Measurement]:
        """The newest measurement of every ceiling, in the order of the first ones."""
        newest: dict[tuple[str, str, str | None], Measurement] = {}
        for event in self.history.events("measurement"):
            item = event.payload(Measurement)
            newest[item.key] = item
        return list(newest.values())

    @cached_property
    def counted(self) -> list[Counted]:
        """The models that were counted."""
        return [event.payload(Counted) for event in self.history.events("counted")]

    @cached_property
    def training_jobs(self) -> list[TrainedJob]:
        """The planned training jobs, in order."""
        return [job for job in self._jobs if job.record.worker is None]

    @cached_property
    def workers(self) -> list[TrainedJob]:
        """The workers of searches, in order."""
        return [job for job in self._jobs if job.record.worker is not None]

    @cached_property
    def _jobs(self) -> list[TrainedJob]:
        planned = [event.payload(JobPlanned).job for event in self.history.events("job-planned")]
        return [
            TrainedJob(
                self.read(JobRecord, self.folder.job_file(job)),
                self.history.jobs.get(job, ()),
                tuple(self.folder.logged_attempts(job)),
            )
            for job in dict.fromkeys(planned)
        ]

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graphs that were counted, in that order; other graph files are ignored."""
        graphs: list[Graph] = []
        for model in dict.fromkeys(counted.model for counted in self.counted):
            path = self.folder.graph_file(model)
            if path.is_file():
                graph = self.read(Graph, path)
                if graph.model != model:
                    raise FolderError(f"{path} contains the graph of {graph.model}, not of {model}")
                graphs.append(graph)
        return graphs
