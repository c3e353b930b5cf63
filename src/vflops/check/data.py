"""Rules of seeds and data: which there were, what they are, and what qualities were read on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vflops.check.published import SHARES
from vflops.check.rule import Outcome
from vflops.record.training import Ensembled, JobRecord
from vflops.score.contents import Contents
from vflops.score.trained import Trained
from vflops.score.words import count
from vflops.units import integer

_NONE = Outcome("not applicable", "nothing was trained in this run")


def _records(contents: Contents) -> list[JobRecord]:
    return [job.record for job in (*contents.trained, *contents.workers)]


def _file(record: JobRecord) -> str:
    return f"jobs/{record.job}/job.json"


def seeds(contents: Contents) -> Outcome:
    """Every training has a seed of its own, but for twins and the workers of one search."""
    records = _records(contents)
    if not records:
        return _NONE
    owners: dict[tuple[str, int], tuple[object, int]] = {}
    for record in records:
        # What may share a seed: a pair of twins, the workers of a search.
        group = (record.repeat, record.bag.number if record.bag else None)
        first, job = owners.setdefault((record.workload, record.seed), (group, record.job))
        if first != group:
            words = f"seed {record.seed} is that of job {job}: one training twice, not two"
            return Outcome("fail", words, _file(record))
    return Outcome("pass", f"{count(len(owners), 'seed')} of {count(len(records), 'job')}")


def fingerprinted(contents: Contents) -> Outcome:
    """The data of every job is pinned by a checksum, one for each workload."""
    records = _records(contents)
    if not records:
        return _NONE
    known: dict[str, str] = {}
    for record in records:
        found = record.data.fingerprint
        if not re.fullmatch("[0-9a-f]{64}", found):
            return Outcome("fail", f"its data has no checksum: {found!r}", _file(record))
        if known.setdefault(record.workload, found) != found:
            words = f"other data than the other jobs of {record.workload}"
            return Outcome("fail", words, _file(record))
    return Outcome("pass", f"SHA-256 of the data of {count(len(known), 'workload')}")


def marked(contents: Contents) -> Outcome:
    """Data that nobody gave is marked as synthetic."""
    records = _records(contents)
    if not records:
        return _NONE
    for record in records:
        if record.settings.get("data") is None and not record.data.synthetic:
            words = "no data was given, so it is synthetic, and is not marked so"
            return Outcome("fail", words, _file(record))
    made = sum(record.data.synthetic for record in records)
    return Outcome("pass", f"synthetic data in {made} of {count(len(records), 'job')}")


def evaluated(contents: Contents) -> Outcome:
    """Every quality is one of the whole validation set, the last one of the trained model."""
    if not contents.trained:
        return _NONE
    for job in contents.trained:
        fault = _evaluations(job)
        if fault:
            return Outcome("fail", f"job {job.record.job}: {fault}")
    fault = _ensembles(contents, contents.trained)
    if fault:
        return Outcome("fail", fault)
    seen = sum(len(job.evaluations) for job in contents.trained)
    if not seen:
        return Outcome("cannot tell", "nothing was evaluated")
    return Outcome("pass", f"{count(seen, 'evaluation')}, each of the whole validation set")


def _evaluations(job: Trained) -> str | None:
    whole, done = job.record.data.validation, job.finished
    for each in (timed.evaluated for timed in job.evaluations):
        if each.evaluated != whole:
            return f"an evaluation saw {integer(each.evaluated)} of {integer(whole)} samples"
        if job.record.goal.quality in SHARES and not 0 <= each.quality <= 1:
            return f"a {job.record.goal.quality} of {each.quality:g} is none"
    if done is None:
        return None
    if not job.evaluations:
        return "it was never evaluated"
    last = job.evaluations[-1].evaluated.step
    if done.reason != "command" and last != done.step:
        return f"the last evaluation was after step {last}, training ended after {done.step}"
    return None


def _ensembles(contents: Contents, trained: Sequence[Trained]) -> str | None:
    sizes = {job.record.job: job.record.data.validation for job in trained}
    for event in contents.history.events("ensemble"):
        found = event.payload(Ensembled)
        whole = {sizes[job] for job in found.jobs if job in sizes}
        if whole and whole != {found.evaluated}:
            seen = integer(found.evaluated)
            return f"{event.source}: an ensemble saw {seen} of {integer(max(whole))} samples"
    return None
