"""The rule of devices: what was measured and trained on is in the description of the system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from vflops.record.formats.node import node_records
from vflops.record.formats.system import Fact, SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import measured_at, noted
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count

CPU = "cpu"


def described(contents: Contents) -> Outcome:
    """Every device is one that system.json, or a node of the job, has by kind, place and name."""
    record = contents.read(SystemRecord, contents.folder.system_file)
    facts = record.layer("hardware").facts
    compared = 0
    for item in contents.measurements:
        kind, _, index = item.device.partition(":")
        if item.value is None or not index.isdigit():  # a file system, or the processors
            continue
        fault = _no_such(facts, kind, int(index))
        if fault:
            words = f"{item.benchmark} {item.case} was measured on {item.device}: {fault}"
            return Outcome("fail", words, measured_at(contents, item))
        compared += 1
    for job in (*contents.trained, *contents.workers):
        if job.started is None:
            continue
        told, own = job.started, _of_nodes(job) or facts
        names = sorted(set(_names(own, told.device)))
        fault = _no_such(own, told.device, 0) if told.device != CPU else None
        if names and not any(_alike(told.device_name, name) for name in names):
            fault = f"described is {', '.join(names)}"
        if fault:
            words = f"job {job.record.job} ran on {told.device_name!r}: {fault}"
            return Outcome("fail", words, noted(job, "job"))
        compared += bool(names)
    if not compared:
        return Outcome("not applicable", "no device is both named and described")
    told_of = count(compared, "ceiling or job", "ceilings and jobs")
    return Outcome("pass", f"{told_of}, on devices that are described")


def _no_such(facts: Sequence[Fact], kind: str, index: int) -> str | None:
    """Why a machine has no such accelerator; None also where it does not say what it has."""
    known = {fact.name: fact.value for fact in facts}
    has, own = known.get("accelerators"), known.get("accelerator kind")
    if isinstance(has, int) and index >= has:
        return f"{count(has, 'accelerator')} described"
    if isinstance(own, str) and own.split()[0] != kind:  # ``cuda (ROCm)`` is named ``cuda``
        return f"the accelerators described are of the kind {own}"
    return None


def _of_nodes(job: TrainedJob) -> list[Fact]:
    """What the nodes of a job say of themselves; a scheduler's need not be like the run's own."""
    return [fact for place in job.folders for node in node_records(place) for fact in node.facts]


def _names(facts: Sequence[Fact], device: str) -> Iterator[str]:
    """What devices of a kind are called."""
    pattern = "cpu model" if device == CPU else "accelerator * model"
    for fact in facts:
        if fnmatchcase(fact.name, pattern) and fact.value is not None:
            yield str(fact.value)


def _alike(told: str, name: str) -> bool:
    """Whether two libraries mean one product: the longer name may say more of it."""
    one, other = told.casefold(), name.casefold()
    return bool(one.strip()) and (one in other or other in one)
