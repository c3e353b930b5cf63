"""What a run folder holds, read and checked once."""

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

_MOST_KEPT_BYTES = 1 << 20
"""Of a file of telemetry; to read a longer one again costs less than to keep it."""

Found = TypeVar("Found")
Kind = TypeVar("Kind", bound=Document)


class Contents:
    """A run folder's files as data; each is read when it is first asked for."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._known: dict[Any, Any] = {}

    def once(self, find: Callable[[Contents], Found]) -> Found:
        """What ``find`` says of these contents, however many ask: it is called once."""
        found: Found = self._once(find, lambda: find(self))
        return found

    def read(self, kind: type[Kind], path: Path) -> Kind:
        """A document of the folder."""
        found: Kind = self._once((kind, str(path)), lambda: kind.read(path))
        return found

    def digest(self, path: Path) -> Digest:
        """Hash and size of a file of the folder."""
        found: Digest = self._once(str(path), lambda: file_digest(path))
        return found

    def hash(self, path: Path) -> str:
        """The SHA-256 of a file of the folder."""
        return self.digest(path).sha256

    def telemetry(self, path: Path) -> Telemetry:
        """A file of samples."""
        from vflops.record.log.telemetry_log import read

        if path.stat().st_size > _MOST_KEPT_BYTES:
            return read(path)
        found: Telemetry = self._once((read, str(path)), lambda: read(path))
        return found

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
        """Whether a living process is still at the run."""
        return not self.history.state.complete and is_locked(self.folder.lock)

    @property
    def state(self) -> State:
        """Whether the run ended; if not, that it is in progress or where it stopped."""
        return State(False, "it is in progress") if self.in_progress else self.history.state

    @cached_property
    def measurements(self) -> list[Measurement]:
        """The newest measurement of every ceiling, in the order in which they were first made."""
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
    def trained(self) -> list[TrainedJob]:
        """The training jobs that were planned, in their order."""
        return [job for job in self._jobs if job.record.worker is None]

    @cached_property
    def workers(self) -> list[TrainedJob]:
        """The workers of searches, in their order."""
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
        """The graphs that were counted, in that order; no other file is one of the run's."""
        found: list[Graph] = []
        for model in dict.fromkeys(counted.model for counted in self.counted):
            path = self.folder.graph_file(model)
            if path.is_file():
                graph = self.read(Graph, path)
                if graph.model != model:
                    raise FolderError(f"{path} holds the graph of {graph.model}, not of {model}")
                found.append(graph)
        return found
