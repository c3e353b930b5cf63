"""The jobs of a run: their workloads are prepared, then the jobs are planned and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from vflops.config.settings import Settings
from vflops.config.training import WorkloadSettings
from vflops.errors import DiskFull, RunFailed, UsageError
from vflops.extensions import import_object
from vflops.metrics.quality import bounds_fault
from vflops.record.files import atomic
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job import (
    BagRecord,
    DataFacts,
    DeclaredWork,
    Goal,
    JobRecord,
    WorkerRecord,
)
from vflops.record.formats.job_events import Ensembled, JobPlanned, JobTrained
from vflops.record.formats.node import node_files
from vflops.record.log.events import Counted, EventWriter
from vflops.run import validate
from vflops.run.observer import RunObserver
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings
from vflops.workloads.contract.spec import ENGINE, WorkloadSpec

if TYPE_CHECKING:
    from vflops.launch.controller import JobProgress
    from vflops.record.formats.graph import Graph

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PreparedWorkload:
    """A workload of the run with its data."""

    spec: WorkloadSpec
    settings: WorkloadSettings
    data: DataFacts

    def goal(self, profile: str) -> Goal:
        """Return the quality that the workload must reach, with the target of ``profile``."""
        code = self.spec.load_code()
        quality = code.judged_by(self.settings, self.spec)
        target = code.target(self.settings)
        fault = bounds_fault(f"target {quality.name}", target, quality.limits)
        if fault:
            raise UsageError(fault, hint="set another target, or the bounds of the quality")
        return Goal(
            quality=quality.name,
            better=quality.better,
            exponent=quality.exponent,
            target=target,
            profile_target=self._profile_target(profile),
            bounds=quality.limits,
            of_loss=quality.of_loss,
        )

    def _profile_target(self, profile: str) -> float | None:
        """Return the target of the profile; None for the user's data and outside of the suite."""
        if self.settings.data is not None or not self.spec.in_suite:
            return None
        target: float = self.spec.load_code().target(self.spec.profile(profile))
        return target


def prepare(settings: Settings, progress: Progress) -> list[PreparedWorkload]:
    """Return every workload of the run with its data; raise if settings or data are invalid."""
    prepared = []
    validate.check_all(settings)
    for name, section in workload_settings(settings).items():
        spec = workload(name)
        data = spec.load_code().prepare_data(section, progress)
        validate.check_model(spec, section, data)
        validate.check_batch(settings, spec, section.train, data.train)
        prepared.append(PreparedWorkload(spec, section, data))
        prepared[-1].goal(settings.profile)
    return prepared


def data_warnings(prepared: Sequence[PreparedWorkload]) -> list[str]:
    """Return the faults in the data that the checks will report after the run, and remarks."""
    warnings = []
    for entry in prepared:
        duplicates, remarks = entry.data.duplicates, entry.spec.data_remarks
        texts = list(duplicates.warnings) if duplicates is not None else []
        if remarks is not None:
            texts += import_object(remarks)(entry.settings, entry.data)
        warnings += [f"{entry.spec.name}: {text}" for text in texts]
    return warnings


def plan(
    folder: RunFolder,
    events: EventWriter,
    prepared: list[PreparedWorkload] | None,
    progress: Progress,
) -> list[JobRecord]:
    """Return the jobs of the run; plan them and write them to the folder if that was not done."""
    planned = [event.payload(JobPlanned) for event in folder.history(0).events("job-planned")]
    if planned:
        records = [_read_planned(folder, job) for job in planned]
        unfinished = [record for record in records if not folder.ended(record.job)]
        data = {(record.workload, repr(record.data)): record for record in unfinished}
        for record in data.values():  # the models of an ensemble share their data
            workload(record.workload).load_code().verify_data(record.data)
        return records
    settings = folder.record.settings
    jobs: list[JobRecord] = []
    for entry in prepared if prepared is not None else prepare(settings, progress):
        code = entry.spec.load_code()
        work = code.work(entry.settings, entry.data, entry.spec.name)
        declared = work if isinstance(work, DeclaredWork) else None
        if declared is None:
            write_graph(folder, events, _with_divisible(entry, work))
        workers = code.workers(entry.settings)
        code.lay_out(folder.path, entry.settings)
        models = settings.models_of(entry.spec.name) if workers is None else 1
        numbers = placement_order(models, settings) if workers is None else range(workers)
        repeats = settings.repeat if workers is None else 1
        for repeat, model in product(range(repeats), numbers):
            bag = _bag(settings, entry, models, repeat, model)
            record = JobRecord(
                job=1 + len(jobs),
                workload=entry.spec.name,
                repeat=repeat,
                seed=settings.seed + repeat * models + (bag.number if bag else 0),
                bag=bag,
                worker=WorkerRecord(worker=model, workers=workers) if workers else None,
                ranks=entry.settings.train.ranks,
                goal=entry.goal(settings.profile),
                settings=entry.settings.model_dump(mode="json"),
                data=entry.data,
                kernels=settings.telemetry.kernels,
                declared=declared,
                graph_declared=declared is None and code.graph_declared,
                rules=entry.spec.rules,
            )
            path = folder.job_file(record.job)
            atomic.make_folder(path.parent)
            record.write(path)
            jobs.append(record)
    for record in jobs:  # after all files are written, so that the plan is complete
        events.write("job-planned", sync=False, job=record.job, sha256=record.digest())
    events.sync()
    return jobs


