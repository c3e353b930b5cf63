"""Rules for seeds, data and evaluations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from vflops.errors import UsageError
from vflops.metrics.quality import bounds_fault
from vflops.record.formats.job import Duplicates, Goal, JobRecord
from vflops.record.formats.job_events import Ensembled, Evaluated, OutOfBag, Tested
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.content_rules import COMPARED, LABELLED
from vflops.results.check.copied_curves import copied_curve
from vflops.results.check.ensemble_evaluations import ensemble_evaluation_faults
from vflops.results.check.locations import event_location, job_file
from vflops.results.check.quality_limits import quality_faults
from vflops.results.check.rule import Outcome
from vflops.results.check.text_facts import text_fact_fault
from vflops.results.task.published_data import IMAGENET
from vflops.units import count, integer
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import Quality

_ACCEPTED_DIVISOR = 100
"""Duplicates of the published data that are accepted: 1 % of the validation set. They raise an
accuracy by at most as much."""
_VFLOPS = "vflops"
"""The origin of the workloads of this package."""
_NONE = Outcome("not applicable", "nothing was trained in this run")


def _records(contents: Contents) -> list[JobRecord]:
    return [job.record for job in (*contents.training_jobs, *contents.workers)]


def check_seeds(contents: Contents) -> Outcome:
    """Fail if jobs share a seed, weights or a curve, except for twins and a search's workers."""
    records = _records(contents)
    if not records:
        return _NONE
    owners: dict[tuple[str, int], tuple[object, int]] = {}
    for record in records:
        group = _group(record)
        first, job = owners.setdefault((record.workload, record.seed), (group, record.job))
        if first != group:
            evidence = (
                f"jobs {job} and {record.job} have the seed {record.seed}: one training twice"
            )
            return Outcome("fail", evidence, job_file(record))
    copy = _copied_weights(contents.training_jobs)
    if copy:
        return copy
    curve = copied_curve(contents.training_jobs, lambda job: _group(job.record))
    if curve:
        numbers = f"jobs {curve.original.record.job} and {curve.job.record.job}"
        evidence = f"{numbers} have the same {curve.what} in all digits: one training twice"
        kind = "progress" if curve.what == "losses" else "evaluation"
        return Outcome("fail", evidence, event_location(curve.job, kind))
    return Outcome("pass", _seeds_text(records, len(owners)))


def _seeds_text(records: Sequence[JobRecord], seeds: int) -> str:
    jobs = count(len(records), "job")
    if len(records) == 1:
        return f"1 job, seed {records[0].seed}"
    if len(records) == seeds:
        return f"{jobs}, each with its own seed"
    return f"{jobs}; only twins and the workers of one search have a seed in common, as they should"


def _copied_weights(trained: Sequence[TrainedJob]) -> Outcome | None:
    """Return a failure if a job has the weights of another job that is not its twin."""
    owners: dict[tuple[str, str], JobRecord] = {}
    for job in trained:
        record, weights = job.record, job.finished.weights_sha256 if job.finished else None
        first = owners.setdefault((record.workload, weights), record) if weights else record
        if _group(first) != _group(record):
            evidence = (
                f"jobs {first.job} and {record.job} have the same weights: one training twice"
            )
            return Outcome("fail", evidence, event_location(job, "finished"))
    return None


def _group(record: JobRecord) -> tuple[int, int | None]:
    """Return a key that is equal for jobs that may share a seed: twins, or workers of a search."""
    return record.repeat, record.bag.number if record.bag else None


def check_fingerprints(contents: Contents) -> Outcome:
    """Fail unless the data of all jobs of a workload has the same checksum."""
    records = _records(contents)
    if not records:
        return _NONE
    known: dict[str, str] = {}
    for record in records:
        checksum = record.data.fingerprint
        if not re.fullmatch("[0-9a-f]{64}", checksum):
            return Outcome(
                "fail",
                f"the data of job {record.job} has no checksum: {checksum!r}",
                job_file(record),
            )
        if known.setdefault(record.workload, checksum) != checksum:
            evidence = (
                f"the data of job {record.job} differs from that of other jobs of {record.workload}"
            )
            return Outcome("fail", evidence, job_file(record))
    if all(record.data.synthetic is None and record.workload == "command" for record in records):
        evidence = "the data is unknown: the checksum covers the command and its scripts only"
        return Outcome("not applicable", evidence, job_file(records[0]))
    return Outcome("pass", f"SHA-256 of the data of {count(len(known), 'workload')}")


