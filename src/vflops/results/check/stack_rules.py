"""The rule for the software of a run: its logs name the one that ``system.json`` describes.

An audit compares bits if its stack is the claimed one, and leaves a tolerance otherwise, so that a
claim must be the same wherever it is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.results.check.device_rules import CPU
from vflops.results.check.rule import Outcome
from vflops.units import count

_FRAMEWORK = "framework"


def check_stack(contents: Contents) -> Outcome:
    """Fail if an attempt claims other software or more threads than the described machine has."""
    if not _is_described(contents):
        return Outcome("not applicable", "the machine that trained is not described in system.json")
    for fault, event in _faults(contents):
        return Outcome("fail", fault, event.source)
    attempts = sum(1 for _ in _started(contents))
    if not attempts:
        return Outcome("not applicable", "nothing was trained in this run")
    return Outcome("pass", f"{count(attempts, 'attempt')} with the software of system.json")


def stack_fault(contents: Contents) -> str | None:
    """Return how the files of a run disagree about its stack; None if they do not."""
    if not _is_described(contents):
        return None
    return next((fault for fault, _ in _faults(contents)), None)


def _is_described(contents: Contents) -> bool:
    """Whether ``system.json`` describes the machine that trained, and not one that submitted."""
    folder = contents.folder
    return folder.record.on_this_machine and folder.system_file.is_file()


def _started(contents: Contents) -> Iterator[tuple[JobStarted, Event]]:
    for job in (*contents.training_jobs, *contents.workers):
        for log in job.logs:
            for event in log.events:
                if event.kind == "job":
                    yield event.payload(JobStarted), event


def _faults(contents: Contents) -> Iterator[tuple[str, Event]]:
    system = contents.read(SystemRecord, contents.folder.system_file)
    software = {fact.name: fact.value for fact in system.layer(_FRAMEWORK).facts}
    hardware = {fact.name: fact.value for fact in system.layer("hardware").facts}
    torch, cpus = software.get("torch"), hardware.get("usable cpus")
    version, package = software.get("vflops"), contents.folder.record.package
    for started, event in _started(contents):
        if torch is not None and started.torch is not None and started.torch != torch:
            yield f"the log says torch {started.torch}, but system.json says {torch}", event
        if started.device == CPU and isinstance(cpus, int) and started.threads > cpus:
            yield f"{started.threads:,} threads on the {cpus:,} usable CPUs of system.json", event
        if version is not None and package is not None and package.version != version:
            ran = f"run.json says vflops {package.version}"
            yield f"{ran}, but system.json says {version}", event