def placement_order(models: int, settings: Settings) -> Sequence[int]:
    """Return the models in order of placement.

    The models of a pair of twins are far apart, so that few pairs share a node.
    """
    if not settings.bagging.twins:
        return range(models)
    return (*range(0, models, 2), *range(1, models, 2))


def _bag(
    settings: Settings, entry: PreparedWorkload, models: int, repeat: int, model: int
) -> BagRecord | None:
    bagging, train = settings.bagging, entry.settings.train
    if models == 1:
        return None
    # Other runners store predictions after training only, and have no out-of-bag quality.
    by_engine = entry.spec.runner == ENGINE
    evaluations = train.epochs // train.evaluate_every
    return BagRecord(
        model=model,
        models=models,
        bootstrap=bagging.bootstrap,
        seed=settings.seed + repeat,
        out_of_bag=bagging.out_of_bag if by_engine else 0,
        twins=bagging.twins,
        combine_every=bagging.combine_interval(models, evaluations) if by_engine else 0,
    )


class JobOrder:
    """The jobs of a run in the order in which they run."""

    def __init__(self, records: Sequence[JobRecord]) -> None:
        self._numbers = {record.job: number for number, record in enumerate(records, start=1)}

    def place(self, group: Sequence[JobRecord]) -> str:
        """Return `` (2 of 3)`` or `` (2 to 5 of 6)``; nothing if ``group`` is all there is."""
        numbers, planned = [self._numbers[record.job] for record in group], len(self._numbers)
        if planned == len(group):
            return ""
        last = f" to {max(numbers)}" if len(group) > 1 else ""
        return f" ({min(numbers)}{last} of {planned})"


def run_ensembles(
    folder: RunFolder,
    events: EventWriter,
    records: Sequence[JobRecord],
    order: JobOrder,
    observer: RunObserver,
) -> None:
    """Train the base models of each ensemble at the same time, and evaluate the ensembles."""
    from vflops.train.context import require_within_bounds
    from vflops.train.ensemble.aggregation import (
        delete_interim_predictions,
        ensembles,
        evaluate_ensemble,
    )

    groups = ensembles(records)
    for number, group in enumerate(groups, start=1):
        if _is_combined(folder, group):
            continue
        suffix = f", ensemble {number} of {len(groups)}" if len(groups) > 1 else ""
        if not all(folder.ended(record.job) for record in group):
            observer.step(
                f"training {len(group):,} models of {group[0].workload}{suffix}{order.place(group)}"
            )
        run_side_by_side(folder, events, group, observer)
        combined = f"{len(group):,} models of {group[0].workload}"
        observer.step(f"combining the predictions of {combined}{suffix}")
        history = folder.history(*(record.job for record in group))
        ensemble = evaluate_ensemble(folder, history, group)
        if ensemble is None:
            raise RunFailed(
                f"no model of {group[0].workload} stored its predictions",
                hint="the workload's runner must write them, and one event 'predictions' per job",
            )
        for quality in ensemble.qualities:
            require_within_bounds(group[0], quality)
        events.write("ensemble", **ensemble.model_dump(mode="json"))
        if len(ensemble.jobs) == ensemble.planned:  # else a later attempt may add the others
            delete_interim_predictions(folder, group)


