"""The run of everything: describe the system, count, measure the ceilings, train the workloads.

Each step writes events; what was done is not done again, so a run that was killed goes on where it
stopped. Job 0 is the run itself; each training is a job of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from vflops.config.settings import Settings
from vflops.errors import Interrupted, UsageError, VflopsError
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobRearranged, PowerImported
from vflops.record.formats.measurement import Measurement
from vflops.record.log.events import EventWriter
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score
from vflops.run import jobs as training
from vflops.run.jobs import Prepared

if TYPE_CHECKING:
    from vflops.launch.controller import JobProgress
    from vflops.machine.ceilings.ceiling_plan import Item


@dataclass(frozen=True)
class Watch:
    """What a caller may want to see of a run while it goes on."""

    step: Callable[[str], None] = lambda text: None
    """Told the name of each step as it starts."""
    progress: Callable[[str, int, int], None] = lambda text, done, whole: None
    """Told how much of a step is done."""
    plan: Callable[[tuple[Item, ...]], None] = lambda items: None
    """Told all that will be measured."""
    start: Callable[[Item], None] = lambda item: None
    """Told what is being measured now."""
    ceiling: Callable[[Measurement], None] = lambda measurement: None
    """Told each measurement as it is ready."""
    folder: Callable[[RunFolder], None] = lambda folder: None
    """Told where the run is kept, as soon as it is known."""
    job: Callable[[JobRecord, int, int | None], None] = lambda record, planned, ops: None
    """Told which training starts, of how many, and the operations of one of its samples."""
    event: Callable[[str, dict[str, Any]], None] = lambda kind, data: None
    """Told kind and data of what a training writes down."""
    jobs: Callable[[Sequence[JobProgress]], None] = lambda jobs: None
    """Told where all base models of an ensemble stand, again and again."""


def start(parent: Path, workload: str, settings: Settings, watch: Watch) -> RunFolder:
    """Make a new run folder under ``parent`` and run into it; wrong settings make no folder."""
    _validate(settings)
    prepared = training.prepare(settings, watch.progress)
    folder = RunFolder.create(parent, workload, settings)
    watch.folder(folder)
    _attempt(folder, watch, prepared)
    return folder


def resume(folder: RunFolder, watch: Watch, assignments: Sequence[str] = ()) -> None:
    """Go on with a run that did not end: only what is missing is done.

    One that ended without its report only needs to be concluded. ``assignments`` are settings of
    how ranks share the trainings that are left.
    """
    if not folder.history(0).state.complete:
        from vflops.run.rearrange import rearranged

        new = rearranged(folder, assignments)
        watch.folder(folder)
        for each in new:
            changes = ", ".join(each.changes)
            watch.step(f"job {each.job} goes on otherwise, and is no valid score: {changes}")
        _attempt(folder, watch, None, new)
    elif all(path.is_file() for path in folder.conclusions):
        raise UsageError(
            f"{folder.path} is complete: there is nothing to resume",
            hint=f"look at it: vflops report {folder.path}",
        )


def _validate(settings: Settings) -> None:
    from vflops.machine.ceilings.measure import planned
    from vflops.models.model_registry import model

    for name in settings.count.models:
        if model(name).input_shape is None:
            raise UsageError(
                f"count.models holds {name!r}, whose input is not known",
                hint=f"a run counts models of the list; yours: vflops count {name} --input SHAPE",
            )
    planned(settings.micro)


def _attempt(
    folder: RunFolder,
    watch: Watch,
    prepared: list[Prepared] | None,
    rearranged: Sequence[JobRearranged] = (),
) -> None:
    with folder.in_use(), _signals_interrupt(), folder.start_attempt(job=0) as events:
        try:
            events.write("start", workload=folder.record.workload)
            for each in rearranged:
                events.write("job-rearranged", **each.model_dump(mode="json"))
            _steps(folder, events, watch, prepared)
            events.write("end")
        except (KeyboardInterrupt, Interrupted) as error:
            message = error.message if isinstance(error, Interrupted) else "stopped by the user"
            events.write("stopped", message=message)
            raise _interrupted(folder, message, getattr(error, "hint", None)) from None
        except VflopsError as error:
            _note_failure(events, error)
            raise


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """A scheduler's end or warning stops a run as the keyboard does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in training.STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _note_failure(events: EventWriter, error: VflopsError) -> None:
    with suppress(VflopsError):  # the disk that failed may be the one that holds the log
        events.write("failed", message=error.message)


