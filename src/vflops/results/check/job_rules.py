"""The rule on jobs: a run has exactly the jobs that its settings request."""

from __future__ import annotations

from collections import Counter
from itertools import product

from vflops.config.settings import Settings
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import job_file
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count

Position = tuple[int, int]
"""The number of the repeat, and of the base model or worker in that repeat."""


def check_jobs(contents: Contents) -> Outcome:
    """Fail unless every model or worker of every repeat is planned once, with the right seed."""
    run = contents.folder.record.settings
    records = [job.record for job in (*contents.training_jobs, *contents.workers)]
    if not records and not run.workloads:
        return Outcome("not applicable", "nothing was trained in this run")
    for name in run.workloads:
        planned = [record for record in records if record.workload == name]
        expected, positions = _expected_positions(run, name), Counter(map(_position, planned))
        missing = sorted(expected - positions.keys())
        if missing:
            repeat, number = missing[0]
            asked = f"{count(len(expected), 'job')} of {name}"
            evidence = f"{asked} were requested and {len(planned)} planned"
            absent = f"repeat {repeat}, number {number} is missing"
            return Outcome("fail", f"{evidence}, but {absent}", "run.json")
        for record in planned:
            if _position(record) not in expected or positions[_position(record)] > 1:
                asked = f"{count(len(expected), 'job')} of {name} were requested"
                evidence = f"{asked}, and job {record.job} is one more"
                return Outcome("fail", evidence, job_file(record))
            seed = _seed(run, name, record)
            if record.seed != seed:
                evidence = (
                    f"job {record.job} has seed {record.seed}, but {seed} according to run.json"
                )
                return Outcome("fail", evidence, job_file(record))
    strays = sorted(contents.history.jobs.keys() - {0, *(record.job for record in records)})
    if strays:
        return Outcome("fail", f"job {strays[0]} was not planned", f"jobs/{strays[0]}")
    return Outcome("pass", f"{count(len(records), 'job')}, as run.json requests")


def _expected_positions(run: Settings, name: str) -> set[Position]:
    """Return the positions of a search's workers, or of the base models of every repeat."""
    workers = run.workloads[name].get("search", {}).get("workers")
    if workers is not None:
        return set(product((0,), range(workers)))
    return set(product(range(run.repeat), range(run.models_of(name))))


def _position(record: JobRecord) -> Position:
    if record.worker:
        return record.repeat, record.worker.worker
    return record.repeat, record.bag.model if record.bag else 0


def _seed(run: Settings, name: str, record: JobRecord) -> int:
    models = 1 if record.worker else run.models_of(name)
    return run.seed + record.repeat * models + (record.bag.number if record.bag else 0)
