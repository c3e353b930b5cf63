"""The rule on jobs: a run has exactly the jobs that its settings request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from vflops.config.settings import Settings
from vflops.errors import FolderError, format_value
from vflops.record.formats.bounded_numbers import MAX_PROCESSES
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import job_file
from vflops.results.check.rule import Outcome
from vflops.units import count

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
        expected, positions = _expected(run, name), Counter(map(_position, planned))
        missing = next((place for place in expected if place not in positions), None)
        if missing is not None:
            repeat, number = missing
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


@dataclass(frozen=True)
class _Expected:
    """The positions of all jobs, never listed as a whole: a stranger may claim millions."""

    repeats: int
    numbers: int

    def __len__(self) -> int:
        return self.repeats * self.numbers

    def __iter__(self) -> Iterator[Position]:
        return ((repeat, n) for repeat in range(self.repeats) for n in range(self.numbers))

    def __contains__(self, position: Position) -> bool:
        repeat, number = position
        return 0 <= repeat < self.repeats and 0 <= number < self.numbers


def _expected(run: Settings, name: str) -> _Expected:
    """Return the positions of a search's workers, or of the base models of every repeat."""
    search = run.workloads[name].get("search")
    workers = search.get("workers") if isinstance(search, dict) else None
    numbers = run.models_of(name) if workers is None else workers
    if type(numbers) is not int or not 1 <= numbers <= MAX_PROCESSES:
        raise FolderError(
            f"run.json requests {format_value(numbers)} jobs of {name}, expected 1 to "
            f"{MAX_PROCESSES}"
        )
    return _Expected(run.repeat if workers is None else 1, numbers)


def _position(record: JobRecord) -> Position:
    if record.worker:
        return record.repeat, record.worker.worker
    return record.repeat, record.bag.model if record.bag else 0


def _seed(run: Settings, name: str, record: JobRecord) -> int:
    models = 1 if record.worker else run.models_of(name)
    return run.seed + record.repeat * models + (record.bag.number if record.bag else 0)
