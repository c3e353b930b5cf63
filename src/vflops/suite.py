"""The run of everything: describe the system, count the models, measure the ceilings.

Each step writes events; what was measured is not measured again, so a run that was killed goes on
where it stopped. Workloads join here as further steps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.check.practice import check
from vflops.check.record import Findings
from vflops.config.settings import Settings
from vflops.errors import Interrupted, UsageError, VflopsError
from vflops.record.events import EventWriter
from vflops.record.folder import RunFolder
from vflops.record.measurement import Measurement
from vflops.score.contents import Contents
from vflops.score.score import score

if TYPE_CHECKING:
    from vflops.micro.plan import Item


@dataclass(frozen=True)
class Watch:
    """What a caller may want to see of a run while it goes on."""

    step: Callable[[str], None] = lambda text: None
    """Told the name of each step as it starts."""
    plan: Callable[[tuple[Item, ...]], None] = lambda items: None
    """Told all that will be measured."""
    start: Callable[[Item], None] = lambda item: None
    """Told what is being measured now."""
    ceiling: Callable[[Measurement], None] = lambda measurement: None
    """Told each measurement as it is ready."""


def start(parent: Path, workload: str, settings: Settings, watch: Watch) -> RunFolder:
    """Make a new run folder under ``parent`` and run into it; wrong settings make no folder."""
    _validate(settings)
    folder = RunFolder.create(parent, workload, settings)
    _attempt(folder, watch)
    return folder


def resume(folder: RunFolder, watch: Watch) -> None:
    """Go on with a run that did not end: only what is missing is done.

    One that ended without its report only needs to be concluded.
    """
    if not folder.history().state.complete:
        _attempt(folder, watch)
    elif all(path.is_file() for path in folder.conclusions):
        raise UsageError(
            f"{folder.path} is complete: there is nothing to resume",
            cure=f"look at it: vflops report {folder.path}",
        )


def _validate(settings: Settings) -> None:
    from vflops.micro.run import planned
    from vflops.models.registry import model

    for name in settings.count.models:
        if model(name).input_shape is None:
            raise UsageError(
                f"count.models holds {name!r}, whose input is not known",
                cure=f"a run counts models of the list; yours: vflops count {name} --input SHAPE",
            )
    planned(settings.micro)


def _attempt(folder: RunFolder, watch: Watch) -> None:
    with folder.in_use(), folder.start_attempt(job=0) as events:
        try:
            _steps(folder, events, watch)
            events.write("end")
        except KeyboardInterrupt:
            events.write("stopped", message="stopped by the user")
            raise _interrupted(folder) from None
        except VflopsError as error:
            _note_failure(events, error)
            raise


def _note_failure(events: EventWriter, error: VflopsError) -> None:
    with suppress(VflopsError):  # the disk that failed may be the one that holds the log
        events.write("failed", message=error.message)


def _steps(folder: RunFolder, events: EventWriter, watch: Watch) -> None:
    settings = folder.record.settings
    events.write("start", workload=folder.record.workload)
    watch.step("describing the system")
    _describe(folder, events)
    counted = {each.model for each in Contents(folder).counted}
    for model in settings.count.models:
        if model not in counted:
            watch.step(f"counting {model}")
            _count(folder, events, model)
    if settings.micro.benchmarks:
        watch.step("measuring the ceilings")
    _measure(folder, events, watch)


def _describe(folder: RunFolder, events: EventWriter) -> None:
    from vflops.system.gather import gather
    from vflops.system.record import SystemRecord

    now = gather(folder.path)
    if folder.history().events("described"):
        before = SystemRecord.read(folder.system_file)
        if before.machine != now.machine:
            raise UsageError(
                f"{folder.path} was begun on another machine: {', '.join(before.machine)}",
                cure="resume it there, or start a new run here",
            )
        return
    now.write(folder.system_file)
    events.write("described", sha256=now.digest())


def _count(folder: RunFolder, events: EventWriter, model: str) -> None:
    from vflops.flops.source import graph_of
    from vflops.record import atomic

    graph = graph_of(model, batch=folder.record.settings.count.batch)
    path = folder.graph_file(model)
    atomic.make_folder(path.parent)
    graph.write(path)
    events.write("counted", model=model, batch=graph.batch, sha256=graph.digest())


def _measure(folder: RunFolder, events: EventWriter, watch: Watch) -> None:
    from vflops.micro.host import HostLoad
    from vflops.micro.run import measure, planned

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


def conclude(folder: RunFolder, watch: Watch) -> Findings:
    """Write what follows from the record: score, findings and report."""
    from vflops.report.report import write_report

    watch.step("writing the report")
    contents = Contents(folder)
    try:
        score(contents).write(folder.score_file)
        findings = check(contents)
        findings.write(folder.findings_file)
        write_report(contents)
    except KeyboardInterrupt:
        raise _interrupted(folder) from None
    return findings


def _interrupted(folder: RunFolder) -> Interrupted:
    return Interrupted(
        f"interrupted; what was measured is kept in {folder.path}",
        cure=f"go on with it: vflops resume {folder.path}",
    )
