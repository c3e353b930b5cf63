"""Trains parts of a recorded run again, each as a job of the folder of the audit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vflops.config.training import WorkloadSettings
from vflops.errors import FolderError, UsageError
from vflops.launch.attempt import run_job
from vflops.machine.system.cpu_share import cpu_threads
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.record.files.folder_listing import subfolders
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, JobRecord, SegmentRecord
from vflops.record.formats.job_events import Checkpointed, Committed, Evaluated, Predicted
from vflops.record.formats.recorded_names import checkpoint_file
from vflops.record.log.events import Event, EventWriter
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.studies.audit.committed_segments import Segment
from vflops.studies.audit.part_times import TimedSteps, TimePoint, timed_here
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import ENGINE

_OMP = "OMP_NUM_THREADS"
Progress = Callable[[str, int, int], None]


class CannotRetrain(FolderError):
    """A part cannot be trained again, because a file that it needs is missing or was changed."""


@dataclass(frozen=True)
class Retrained:
    """A part that was trained again, read from its log."""

    folder: RunFolder
    job: int

    @cached_property
    def _events(self) -> list[Event]:
        return [event for log in self.folder.job_history(self.job) for event in log.events]

    @cached_property
    def commitments(self) -> dict[int, Committed]:
        """The states by step."""
        kinds: dict[str, type[Committed]] = {"commitment": Committed, "checkpoint": Checkpointed}
        items = [e.payload(kinds[e.kind]) for e in self._events if e.kind in kinds]
        return {item.step: item for item in items}

    @cached_property
    def steps(self) -> int:
        """Number of steps that were computed here."""
        finished = self.trained.finished
        attempt = self.trained.attempts[-1]
        return 0 if finished is None else finished.step - attempt.first_step

    def timed(self) -> TimedSteps | None:
        """How long its steps took here."""
        started = self.trained.started
        attempt = self.trained.attempts[-1]
        points = [TimePoint.of(0, point) for point in attempt.points]
        points += [TimePoint.of(0, item) for item in self.commitments.values() if item.phases]
        points.sort(key=lambda point: (point.step, point.work_s))
        begin = TimePoint(0, attempt.first_step, 0.0)
        return timed_here([begin, *points], started.batch) if started is not None else None

    @cached_property
    def evaluations(self) -> dict[int, Evaluated]:
        """The evaluations by step."""
        items = [e.payload(Evaluated) for e in self._events if e.kind == "evaluation"]
        return {item.step: item for item in items}

    @cached_property
    def trained(self) -> TrainedJob:
        """The job, as reports read it."""
        record = JobRecord.read(self.folder.job_file(self.job))
        return TrainedJob(record, self.folder.job_history(self.job))

    @property
    def predictions(self) -> Predicted | None:
        """The predictions of a base model; None if it wrote none."""
        found = [e.payload(Predicted) for e in self._events if e.kind == "predictions"]
        return found[-1] if found else None

    @property
    def attempt(self) -> Path:
        """The folder of its attempt."""
        return self.folder.logged_attempts(self.job)[-1]

    @property
    def candidate_sha256(self) -> str | None:
        """The hash of the trained candidate's weights."""
        found = [e.data for e in self._events if e.kind == "candidate-trained"]
        return str(found[-1].get("weights_sha256")) if found else None

    @property
    def end_state(self) -> Path:
        """The file with the state at the end."""
        folder = self.folder.job_file(self.job).parent / "checkpoint"
        return sorted(folder.glob("*.state"))[-1]

    def delete_states(self) -> None:
        """Delete the states, which only the comparison needs."""
        shutil.rmtree(self.folder.job_file(self.job).parent / "checkpoint", ignore_errors=True)
        shutil.rmtree(self.folder.path / "weights", ignore_errors=True)


