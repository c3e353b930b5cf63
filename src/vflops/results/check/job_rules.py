"""The rule of the plan: the jobs of a run are all that it asked for, and no others."""

from __future__ import annotations

from collections import Counter
from itertools import product

from vflops.config.settings import Settings
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import job_file
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count

Place = tuple[int, int]
"""The repeat, and the base model or the worker in it."""


def all_jobs(contents: Contents) -> Outcome:
    """Every repeat of every model is planned once, with its seed, and no job is beside them."""
    run = contents.folder.record.settings
    records = [job.record for job in (*contents.trained, *contents.workers)]
    if not records and not run.workloads:
        return Outcome("not applicable", "nothing was trained in this run")
    for name in run.workloads:
        own = [record for record in records if record.workload == name]
        wanted, found = _wanted(run, name), Counter(map(_place, own))
        missing = sorted(wanted - found.keys())
        if missing:
            repeat, number = missing[0]
            asked = f"{count(len(wanted), 'job')} of {name}"
            words = f"{asked} asked for, {len(own)} planned"
            return Outcome("fail", f"{words}: none of repeat {repeat}, number {number}", "run.json")
        for record in own:
            if _place(record) not in wanted or found[_place(record)] > 1:
                words = f"{count(len(wanted), 'job')} of {name} asked for, and this is one more"
                return Outcome("fail", words, job_file(record))
            seed = _seed(run, name, record)
            if record.seed != seed:
                words = f"its seed is {record.seed}, by run.json it is {seed}"
                return Outcome("fail", words, job_file(record))
    strays = sorted(contents.history.jobs.keys() - {0, *(record.job for record in records)})
    if strays:
        return Outcome("fail", "a job that nobody planned", f"jobs/{strays[0]}")
    return Outcome("pass", f"{count(len(records), 'job')}, as many as run.json asks for")


def _wanted(run: Settings, name: str) -> set[Place]:
    """Of a search the workers, once; else the base models of every repeat."""
    workers = run.workloads[name].get("search", {}).get("workers")
    if workers is not None:
        return set(product((0,), range(workers)))
    return set(product(range(run.repeat), range(run.models_of(name))))


def _place(record: JobRecord) -> Place:
    if record.worker:
        return record.repeat, record.worker.worker
    return record.repeat, record.bag.model if record.bag else 0


def _seed(run: Settings, name: str, record: JobRecord) -> int:
    models = 1 if record.worker else run.models_of(name)
    return run.seed + record.repeat * models + (record.bag.number if record.bag else 0)