def _steps(
    folder: RunFolder, events: EventWriter, watch: Watch, prepared: list[Prepared] | None
) -> None:
    settings = folder.record.settings
    watch.step("describing the system")
    if prepared is None and not folder.history(0).events("described"):
        prepared = training.prepare(settings, watch.progress)
    _describe(folder, events, prepared or [])
    counted = {each.model for each in Contents(folder).counted}
    for model in settings.count.models:
        if model not in counted:
            watch.step(f"counting {model}")
            _count(folder, events, model)
    if settings.micro.benchmarks:
        watch.step("measuring the ceilings")
    _measure(folder, events, watch)
    if settings.workloads:
        jobs = training.plan(folder, events, prepared, watch.progress)
        members = [record for record in jobs if record.bag is not None]
        if members:
            training.run_ensembles(folder, events, members, watch.step, watch.jobs)
        searching = [record for record in jobs if record.worker is not None]
        if searching:
            training.run_searches(folder, events, searching, watch.step, watch.jobs)
        for record in (job for job in jobs if job.bag is None and job.worker is None):
            if training.by_agents(settings):
                watch.step(f"training {record.workload}, seed {record.seed}")
                training.run_side_by_side(folder, events, [record], watch.jobs)
                continue
            if not folder.ended(record.job):
                watch.job(record, len(jobs), training.ops_per_sample(folder, record))
            training.run(folder, events, record, watch.event)


def _describe(folder: RunFolder, events: EventWriter, prepared: Sequence[Prepared]) -> None:
    """The machine and, by what is known of the workloads before they run, their layers."""
    from vflops.machine.system.gather import gather
    from vflops.record.formats.system import SystemRecord
    from vflops.run.describe import workload_layers

    layers = workload_layers(prepared, folder.record.settings.profile)
    now = gather(
        folder.path,
        implementation=layers.implementation,
        hyper_parameters=layers.hyper_parameters,
        problem=layers.problem,
    )
    if folder.history(0).events("described"):
        before = SystemRecord.read(folder.system_file)
        if before.machine != now.machine and _needs_its_machine(folder):
            raise UsageError(
                f"{folder.path} was begun on another machine: {', '.join(before.machine)}; "
                f"this is {', '.join(now.machine)}",
                hint="resume it there, or start a new run here",
            )
        return
    now.write(folder.system_file)
    events.write("described", sha256=now.digest())


def _needs_its_machine(folder: RunFolder) -> bool:
    """Whether work is left that is of the machine itself: any, unless a scheduler has the jobs."""
    from vflops.launch.factory import backend
    from vflops.machine.ceilings.measure import planned

    settings = folder.record.settings
    done = {item.key for item in Contents(folder).measurements if item.value is not None}
    return backend(settings.launch.on).is_this_machine or any(
        item.key not in done for item in planned(settings.micro)
    )


def _count(folder: RunFolder, events: EventWriter, model: str) -> None:
    from vflops.models.model_graph import graph_of

    training.keep_graph(folder, events, graph_of(model, batch=folder.record.settings.count.batch))


def _measure(folder: RunFolder, events: EventWriter, watch: Watch) -> None:
    from vflops.machine.ceilings.measure import measure, planned
    from vflops.machine.host import HostLoad

    settings = folder.record.settings
    items = planned(settings.micro)
    events.write("plan", measurements=[item.key for item in items])
    watch.plan(items)
    done = [item for item in Contents(folder).measurements if item.value is not None]
    for item in done:
        watch.ceiling(item)
    load = HostLoad()
    for item in measure(
        settings.micro,
        seed=settings.seed,
        folder=folder.path,
        done={item.key for item in done},
        on_start=watch.start,
    ):
        events.write("measurement", **item.model_dump(mode="json"))
        events.write("load", others_share=load.others_share())
        watch.ceiling(item)


def import_power(folder: RunFolder, log: Path) -> Path:
    """Add a power log to a complete run, and its hash to the run's own log."""
    from vflops.record.log.imported_power import import_power as keep

    history = folder.history()
    if not history.state.complete:
        raise UsageError(
            f"{folder.path} is not complete: {history.state.reason}",
            hint=f"go on with it first: vflops resume {folder.path}",
        )
    spans = [
        (log.events[0].utc_s, log.events[-1].utc_s)
        for job, logs in history.jobs.items()
        for log in logs
        if job and log.events
    ]
    with folder.in_use():
        kept = keep(folder.path, log, spans=spans)
        with folder.start_attempt(job=0) as events:
            name = str(kept.relative_to(folder.path))
            imported = PowerImported(file=name, sha256=file_hash(kept))
            events.write("power-imported", **imported.model_dump(mode="json"))
            events.write("end")
    return kept


def conclude(folder: RunFolder, watch: Watch) -> Findings:
    """Write what follows from the record: score, findings and report; then pin every file."""
    from vflops.publish.report.report_page import write_report
    from vflops.results.evidence.manifest import write_manifest

    watch.step("writing the report")
    contents = Contents(folder)
    try:
        contents.once(score).write(folder.score_file)
        findings = contents.once(check)
        findings.write(folder.findings_file)
        write_report(contents)
        if contents.state.complete:
            write_manifest(folder)
    except KeyboardInterrupt:
        raise _interrupted(folder, "stopped by the user") from None
    return findings


def _interrupted(folder: RunFolder, message: str, hint: str | None = None) -> Interrupted:
    return Interrupted(
        f"interrupted, {message}; what was done is kept in {folder.path}",
        hint=hint or f"go on with it: vflops resume {folder.path}",
    )
