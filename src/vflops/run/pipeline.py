"""The steps of a run: describe the system, count, measure the ceilings, train the workloads.

Each step writes events, and finished steps are not repeated, so an interrupted run resumes where it
stopped. Job 0 is the run itself; each model is trained by a separate job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vflops import interruption
from vflops.config.settings import Settings
from vflops.errors import DiskFull, Hint, Interrupted, Left, UsageError, VflopsError
from vflops.launch.factory import runs_here
from vflops.record.files import atomic
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.challenge import ChallengedRun
from vflops.record.formats.job_events import JobRearranged, PowerImported
from vflops.record.formats.measurement import Loaded, Measurement
from vflops.record.log.events import EventWriter
from vflops.record.own_runs import finish_hint
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score_text
from vflops.run import jobs, validate
from vflops.run.jobs import PreparedWorkload
from vflops.run.observer import RunObserver
from vflops.run.recorded_programs import require_consent
from vflops.run.run_size import rehearsal_line, request_lines
from vflops.run.stopped_searches import can_be_ended, require_can_be_ended
from vflops.units import seconds


def start(
    parent: Path,
    workload: str,
    settings: Settings,
    observer: RunObserver,
    *,
    before: Callable[[], None] = lambda: None,
    challenge: ChallengedRun | None = None,
) -> RunFolder:
    """Create a run folder in ``parent`` and run; raise before that if settings are invalid.

    ``before`` is called when the data is ready, before anything is measured. ``challenge`` is what
    the seeds in ``settings`` follow from, if they do.
    """
    if line := rehearsal_line(settings):
        observer.note(line)
    observer.step("checking the settings and the data")  # imports the framework, for seconds
    validate.check_run(settings)
    prepared = jobs.prepare(settings, observer.progress)
    rejected = (
        validate.rehearsed_fault(settings, entry.spec, entry.settings.train, entry.data.train)
        for entry in prepared
    )
    warnings = (
        *validate.framework_warnings(settings),
        *validate.cache_warnings(),
        *jobs.data_warnings(prepared),
    )
    for warning in (*warnings, *filter(None, rejected)):
        observer.warn(warning)
    lines, idle = request_lines(settings)
    for line in lines:
        observer.note(line)
    for warning in idle:
        observer.warn(warning)
    before()
    here = runs_here(settings.launch.on)
    folder = RunFolder.create(parent, workload, settings, challenge, this_machine=here)
    with _interruptible(folder):
        observer.folder(folder)
        _attempt(folder, observer, prepared)
    return folder


def resume(
    folder: RunFolder,
    observer: RunObserver,
    assignments: Sequence[str] = (),
    *,
    end_searches: bool = False,
    allow_command: bool = False,
) -> None:
    """Do the remaining work of an unfinished run; raise if nothing is left to do.

    For a finished run without a report this does nothing: the caller writes the report with
    ``conclude``. ``assignments`` change how ranks share the models of the remaining jobs. With
    ``end_searches``, searches that were stopped end with what they have done. Programs that the
    run names are started only if it is the user's own, or with ``allow_command``.
    """
    if not folder.history(0).state.complete:
        require_consent(folder, allow_command=allow_command)
        from vflops.run.resume_changes import changed_jobs

        if end_searches:
            require_can_be_ended(folder)

        with _interruptible(folder):
            changed = changed_jobs(folder, assignments)
            observer.folder(folder)
            for job in changed:
                observer.step(
                    f"job {job.job} resumes with changed settings; its score will not be valid: "
                    + ", ".join(job.changes)
                )
            _attempt(folder, observer, None, changed, end_searches=end_searches)
    elif all(path.is_file() for path in folder.result_files):
        raise UsageError(
            f"{folder.path} is complete: there is nothing to resume",
            hint=Hint("show its report", f"vflops report {folder.path}"),
        )


def _attempt(
    folder: RunFolder,
    observer: RunObserver,
    prepared: list[PreparedWorkload] | None,
    changed: Sequence[JobRearranged] = (),
    *,
    end_searches: bool = False,
) -> None:
    from vflops.launch.factory import launcher_class

    with folder.in_use(), folder.start_attempt(job=0) as events:
        try:
            events.write("start", workload=folder.record.workload)
            for job in changed:
                events.write("job-rearranged", **job.model_dump(mode="json"))
            folder.pass_on_changes()  # also those of an attempt that died before it did
            with launcher_class(folder.record.settings.launch.on).controlling(folder):
                _steps(folder, events, observer, prepared, end_searches=end_searches)
        except (KeyboardInterrupt, Interrupted) as error:
            left = {"left": True} if isinstance(error, Left) else {}
            events.write("stopped", message=_reason(error), **left)
            raise
        except VflopsError as error:
            _record_failure(events, error)
            raise
        events.write("end")


@contextmanager
def _interruptible(folder: RunFolder) -> Iterator[None]:
    """Let a scheduler's signals stop the block like Ctrl-C; the error says how to resume.

    So does that of a full disk.
    """
    resume_hint = f"resume it: vflops resume {folder.path}"
    end_hint = f"; or end the search as it is: vflops resume --end {folder.path}"
    try:
        with interruption.handled(resume_hint):
            yield
    except (KeyboardInterrupt, Interrupted) as error:
        raise (Left if isinstance(error, Left) else Interrupted)(
            f"the run was interrupted ({_reason(error)}); finished work is kept in {folder.path}",
            hint=getattr(error, "hint", None)
            or resume_hint + (end_hint if can_be_ended(folder) else ""),
        ) from None
    except DiskFull as error:
        error.hint = Hint(f"{error.hint}; then resume it", f"vflops resume {folder.path}")
        raise


def _reason(error: KeyboardInterrupt | Interrupted) -> str:
    return error.message if isinstance(error, Interrupted) else interruption.cause(error)


def _record_failure(events: EventWriter, error: VflopsError) -> None:
    with suppress(VflopsError):  # writing the log may fail for the same reason
        events.write("failed", message=error.message)


def _steps(
    folder: RunFolder,
    events: EventWriter,
    observer: RunObserver,
    prepared: list[PreparedWorkload] | None,
    *,
    end_searches: bool,
) -> None:
    from vflops.launch.factory import launcher_class

    settings = folder.record.settings
    is_described = bool(folder.history(0).events("described"))
    if not is_described:
        observer.step("describing the system")
    if prepared is None and not is_described:
        prepared = jobs.prepare(settings, observer.progress)
    _describe(folder, events, prepared or [])
    counted = {count.model for count in Contents(folder, run_log_only=True).counted}
    for model in settings.count.models:
        if model not in counted:
            observer.step(f"counting {model}")
            _count(folder, events, model)
    if settings.launch.rehearse or not settings.micro.benchmarks:  # shared devices have no ceilings
        events.write("plan", measurements=[])
    elif launcher_class(settings.launch.on).is_this_machine:
        _measure(folder, events, observer)  # other nodes measure before they train
    if settings.workloads:
        records = jobs.plan(folder, events, prepared, observer.progress)
        members = [record for record in records if record.bag is not None]
        searching = [record for record in records if record.worker is not None]
        single = [record for record in records if record.bag is None and record.worker is None]
        order = jobs.JobOrder([*members, *searching, *single])
        if members:
            jobs.run_ensembles(folder, events, members, order, observer)
        if searching:
            jobs.run_searches(folder, events, searching, order, observer, end=end_searches)
        for record in single:
            place = order.place([record])
            if jobs.uses_agents(settings):
                if not folder.ended(record.job):
                    observer.step(f"training {record.workload}, seed {record.seed}{place}")
                jobs.run_side_by_side(folder, events, [record], observer)
                continue
            if not folder.ended(record.job):
                observer.job(record, place, len(records), jobs.ops_per_sample(folder, record))
            jobs.run(folder, events, record, observer.event)


def _describe(folder: RunFolder, events: EventWriter, prepared: Sequence[PreparedWorkload]) -> None:
    """Write system.json; raise if the remaining work needs the machine of an earlier attempt."""
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
        if before.machine != now.machine and _needs_same_machine(folder):
            raise UsageError(
                f"{folder.path} was started on another machine: {', '.join(before.machine)}; "
                f"this is {', '.join(now.machine)}",
                hint="resume it there, or start a new run here",
            )
        return
    now.write(folder.system_file)
    events.write("described", sha256=now.digest())


def _needs_same_machine(folder: RunFolder) -> bool:
    """Whether the remaining work must be done on the same machine."""
    from vflops.launch.factory import launcher_class

    return launcher_class(folder.record.settings.launch.on).is_this_machine


def _count(folder: RunFolder, events: EventWriter, model: str) -> None:
    from vflops.models.model_graph import graph_of

    jobs.write_graph(folder, events, graph_of(model, batch=folder.record.settings.count.batch))


def _measure(folder: RunFolder, events: EventWriter, observer: RunObserver) -> None:
    from vflops.machine.ceilings.measure import measure, planned_items
    from vflops.machine.host import HostLoad

    settings = folder.record.settings
    items = planned_items(settings.micro)
    events.write("plan", measurements=[item.key for item in items])
    earlier = Contents(folder, run_log_only=True).measurements
    measured = {item.key: item for item in earlier}
    done = [item for item in measured.values() if item.value is not None]
    if any(_may_be_measured(measured.get(item.key)) for item in items):
        observer.step(f"measuring the ceilings: {seconds(settings.micro.budget_s)} at most")
        observer.plan(items)
        for item in done:
            observer.ceiling(item)
    else:  # this machine lacks the others, which is only recorded again
        observer = RunObserver()
    load = HostLoad()
    for item in measure(
        settings.micro,
        seed=settings.seed,
        folder=folder.path,
        done={item.key for item in done},
        on_start=observer.start,
    ):
        events.write("measurement", **item.model_dump(mode="json"))
        loaded = Loaded(
            others_share=load.others_share(),
            stolen_share=load.stolen_share(),
            programs=load.programs(),
        )
        events.write("load", **loaded.model_dump(mode="json"))
        observer.ceiling(item)


def _may_be_measured(earlier: Measurement | None) -> bool:
    """Whether there is no measurement yet, or one that ran out of time."""
    return earlier is None or earlier.ran_out_of_time


def import_power(folder: RunFolder, log: Path) -> Path:
    """Add a power log to a complete run, and its hash to the run's log."""
    from vflops.record.log.imported_power import import_power as copy_log

    history = folder.history()
    if not history.state.complete:
        raise UsageError(
            f"{folder.path} is not complete: {history.state.reason}",
            hint=finish_hint(folder.path),
        )
    spans = [
        (log.events[0].utc_s, log.events[-1].utc_s)
        for job, logs in history.jobs.items()
        for log in logs
        if job and log.events
    ]
    with folder.in_use():
        copied = copy_log(folder.path, log, spans=spans)
        with folder.start_attempt(job=0) as events:
            name = str(copied.relative_to(folder.path))
            imported = PowerImported(file=name, sha256=file_hash(copied))
            events.write("power-imported", **imported.model_dump(mode="json"))
            events.write("end")
    return copied


def conclude(folder: RunFolder, observer: RunObserver) -> Findings:
    """Write the score, findings and report of a run, and the manifest if the run is complete."""
    observer.step("writing the report")
    previous = None
    with _interruptible(folder):
        from vflops.publish.report.report_page import write_report
        from vflops.results.evidence.manifest import read_manifest, write_manifest

        with suppress(VflopsError):
            previous = read_manifest(folder.path)
        folder.manifest_file.unlink(missing_ok=True)  # it does not know a log imported since then
        contents = Contents(folder)
        atomic.write_text(folder.score_file, contents.once(score_text))
        findings = contents.once(check)
        findings.write(folder.findings_file)
        write_report(contents)
        if contents.state.complete:
            write_manifest(folder, previous)
    return findings
