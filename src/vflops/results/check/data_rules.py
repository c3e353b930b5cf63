"""Rules of seeds and data: which there were, what they are, and what qualities were read on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vflops.errors import UsageError
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Ensembled, Evaluated, OutOfBag, Tested
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.locations import job_file, noted
from vflops.results.check.published_figures import SHARES
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.units import integer
from vflops.workloads.contract.registry import workload

_NONE = Outcome("not applicable", "nothing was trained in this run")


def _records(contents: Contents) -> list[JobRecord]:
    return [job.record for job in (*contents.trained, *contents.workers)]


def seeds(contents: Contents) -> Outcome:
    """Every training has a seed of its own, but for twins and the workers of one search."""
    records = _records(contents)
    if not records:
        return _NONE
    owners: dict[tuple[str, int], tuple[object, int]] = {}
    for record in records:
        group = _group(record)
        first, job = owners.setdefault((record.workload, record.seed), (group, record.job))
        if first != group:
            words = f"seed {record.seed} is that of job {job}: one training twice, not two"
            return Outcome("fail", words, job_file(record))
    copy = _copied(contents.trained)
    if copy:
        return copy
    return Outcome("pass", f"{count(len(owners), 'seed')} of {count(len(records), 'job')}")


def _copied(trained: Sequence[TrainedJob]) -> Outcome | None:
    """A training that came to the weights of another, which is no twin of it."""
    owners: dict[tuple[str, str], JobRecord] = {}
    for job in trained:
        own, found = job.record, job.finished.weights_sha256 if job.finished else None
        first = owners.setdefault((own.workload, found), own) if found else own
        if _group(first) != _group(own):
            words = f"its weights are those of job {first.job}: one training twice, not two"
            return Outcome("fail", words, noted(job, "finished"))
    return None


def _group(record: JobRecord) -> tuple[int, int | None]:
    """What may share a seed: a pair of twins, the workers of a search."""
    return record.repeat, record.bag.number if record.bag else None


def fingerprinted(contents: Contents) -> Outcome:
    """The data of every job is pinned by a checksum, one for each workload."""
    records = _records(contents)
    if not records:
        return _NONE
    known: dict[str, str] = {}
    for record in records:
        found = record.data.fingerprint
        if not re.fullmatch("[0-9a-f]{64}", found):
            return Outcome("fail", f"its data has no checksum: {found!r}", job_file(record))
        if known.setdefault(record.workload, found) != found:
            words = f"other data than the other jobs of {record.workload}"
            return Outcome("fail", words, job_file(record))
    return Outcome("pass", f"SHA-256 of the data of {count(len(known), 'workload')}")


def marked(contents: Contents) -> Outcome:
    """Data that nobody gave is marked as synthetic."""
    records = _records(contents)
    if not records:
        return _NONE
    for record in records:
        if record.settings.get("data") is None and not record.data.synthetic:
            words = "no data was given, so it is synthetic, and is not marked so"
            return Outcome("fail", words, job_file(record))
    made = sum(record.data.synthetic for record in records)
    return Outcome("pass", f"synthetic data in {made} of {count(len(records), 'job')}")


def evaluated(contents: Contents) -> Outcome:
    """Every quality is one of the whole validation set, the last one of the trained model."""
    for event, name, quality in _qualities(contents):
        if name in SHARES and not 0 <= quality <= 1:
            return Outcome("fail", f"a {name} of {quality:g} is none", event.source)
    if not contents.trained:
        return _NONE
    for job in contents.trained:
        fault = _evaluations(job)
        if fault:
            words = f"job {job.record.job}: {fault}"
            return Outcome("fail", words, noted(job, "evaluation", "finished"))
    found = _ensembles(contents, contents.trained)
    if found:
        return Outcome("fail", found[1], found[0].source)
    seen = sum(len(job.evaluations) for job in contents.trained)
    if not seen:
        where = noted(contents.trained[0], "job")
        return Outcome("cannot tell", "nothing was evaluated", where)
    return Outcome("pass", f"{count(seen, 'evaluation')}, each of the whole validation set")


def _qualities(contents: Contents) -> Iterator[tuple[Event, str, float]]:
    """Every quality that was noted, with the name that the workload itself has for it."""
    kinds: dict[str, type[Evaluated] | type[Tested] | type[OutOfBag]] = {
        "evaluation": Evaluated,
        "tested": Tested,
        "out-of-bag": OutOfBag,
    }
    for job in (*contents.trained, *contents.workers):
        name = _quality(job.record.workload, job.record.goal.quality)
        for event in (event for log in job.logs for event in log.events if event.kind in kinds):
            yield event, name, event.payload(kinds[event.kind]).quality
    for event in contents.history.events("ensemble"):
        found = event.payload(Ensembled)
        name = _quality(found.workload, "")
        yield from ((event, name, size.quality) for size in found.sizes)


def _quality(name: str, told: str) -> str:
    """What a workload is judged by; what its job says where the workload is not installed here."""
    try:
        own = workload(name).quality.name
    except UsageError:
        return told
    return own if own in SHARES else told


def _evaluations(job: TrainedJob) -> str | None:
    whole, done = job.record.data.validation, job.finished
    for each in (timed.evaluated for timed in job.evaluations):
        if each.evaluated != whole:
            return f"an evaluation saw {integer(each.evaluated)} of {integer(whole)} samples"
    if done is None:
        return None
    if not job.evaluations:
        return "it was never evaluated"
    last = job.evaluations[-1].evaluated.step
    if done.reason != "command" and last != done.step:
        return f"the last evaluation was after step {last}, training ended after {done.step}"
    return None


def _ensembles(contents: Contents, trained: Sequence[TrainedJob]) -> tuple[Event, str] | None:
    sizes = {job.record.job: job.record.data.validation for job in trained}
    for event in contents.history.events("ensemble"):
        found = event.payload(Ensembled)
        whole = {sizes[job] for job in found.jobs if job in sizes}
        if whole and whole != {found.evaluated}:
            seen = integer(found.evaluated)
            return event, f"an ensemble saw {seen} of {integer(max(whole))} samples"
    return None