def _is_combined(folder: RunFolder, group: Sequence[JobRecord]) -> bool:
    """Whether all models of an ensemble are trained and combined already."""
    jobs = {record.job for record in group}
    ensembled = (e.payload(Ensembled) for e in folder.history(0).events("ensemble"))
    return any(set(ensemble.jobs) == jobs for ensemble in ensembled)


def run_searches(
    folder: RunFolder,
    events: EventWriter,
    records: Sequence[JobRecord],
    order: JobOrder,
    observer: RunObserver,
    *,
    end: bool = False,
) -> None:
    """Run the workers of each search at the same time, and write the ledger of their candidates.

    With ``end``, the workers were stopped, and their search ends with what they have done.
    """
    from vflops.run.stopped_searches import delete_checkpoints
    from vflops.workloads.automl.replay import write_ledger

    for repeat in dict.fromkeys(record.repeat for record in records):
        group = [record for record in records if record.repeat == repeat]
        verb = "replaying" if group[0].settings["search"]["ledger"] else "searching"
        unfinished = not all(folder.ended(record.job) for record in group)
        if unfinished and end:
            observer.step("ending the search without training any further")
            _record_all_hashes(folder, events, [record.job for record in group])
            delete_checkpoints(folder, group)
        else:
            if unfinished:
                workers = f"{len(group)} worker{'s' * (len(group) > 1)}"
                observer.step(f"{verb} with {workers}{order.place(group)}")
            run_side_by_side(folder, events, group, observer)
        for message in _early_ends(folder, group):
            observer.step(message)
        written = write_ledger(folder, group)
        events.write("ledger", **written.model_dump(mode="json"))
    if not any(record.settings["train"]["segments"] for record in records):
        rmtree(folder.path / "weights", ignore_errors=True)  # no candidate needs these any more


def _early_ends(folder: RunFolder, group: Sequence[JobRecord]) -> list[str]:
    """Return the reasons why workers ended early, without duplicates."""
    history = folder.history(*(record.job for record in group))
    ends = history.events("search-ended")
    return list(dict.fromkeys(str(event.data.get("message")) for event in ends))


def run_side_by_side(
    folder: RunFolder,
    events: EventWriter,
    records: Sequence[JobRecord],
    observer: RunObserver,
) -> None:
    """Run jobs at the same time, each by an agent on separate slots, and record their hashes.

    If there are too few slots and the settings allow it, the jobs run in several waves.
    """
    from vflops.launch.controller import Controller, JobProgress
    from vflops.launch.factory import launcher, launcher_class
    from vflops.launch.node_check.recorder import NodeRecorder
    from vflops.launch.nodes import waves

    settings = folder.record.settings
    ops = None if records[0].worker else ops_per_sample(folder, records[0])
    job_observer = workload(records[0].workload).observer
    observe = (lambda record: None) if job_observer is None else import_object(job_observer)
    progress_list: list[JobProgress] = []
    here = launcher_class(settings.launch.on).is_this_machine
    recorder = None if here else NodeRecorder(folder, events, observer.note)
    for wave in waves(settings, records):
        waiting = records[len(progress_list) + len(wave) :]
        later = [JobProgress(record, observer=observe(record)) for record in waiting]
        controller = Controller(
            folder,
            events,
            launcher(folder, wave),
            wave,
            attempts=settings.bagging.attempts,
            ops_per_sample=ops,
            observe=observe,
            show=partial(_show_all, observer.jobs, tuple(progress_list), later),
            recorder=recorder,
        )
        progress_list += controller.run()
    if recorder is not None:
        recorder.finish()
    ended = [record.job for record in records if folder.ended(record.job)]
    _record_all_hashes(folder, events, ended)
    if not ended:
        reasons = {progress.reason for progress in progress_list}
        message = f"no model of {records[0].workload} finished: {'; '.join(map(str, reasons))}"
        full = [progress.full_disk_hint for progress in progress_list if progress.full_disk_hint]
        if full:
            raise DiskFull(message, hint=full[0])
        raise RunFailed(message, hint=_log_hint(folder, records[0].job))