def check_synthetic_flags(contents: Contents) -> Outcome:
    """Fail if a workload of vflops has generated data that is not marked as synthetic.

    A workload of another package may have real data of its own, which only it can tell.
    """
    records = _records(contents)
    if not records:
        return _NONE
    own = [record for record in records if not _is_of_vflops(record)]
    unknown = [
        record
        for record in records
        if record.data.synthetic is None and record.workload == "command"
    ]
    for record in records:
        known = record not in unknown and record not in own
        if known and record.settings.get("data") is None and not record.data.synthetic:
            evidence = "no data was given, so the data is synthetic, but it is not marked as such"
            return Outcome("fail", evidence, job_file(record))
    if unknown:
        evidence = (
            f"the data of {count(len(unknown), 'job')} is unknown: the command reads its own data; "
            "name it with --data to have it hashed"
        )
        return Outcome("not applicable", evidence, job_file(unknown[0]))
    if len(own) == len(records):
        names = ", ".join(dict.fromkeys(record.workload for record in own))
        stated = "synthetic" if own[0].data.synthetic else "not synthetic"
        evidence = f"{names} states that its data is {stated}; vflops cannot tell"
        return Outcome("not applicable", evidence, job_file(own[0]))
    synthetic = sum(record.data.synthetic is True for record in records)
    return Outcome("pass", f"synthetic data in {synthetic} of {count(len(records), 'job')}")


def _is_of_vflops(record: JobRecord) -> bool:
    try:
        return workload(record.workload).origin == _VFLOPS
    except UsageError:  # a workload of a package that is not installed here
        return False


def check_leaks(contents: Contents) -> Outcome:
    """Fail if samples for validation or testing are also trained on."""
    proved = _check_read_leaks(contents)
    if proved is not None and proved.verdict == "fail":
        return proved

    def fault(record: JobRecord, duplicates: Duplicates) -> str | None:
        return duplicates.leak_text if duplicates.leaked > _published(record) else None

    packed = _check_duplicates(
        contents, fault, lambda duplicates: f"{integer(duplicates.leaked)} are also trained on"
    )
    return packed if packed.verdict == "fail" or proved is None else proved


def _check_read_leaks(contents: Contents) -> Outcome | None:
    """Return the verdict from the digests that all jobs compared; None if a job has none."""
    jobs = [*contents.training_jobs, *contents.workers]
    reads = [(job, job.data_read) for job in jobs if job.record.workload in COMPARED]
    leaked = 0
    for job, read in reads:
        if read is None:
            return None
        leaked = max(leaked, read.leaked)
        if read.leaked > _published(job.record):
            evidence = (
                f"{count(read.leaked, 'sample')} for validation or testing "
                f"{'is' if read.leaked == 1 else 'are'} also trained on, by the digests of what "
                f"job {job.record.job} read"
            )
            return Outcome("fail", evidence, event_location(job, "data-read"))
    if not reads:
        return None
    data = reads[0][0].record.data
    samples = integer(data.train + data.validation + data.test)
    return Outcome("pass", f"of {samples} samples, {integer(leaked)} are also trained on")


def check_contradictions(contents: Contents) -> Outcome:
    """Fail if samples occur with two labels."""

    def fault(record: JobRecord, duplicates: Duplicates) -> str | None:
        found = duplicates.contradictory > _published(record)
        return duplicates.contradiction_text if found else None

    return _check_duplicates(
        contents, fault, lambda duplicates: f"{integer(duplicates.contradictory)} have two labels"
    )


def _check_duplicates(
    contents: Contents,
    fault: Callable[[JobRecord, Duplicates], str | None],
    passed: Callable[[Duplicates], str],
) -> Outcome:
    records = [
        record
        for record in _records(contents)
        if record.data.synthetic is False and record.workload in LABELLED
    ]
    if not records:
        return Outcome("not applicable", "no images or years of climate fields were trained on")
    for record in records:
        duplicates = record.data.duplicates
        if duplicates is None:
            evidence = (
                "its samples were not compared when they were packed: pack them again with "
                "vflops data pack"
            )
            return Outcome("cannot tell", evidence, job_file(record))
        if text := fault(record, duplicates):
            return Outcome("fail", text, job_file(record))
    data = records[0].data
    assert data.duplicates is not None
    samples = integer(data.train + data.validation + data.test)
    return Outcome("pass", f"of {samples} samples, {passed(data.duplicates)}")