@dataclass(frozen=True)
class Retrainer:
    """Trains parts of one recorded run again."""

    recorded: Contents
    folder: RunFolder
    """The folder of the audit."""
    events: EventWriter
    data: dict[str, DataFacts]
    """The data on this machine, by workload."""

    def train(self, segment: Segment, perturbation: float = 0.0) -> Retrained:
        """Train a part again; raise ``CannotRetrain`` if what it starts from cannot be used."""
        self._check_start(segment)
        record = self._record(segment, perturbation)
        atomic.make_folder(self.folder.job_file(record.job).parent)
        record.write(self.folder.job_file(record.job))
        self.events.write("job-planned", job=record.job, sha256=record.digest())
        if segment.start is not None:
            self._copy_checkpoint(record.job, segment.job, segment.start)
        threads = segment.started.threads if segment.started is not None else 0
        usual = cpu_threads(record.ranks).count
        environment = {_OMP: str(threads)} if 0 < threads < usual else {}
        run_job(
            self.folder,
            record,
            lambda kind, data: None,
            prepare=lambda attempt, node, nodes: environment,
        )
        return Retrained(self.folder, record.job)

    def _check_start(self, segment: Segment) -> None:
        """Raise ``CannotRetrain`` unless the record says how the part was trained."""
        if segment.first and segment.candidate is None and segment.start is None:
            raise CannotRetrain(f"the log has no kept checkpoint after step {segment.first:,}")
        changed = self.recorded.history.events("job-rearranged")
        if any(event.data.get("job") == segment.job for event in changed):
            raise CannotRetrain("its job was resumed with other ranks or in another mode")
        part = segment.candidate
        if part is None:
            return
        run = self.recorded.folder.path
        if CandidateBuffer(run).get(Turn.named(part.name)) is None:
            raise CannotRetrain(f"its proposal buffer/{part.name}.json is missing")
        if part.begun.inherited and not (run / "weights" / f"{part.begun.parent}.state").is_file():
            raise CannotRetrain(f"the weights of its parent {part.begun.parent} are missing")

    def _record(self, segment: Segment, perturbation: float) -> JobRecord:
        recorded = self._job(segment.job).record
        is_copied = [item.step for item in segment.commitments if isinstance(item, Checkpointed)]
        settings = dict(recorded.settings)
        if segment.candidate is not None:
            compile_ = "on" if segment.candidate.begun.compiled else "record"
            on_cpu = segment.started is None or segment.started.device == "cpu"
            if not on_cpu:
                settings["train"] = {**settings["train"], "compile": compile_}
        return recorded.model_copy(
            update={
                "job": len(subfolders(self.folder.path / "jobs")),  # job 0 is the audit itself
                "data": self.data[recorded.workload],
                "settings": settings,
                "kernels": False,
                "segment": SegmentRecord(
                    run=str(self.recorded.folder.path.resolve()),
                    job=segment.job,
                    first=segment.first,
                    last=segment.last,
                    is_end=segment.is_end,
                    commits=tuple(item.step for item in segment.commitments),
                    checkpoints=tuple({*is_copied, segment.last} if segment.steps else ()),
                    candidate=segment.candidate.name if segment.candidate else None,
                    perturbation=perturbation,
                ),
            }
        )

    def _job(self, number: int) -> TrainedJob:
        jobs = (*self.recorded.training_jobs, *self.recorded.workers)
        return next(job for job in jobs if job.record.job == number)

    def _copy_checkpoint(self, job: int, recorded_job: int, start: Checkpointed) -> None:
        """Copy the checkpoint that a part starts from, if it is the one in the log."""
        from vflops.train.checkpoint import CheckpointRecord

        source = self.recorded.folder.job_file(recorded_job).parent / "checkpoint" / start.file
        if start.file != checkpoint_file(start.step) or not source.is_file() or source.is_symlink():
            raise CannotRetrain(f"its checkpoint {start.file} is missing")
        if file_digest(source).sha256 != start.sha256:
            raise CannotRetrain(f"its checkpoint {start.file} is not the one that the log has")
        target = self.folder.job_file(job).parent / "checkpoint" / source.name
        atomic.make_folder(target.parent)
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise atomic.cannot_write(target, error) from error
        record = CheckpointRecord(
            step=start.step, sha256=start.sha256, size_bytes=start.size_bytes, kept=True
        )
        record.write(target.with_suffix(".json"))


def data_here(recorded: Contents, data: Path | None, progress: Progress) -> dict[str, DataFacts]:
    """Return the data of each workload on this machine; raise if it is not that of the run."""
    facts: dict[str, DataFacts] = {}
    for job in (*recorded.training_jobs, *recorded.workers):
        record = job.record
        if record.workload in facts:
            continue
        spec = workload(record.workload)
        if spec.runner != ENGINE and not spec.is_search:
            raise UsageError(
                f"{record.workload} of {recorded.folder.record.id} runs a program of its author, "
                "which an audit cannot train again",
                hint=f"run it as a whole: vflops reproduce {recorded.folder.path}",
            )
        settings: WorkloadSettings = record.settings_as(spec.settings)
        if data is not None:
            settings = settings.model_copy(update={"data": str(data.resolve())})
        elif settings.data is not None and not Path(settings.data).exists():
            raise UsageError(
                f"{record.workload} was trained with {settings.data}, which does not exist here",
                hint="give the path of that data: --data DIR",
            )
        here: DataFacts = spec.load_code().prepare_data(settings, progress)
        if here.fingerprint != record.data.fingerprint:
            raise UsageError(
                f"the data of {record.workload} is not that of the run: its fingerprint is "
                f"{here.fingerprint[:16]}, expected {record.data.fingerprint[:16]}",
                hint="give the data of the run with --data DIR",
            )
        if here.contents and record.data.contents and here.contents != record.data.contents:
            raise UsageError(
                f"the samples of {record.workload} are not those of the run: their content hashes "
                "differ",
                hint="give the data of the run with --data DIR",
            )
        facts[record.workload] = here
    return facts