def _log_hint(folder: RunFolder, job: int) -> str:
    """Return a hint that names the newest output of the job's agent or its script."""
    own = folder.job_file(job).parent.glob("*.log")
    steps = folder.path.glob(f"allocation-*.steps/{job}-*.log")
    shared = folder.path.glob("allocation-*.log")
    written = [path for path in (*own, *steps) if path.stat().st_size]
    written = written or [path for path in shared if path.stat().st_size]
    if not written:
        return f"nothing was written to {folder.path}: does the job see this folder?"
    return f"see the log: {max(written, key=lambda path: path.stat().st_mtime)}"


def _show_all(
    show: Callable[[Sequence[JobProgress]], None],
    ended: Sequence[JobProgress],
    waiting: Sequence[JobProgress],
    running: Sequence[JobProgress],
) -> None:
    show([*ended, *running, *waiting])


def uses_agents(settings: Settings) -> bool:
    """Whether even a single job needs an agent.

    It does on other nodes, if it is bound to cores, and in a rehearsal.
    """
    from vflops.launch.factory import launcher_class

    elsewhere = not launcher_class(settings.launch.on).is_this_machine
    launch = settings.launch
    return elsewhere or launch.rehearse or launch.cores_per_rank is not None


def run(
    folder: RunFolder,
    events: EventWriter,
    record: JobRecord,
    on_event: Callable[[str, dict[str, Any]], None],
) -> None:
    """Run one job on this machine, unless it has finished already, and record its hashes."""
    from vflops.launch.attempt import run_job

    history = folder.history(0, record.job)
    if not history.ended(record.job):
        run_job(folder, record, on_event)
    if record.job not in {e.payload(JobTrained).job for e in history.events("job-trained")}:
        _record_hashes(folder, events, record.job)


def _record_all_hashes(folder: RunFolder, events: EventWriter, jobs: Sequence[int]) -> None:
    """Record the hashes of those jobs that have a log, unless an earlier attempt did so."""
    recorded = folder.history(0).events("job-trained")
    hashed = {event.payload(JobTrained).job for event in recorded}
    for job in jobs:
        if job not in hashed and folder.logged_attempts(job):
            _record_hashes(folder, events, job, sync=False)
    events.sync()


def _record_hashes(folder: RunFolder, events: EventWriter, job: int, *, sync: bool = True) -> None:
    """Record the hashes of the job's last attempt, so that a later change is detected."""
    attempt = folder.logged_attempts(job)[-1]
    telemetry = attempt / "telemetry.jsonl"
    trained = JobTrained(
        job=job,
        attempt=int(attempt.name),
        sha256=file_hash(attempt / "events.jsonl"),
        telemetry_sha256=file_hash(telemetry) if telemetry.is_file() else None,
        files={path.name: file_hash(path) for path in node_files(attempt)},
    )
    events.write("job-trained", sync=sync, **trained.model_dump(mode="json"))


def ops_per_sample(folder: RunFolder, record: JobRecord) -> int | None:
    """Return the operations for training on one sample, as the score counts them."""
    from vflops.record.readout.contents import Contents
    from vflops.results.score.training_score import work_score

    work = work_score(record, Contents(folder, run_log_only=True).graphs)
    return work.ops_total if work else None


def _with_divisible(entry: PreparedWorkload, graph: Graph) -> Graph:
    """Return the graph with what the model declares about how ranks can share it."""
    if entry.spec.runner != ENGINE or entry.settings.train.framework != "pytorch":
        return graph
    from vflops.train.parallel.divisible import divisible

    workload_code = entry.spec.load_code().create(entry.settings, entry.data)
    return graph.model_copy(update={"divisible": divisible(workload_code, entry.spec.name)})


def write_graph(folder: RunFolder, events: EventWriter, graph: Graph) -> None:
    """Write a graph to the run folder, and its hash to the log."""
    path = folder.graph_file(graph.model)
    atomic.make_folder(path.parent)
    graph.write(path)
    counted = Counted(model=graph.model, batch=graph.batch, sha256=graph.digest())
    events.write("counted", **counted.model_dump(mode="json"))


def _read_planned(folder: RunFolder, planned: JobPlanned) -> JobRecord:
    path = folder.job_file(planned.job)
    record = folder.effective_job(planned.job)
    if file_hash(path) != planned.sha256:
        raise RunFailed(f"{path} was changed after the job was planned", hint="start a new run")
    return record
