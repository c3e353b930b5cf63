"""The contents of a run folder, read and validated once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vflops.errors import FolderError
from vflops.record.files.digest import Digest, file_digest
from vflops.record.files.document import Document
from vflops.record.files.lock import is_locked
from vflops.record.files.machine_faults import is_machine_fault
from vflops.record.files.read_once import is_file
from vflops.record.folder import History, RunFolder, State
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobPlanned
from vflops.record.formats.measured_node import MeasuredNode, NodeMeasured, measured_node_file
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.node import NodeReader
from vflops.record.log.events import Counted
from vflops.record.readout.trained_job import TrainedJob

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry

_MAX_CACHED_BYTES, _MAX_ALL_CACHED_BYTES = 1 << 20, 1 << 27
"""The largest telemetry file, and the largest sum of all files, that are kept in memory; others are
read again each time."""

Result = TypeVar("Result")
DocumentType = TypeVar("DocumentType", bound=Document)


class _Failure(NamedTuple):
    """An error that was raised while something was read or computed."""

    message: str
    hint: str | None


class Contents:
    """The parsed files of a run folder; each file is read when it is first needed, and cached."""

    def __init__(self, folder: RunFolder, *, run_log_only: bool = False) -> None:
        """Read all jobs or, with ``run_log_only``, only the log of the run itself.

        That log has the measurements, counts and plans, but not what was trained.
        """
        self.folder = folder
        self._jobs_read = (0,) if run_log_only else ()
        self._cache: dict[Any, Any] = {}
        self._cacheable_bytes = _MAX_ALL_CACHED_BYTES

    def once(self, compute: Callable[[Contents], Result]) -> Result:
        """Return ``compute(self)``, which is called only once; the result is cached."""
        result: Result = self._once(compute, lambda: compute(self))
        return result

    def once_for(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return ``compute()``, which is called only once per ``key``; the result is cached."""
        result: Result = self._once(key, compute)
        return result

    def read(self, kind: type[DocumentType], path: Path) -> DocumentType:
        """Read a document of the folder."""
        result: DocumentType = self._once((kind, str(path)), lambda: kind.read(path))
        return result

    def digest(self, path: Path) -> Digest:
        """Return the hash and the size of a file of the folder."""
        result: Digest = self._once(str(path), lambda: file_digest(path))
        return result

    def hash(self, path: Path) -> str:
        """Return the SHA-256 of a file of the folder."""
        return self.digest(path).sha256

    def telemetry(self, path: Path) -> Telemetry:
        """Read a telemetry file."""
        from vflops.record.log.telemetry_log import read

        key = (read, str(path))
        if key not in self._cache:
            telemetry = read(path)
            size_bytes = path.stat().st_size
            if size_bytes > min(_MAX_CACHED_BYTES, self._cacheable_bytes):
                return telemetry
            self._cacheable_bytes -= size_bytes
            self._cache[key] = telemetry
        result: Telemetry = self._cache[key]
        return result

    def imported_power(self, node: int = 0) -> list[Telemetry]:
        """Read the power logs that were imported for a node; their times are Unix time."""
        from vflops.record.log.imported_power import read_imported

        return self.once_for(
            (read_imported, node), lambda: read_imported(self.folder.path, node=node)
        )

    def _once(self, key: object, compute: Callable[[], Any]) -> Any:
        if key not in self._cache:
            try:
                self._cache[key] = compute()
            except FolderError as error:  # else every rule would read a damaged file again
                if not is_machine_fault(error):
                    self._cache[key] = _Failure(error.message, error.hint)
                raise
        found = self._cache[key]
        if isinstance(found, _Failure):
            raise FolderError(found.message, hint=found.hint)
        return found

    def release(self) -> None:
        """Drop what is cached; it refers back to this object, so it would wait for a collection."""
        self._cache.clear()

    @cached_property
    def nodes_of(self) -> NodeReader:
        """The reader of the records of nodes, each of which it reads once."""
        return NodeReader()

    @cached_property
    def history(self) -> History:
        """The logs of the jobs."""
        return self.folder.history(*self._jobs_read)

    @cached_property
    def in_progress(self) -> bool:
        """Whether a process is still working on the run."""
        return not self.history.state.complete and is_locked(self.folder.lock)

    @property
    def state(self) -> State:
        """Whether the run is complete; if not, why: it is in progress, or how it stopped."""
        return State(False, "it is in progress") if self.in_progress else self.history.state

    @cached_property
    def measurements(self) -> list[Measurement]:
        """The ceilings of each kind of machine, in order of measuring.

        On the machine that the run was started on, the newest measurement counts. Of several equal
        compute nodes the fastest counts, also in the short measurement: a slow node is no ceiling.
        """
        ceilings: dict[tuple[str | None, tuple[str, str, str | None]], Measurement] = {}
        for event in self.history.events("measurement"):
            measurement = event.payload(Measurement)
            known = ceilings.get((measurement.kind, measurement.key))
            if measurement.node is None or known is None or _is_faster(measurement, known):
                ceilings[measurement.kind, measurement.key] = measurement
        for node in self.measured_nodes:
            for item in node.quick:
                known = ceilings.get((node.kind, item.key))
                if known is not None and _is_faster(item, known):
                    fastest = item.model_copy(update={"kind": node.kind})
                    ceilings[node.kind, item.key] = fastest
        return list(ceilings.values())

    @cached_property
    def measured_nodes(self) -> list[MeasuredNode]:
        """The compute nodes that were measured before training, in order of measuring.

        Empty if all work was done on the machine that the run was started on.
        """
        nodes = [event.payload(NodeMeasured).node for event in self.history.events("node-measured")]
        return [
            self.read(MeasuredNode, measured_node_file(self.folder.path, node))
            for node in dict.fromkeys(nodes)
        ]

    @cached_property
    def counted(self) -> list[Counted]:
        """The models whose operations were counted."""
        return [event.payload(Counted) for event in self.history.events("counted")]

    @cached_property
    def training_jobs(self) -> list[TrainedJob]:
        """The planned training jobs, in the order of planning; they need not have started."""
        return [job for job in self._jobs if job.record.worker is None]

    @cached_property
    def workers(self) -> list[TrainedJob]:
        """The planned workers of searches, in the order of planning."""
        return [job for job in self._jobs if job.record.worker is not None]

    @cached_property
    def _jobs(self) -> list[TrainedJob]:
        planned = [event.payload(JobPlanned).job for event in self.history.events("job-planned")]
        return [
            TrainedJob(
                self.read(JobRecord, self.folder.job_file(job)),
                self.history.jobs.get(job, ()),
                tuple(self.folder.logged_attempts(job)),
                self.nodes_of,
            )
            for job in dict.fromkeys(planned)
        ]

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graphs of the counted models, in the order of counting; other files are ignored."""
        graphs: list[Graph] = []
        for model in dict.fromkeys(counted.model for counted in self.counted):
            path = self.folder.graph_file(model)
            if is_file(path):
                graph = self.read(Graph, path)
                if graph.model != model:
                    raise FolderError(
                        f"{path} contains the graph of {graph.model}, expected {model}"
                    )
                graphs.append(graph)
        return graphs


def _is_faster(measurement: Measurement, other: Measurement) -> bool:
    return (measurement.value or 0.0) > (other.value or 0.0)