def _published(record: JobRecord) -> int:
    """Return the number of duplicates to accept: nobody can remove those of ImageNet itself."""
    data = record.data
    is_imagenet = (data.train, data.validation, data.test) == IMAGENET.samples
    return data.validation // _ACCEPTED_DIVISOR if is_imagenet else 0


def check_evaluations(contents: Contents) -> Outcome:
    """Fail unless evaluations cover the whole validation set and the last one follows training."""
    for event, goal, quality in _qualities(contents):
        fault = bounds_fault(goal.name, quality, goal.limits)
        if fault:
            return Outcome("fail", fault, event.source)
    for record in _records(contents):
        fault = text_fact_fault(record)
        if fault:
            return Outcome("fail", f"job {record.job}: {fault}", job_file(record))
    unbelievable = next(quality_faults(contents), None)
    if unbelievable:
        return Outcome("fail", unbelievable[1], unbelievable[0].source)
    if not contents.training_jobs:
        return _NONE
    for job in contents.training_jobs:
        fault = _evaluation_fault(job)
        if fault:
            evidence = f"job {job.record.job}: {fault}"
            return Outcome("fail", evidence, event_location(job, "evaluation", "finished"))
    fault_of_ensemble = _ensemble_fault(contents, contents.training_jobs)
    if fault_of_ensemble:
        return Outcome("fail", fault_of_ensemble[1], fault_of_ensemble[0].source)
    evaluations = sum(len(job.evaluations) for job in contents.training_jobs)
    if not evaluations:
        where = event_location(contents.training_jobs[0], "job")
        return Outcome("cannot tell", "nothing was evaluated", where)
    return Outcome("pass", f"{count(evaluations, 'evaluation')}, each on the whole validation set")


def _qualities(contents: Contents) -> Iterator[tuple[Event, Quality, float]]:
    """Yield every recorded quality, with the measure that the workload defines."""
    kinds: dict[str, type[Evaluated] | type[Tested] | type[OutOfBag]] = {
        "evaluation": Evaluated,
        "tested": Tested,
        "out-of-bag": OutOfBag,
    }
    for job in (*contents.training_jobs, *contents.workers):
        measure = _measure(job.record.workload, job.record.goal)
        for event in (event for log in job.logs for event in log.events if event.kind in kinds):
            yield event, measure, event.payload(kinds[event.kind]).quality
    for event in contents.history.events("ensemble"):
        ensemble = event.payload(Ensembled)
        jobs = frozenset(ensemble.jobs)
        goals = [job.record.goal for job in contents.training_jobs if job.record.job in jobs]
        for goal in goals[:1]:
            measure = _measure(ensemble.workload, goal)
            yield from ((event, measure, quality) for quality in ensemble.qualities)


def _measure(name: str, recorded: Goal) -> Quality:
    """Return the quality that a workload defines, or the recorded one.

    The recorded one counts for a workload that is not installed, or that leaves it to the user.
    """
    own = Quality(recorded.quality, recorded.better, recorded.exponent, recorded.bounds)
    try:
        defined = workload(name).quality
    except UsageError:
        return own
    return own if defined.limits is None else defined


def _evaluation_fault(job: TrainedJob) -> str | None:
    expected, done = job.record.data.validation, job.finished
    for evaluation in (timed.evaluated for timed in job.evaluations):
        if evaluation.evaluated != expected:
            seen = integer(evaluation.evaluated)
            return f"an evaluation used {seen} of {integer(expected)} samples"
    if done is None:
        return None
    if not job.evaluations:
        return "it was never evaluated"
    last = job.evaluations[-1].evaluated.step
    if done.reason != "command" and last != done.step:
        return (
            f"the last evaluation followed step {last}, but training ended after step {done.step}"
        )
    return None


def _ensemble_fault(contents: Contents, trained: Sequence[TrainedJob]) -> tuple[Event, str] | None:
    """Return an ensemble that was not evaluated on all samples, or not when its models were."""
    sizes = {job.record.job: job.record.data.validation for job in trained}
    for event in contents.history.events("ensemble"):
        ensemble = event.payload(Ensembled)
        expected = {sizes[job] for job in ensemble.jobs if job in sizes}
        if expected and expected != {ensemble.evaluated}:
            seen = integer(ensemble.evaluated)
            return event, f"an ensemble was evaluated on {seen} of {integer(max(expected))} samples"
        fault = next(ensemble_evaluation_faults(ensemble, trained), None)
        if fault:
            return event, f"an ensemble was {fault}"
    return None
