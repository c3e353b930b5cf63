"""The rule for devices: the description of the system lists all devices that were used.

A rank has an accelerator to itself, or at least one CPU. So a node cannot have more ranks of a job
than accelerators or CPUs, and claimed ranks do not multiply the ceiling of a machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from vflops.record.formats.job_events import JobStarted
from vflops.record.formats.system import Fact, SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import event_location, measurement_location
from vflops.results.check.rule import Outcome
from vflops.units import count

CPU = "cpu"


def check_devices(contents: Contents) -> Outcome:
    """Fail unless system.json or a node record describes every device that was used."""
    record = contents.read(SystemRecord, contents.folder.system_file)
    facts = record.layer("hardware").facts
    compared = 0
    nodes = {node.node: node.system.layer("hardware").facts for node in contents.measured_nodes}
    for item in contents.measurements:
        kind, _, index = item.device.partition(":")
        if item.value is None or not index.isdigit():  # a file system or the CPU
            continue
        fault = _absence(nodes.get(item.node or "", facts), kind, int(index))
        if fault:
            evidence = f"{item.benchmark} {item.case} was measured on {item.device}: {fault}"
            return Outcome("fail", evidence, measurement_location(contents, item))
        compared += 1
    for job in (*contents.training_jobs, *contents.workers):
        if job.started is None:
            continue
        used, described_by = job.started, _node_facts(job) or facts
        requested = contents.folder.record.settings.launch.gpus_per_rank
        if requested and used.device == CPU:
            evidence = (
                f"job {job.record.job} ran on the CPU, although launch.gpus_per_rank = {requested}"
                " requests GPUs: a trial of the layout"
            )
            return Outcome("fail", evidence, event_location(job, "job"))
        names = sorted(set(_model_names(described_by, used.device)))
        fault = _absence(described_by, used.device, 0) if used.device != CPU else None
        if names and not any(is_same_product(used.device_name, name) for name in names):
            fault = f"the description names {', '.join(names)}"
        if fault:
            evidence = f"job {job.record.job} ran on {used.device_name!r}: {fault}"
            return Outcome("fail", evidence, event_location(job, "job"))
        rehearses = contents.folder.record.settings.launch.rehearse  # another rule says so
        fault = None if rehearses else next(_excess_ranks(job, facts), None)
        if fault:
            return Outcome("fail", f"job {job.record.job}: {fault}", event_location(job, "job"))
        compared += bool(names)
    if not compared:
        return Outcome("not applicable", "no used device is named and described")
    subjects = count(compared, "ceiling or job", "ceilings and jobs")
    return Outcome("pass", f"{subjects}, all on described devices")


def _absence(facts: Sequence[Fact], kind: str, index: int) -> str | None:
    """Return why the facts exclude an accelerator; None if they do not."""
    known = {fact.name: fact.value for fact in facts}
    number, known_kind = known.get("accelerators"), known.get("accelerator kind")
    if isinstance(number, int) and index >= number:
        return f"the description has {count(number, 'accelerator')}"
    # ``cuda (ROCm)`` is named ``cuda``.
    if isinstance(known_kind, str) and known_kind.split()[0] != kind:
        return f"the described accelerators are of kind {known_kind}"
    return None


def _excess_ranks(job: TrainedJob, starting_machine: Sequence[Fact]) -> Iterator[str]:
    """Yield how an attempt has more ranks on a node than the node has devices for them."""
    for attempt, folder in zip(job.attempts, job.folders, strict=False):
        nodes = job.nodes_of(folder)
        for event in (event for event in attempt.log.events if event.kind == "job"):
            started = event.payload(JobStarted)
            ranks = math.ceil(started.ranks / max(len(nodes), 1))
            described: list[tuple[str, Sequence[Fact]]] = [
                (node.name, node.facts) for node in nodes
            ]
            for name, facts in described or [("the machine", starting_machine)]:
                number, kind = _slots(facts, started.device)
                if number is not None and ranks > number:
                    claimed = f"{count(ranks, 'rank')} ran on {name}"
                    yield f"{claimed}, whose description has {count(number, kind)}"


def _slots(facts: Sequence[Fact], device: str) -> tuple[int | None, str]:
    """Return how many ranks fit on the described devices, and the name of one; None if unknown."""
    names = ("logical cpus", "usable cpus") if device == CPU else ("accelerators",)
    known = {fact.name: fact.value for fact in facts}
    numbers = [number for name in names if isinstance(number := known.get(name), int)]
    return max(numbers, default=None), "CPU" if device == CPU else "accelerator"


def _node_facts(job: TrainedJob) -> list[Fact]:
    """Return the facts of a job's nodes, which may differ from the machine that started the run."""
    return [fact for path in job.folders for node in job.nodes_of(path) for fact in node.facts]


def _model_names(facts: Sequence[Fact], device: str) -> Iterator[str]:
    """Yield the model names of the devices of a kind."""
    pattern = "cpu model" if device == CPU else "accelerator * model"
    for fact in facts:
        if fnmatchcase(fact.name, pattern) and fact.value is not None:
            yield str(fact.value)


def is_same_product(recorded: str, name: str) -> bool:
    """Whether two names mean the same product, that is, one contains the other.

    The description has single spaces between words, and it cuts very long names.
    """
    recorded, name = (" ".join(text.casefold().split()) for text in (recorded, name))
    name = name.removesuffix("…")
    return bool(recorded) and (recorded in name or name in recorded)
