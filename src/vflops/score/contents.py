"""What a run folder holds, read and checked once."""

from __future__ import annotations

from functools import cached_property

from vflops.errors import FolderError
from vflops.flops.graph import Graph
from vflops.record.events import Counted
from vflops.record.folder import History, RunFolder, State
from vflops.record.lock import is_held
from vflops.record.measurement import Measurement
from vflops.record.training import JobPlanned, JobRecord
from vflops.score.trained import Trained


class Contents:
    """A run folder's files as data; each is read when it is first asked for."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @cached_property
    def history(self) -> History:
        """All logs."""
        return self.folder.history()

    @cached_property
    def in_progress(self) -> bool:
        """Whether a living process is still at the run."""
        return not self.history.state.complete and is_held(self.folder.lock)

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
    def trained(self) -> list[Trained]:
        """The training jobs that were planned, in their order."""
        return [job for job in self._jobs if job.record.worker is None]

    @cached_property
    def workers(self) -> list[Trained]:
        """The workers of searches, in their order."""
        return [job for job in self._jobs if job.record.worker is not None]

    @cached_property
    def _jobs(self) -> list[Trained]:
        planned = [event.payload(JobPlanned).job for event in self.history.events("job-planned")]
        return [
            Trained(
                JobRecord.read(self.folder.job_file(job)),
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
                graph = Graph.read(path)
                if graph.model != model:
                    raise FolderError(f"{path} holds the graph of {graph.model}, not of {model}")
                found.append(graph)
        return found
