"""Rules from the papers; the published values are in ``published_figures``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from vflops.metrics import mean
from vflops.record.formats.job import JobRecord
from vflops.record.installed_package import PackageRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.level import levels
from vflops.results.check.locations import event_location, job_file, run_event_location
from vflops.results.check.published_figures import EPOCH_ROUNDING, Benchmark, Published
from vflops.results.check.rule import Outcome
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.score import figure_text
from vflops.results.score.score_tables import repeat_line
from vflops.results.score.scoring import score as run_score
from vflops.results.task.closed_tasks import tasks
from vflops.results.task.published_data import data_fault, recorded_years
from vflops.units import count, quantity

_NONE = Outcome("not applicable", "no workload of this benchmark was trained")
_MAX_NAMED = 3
"""The number of jobs, and of different faults, that the evidence names."""
_SHOWN = 12
"""The number of characters of a hash in the evidence."""


@dataclass(frozen=True)
class PaperRules:
    """The rules of one paper."""

    paper: Benchmark

    def _jobs(self, contents: Contents) -> list[TrainedJob]:
        """Return the jobs of the paper's workloads, or the workers if it has only searches."""
        if not self.paper.workloads:
            return contents.workers
        return [
            job for job in contents.training_jobs if job.record.workload in self.paper.workloads
        ]

    def _all_jobs(
        self,
        contents: Contents,
        find_fault: Callable[[TrainedJob, Published], str | None],
        describe: Callable[[Published], str],
    ) -> Outcome:
        """Return a failure that lists the faulty jobs, or a pass described by ``describe``."""
        faults: dict[str, list[JobRecord]] = {}
        for job in self._jobs(contents):
            fault = find_fault(job, self.paper.workloads[job.record.workload])
            if fault:
                faults.setdefault(fault, []).append(job.record)
        if not faults:
            return self._passed(contents, describe)
        texts = [
            f"{_job_names([record.job for record in records])}: {fault}"
            for fault, records in faults.items()
        ]
        first = next(iter(faults.values()))[0]
        return Outcome("fail", _join_first(texts, "; "), job_file(first))

    def check_workload(self, contents: Contents) -> Outcome:
        """Fail unless a workload of the benchmark was run. An empty run meets all other rules."""
        jobs = self._jobs(contents)
        if not jobs:
            expected = " or ".join(self.paper.workloads) or "a search"
            return Outcome(
                "fail", f"the rules are for {expected}, which the run does not have", "run.json"
            )
        return Outcome("pass", ", ".join(dict.fromkeys(job.record.workload for job in jobs)))

    def check_epochs(self, contents: Contents) -> Outcome:
        """Fail unless each job trained for the published number of epochs."""
        return self._all_jobs(
            contents, _epochs_fault, lambda published: f"{published.epochs} epochs"
        )

    def check_target(self, contents: Contents) -> Outcome:
        """Fail unless quality, target and exponent are as published; report VFLOPS as published."""
        published = "{0.quality} {0.target:g}, exponent {0.exponent}"
        outcome = self._all_jobs(contents, _target_fault, published.format)
        texts = _published_vflops(contents, self.paper.workloads)
        if outcome.verdict != "pass" or not texts:
            return outcome
        figures = f"VFLOPS {figure_text.AS_PUBLISHED}: {', '.join(texts)}"
        return outcome._replace(evidence=f"{outcome.evidence}; {figures}")

    def check_published_data(self, contents: Contents) -> Outcome:
        """Fail unless all of the published data was used; name the years of climate data."""
        outcome = self._all_jobs(contents, _data_fault, lambda published: "published data")
        years = {recorded_years(job.record.data) for job in self._jobs(contents)} - {0}
        if outcome.verdict != "pass" or not years:
            return outcome
        shown = " and ".join(map(str, sorted(years)))
        return outcome._replace(evidence=f"{outcome.evidence}; {shown} years")

    def check_task(self, contents: Contents) -> Outcome:
        """Fail unless every job has a closed task; name the differences of those that do not."""
        jobs = self._jobs(contents)
        if not jobs:
            return _NONE
        by_job = contents.once(tasks)
        for job in jobs:
            task = by_job[job.record.job]
            if task.kind == "open":
                evidence = f"{task.workload}: {figure_text.task(task)}"
                return Outcome("fail", evidence, job_file(job.record))
        closed = dict.fromkeys(by_job[job.record.job] for job in jobs)
        texts = [f"{task.workload}: {figure_text.task(task)}" for task in closed]
        return Outcome("pass", "; ".join(texts))

    def check_precision(self, contents: Contents) -> Outcome:
        """Fail if anything was computed in a lower precision than the paper allows."""
        jobs = self._jobs(contents)
        used = {job.started.ceiling_precision if job.started else None for job in jobs}
        if not jobs:
            return _NONE
        if None in used:
            evidence = "the precision was not recorded"
            return Outcome("cannot tell", evidence, event_location(jobs[0], "job"))
        low = sorted(name for name in used if name and name not in self.paper.precisions)
        if low:
            allowed = ", ".join(self.paper.precisions)
            evidence = f"trained in {', '.join(low)}; allowed: {allowed}"
            return Outcome("fail", evidence, event_location(jobs[0], "job"))
        return Outcome("pass", f"computed in {', '.join(sorted(filter(None, used)))}")

    def check_repeats(self, contents: Contents) -> Outcome:
        """Advise more repeats unless there are enough to estimate the variation; this never fails.

        An ensemble counts if it has all its models.
        """
        jobs, minimum = self._jobs(contents), self.paper.repeats
        if not jobs:
            return _NONE
        short, varied = [], []
        for name in dict.fromkeys(job.record.workload for job in jobs):
            repeat = next((r for r in contents.once(run_score).repeats if r.workload == name), None)
            if repeat is None:  # planned once
                ended = int(
                    all(
                        contents.history.ended(job.record.job)
                        for job in jobs
                        if job.record.workload == name
                    )
                )
            else:
                ended = repeat.complete
                varied.append(f"{name}: {repeat_line(repeat)}")
            if ended < minimum:
                short.append(f"{name} was trained {count(ended, 'time')}")
        if short:
            advice = f"how much the result varies between seeds needs {minimum}: --repeat {minimum}"
            return Outcome("pass", "; ".join([*short, advice, *varied]))
        return Outcome("pass", "; ".join([f"at least {minimum} repeats", *varied]))

    def check_ceilings(self, contents: Contents) -> Outcome:
        """Require ceilings of matrix product and convolution, measured in each job's precision."""
        jobs = self._jobs(contents)
        if not jobs:
            return _NONE
        used: dict[str, None] = {}
        for job in jobs:
            bounding = job_ceilings(contents, job)
            known = measured_ceilings(bounding.measurements).precisions()
            used |= dict.fromkeys(known)
            if job.samples_trained and bounding.reason:
                evidence, where = bounding.reason, event_location(job, "job")
                return Outcome("cannot tell", f"job {job.record.job}: {evidence}", where)
            name = job.started.ceiling_precision if job.started else None
            if (
                name in self.paper.precisions and name not in known
            ):  # the rule on precision reports others
                evidence = f"matrix product and convolution were not measured in {name}"
                where = run_event_location(contents, "plan")
                return Outcome("cannot tell", f"job {job.record.job}: {evidence}", where)
        if not used:
            evidence = "matrix product and convolution were not measured"
            return Outcome("cannot tell", evidence, run_event_location(contents, "plan"))
        return Outcome("pass", f"matrix product and convolution in {', '.join(used)}")

    def check_level(self, contents: Contents) -> Outcome:
        """Report the level that the run may claim. Other rules check the problem itself."""
        jobs = self._jobs(contents)
        if not jobs:
            return _NONE
        known = contents.once(levels)
        if known.reason:
            return Outcome("cannot tell", known.reason, job_file(jobs[0].record))
        deciding = known.deciding if known.claim else known.other_problem
        settings = ", ".join(map(str, deciding[:3])) + (" …" if len(deciding) > 3 else "")
        name = f"level {known.claim}" if known.claim else "no level: a different problem"
        evidence = name + (f": {settings}" if settings else "")
        return Outcome("pass", evidence + _extensions_text(contents.folder.record.package))

    def _passed(self, contents: Contents, describe: Callable[[Published], str]) -> Outcome:
        names = dict.fromkeys(job.record.workload for job in self._jobs(contents))
        texts = [f"{name}: {describe(self.paper.workloads[name])}" for name in names]
        return Outcome("pass", "; ".join(texts)) if texts else _NONE


def _job_names(jobs: Sequence[int]) -> str:
    """Return ``job 1``, or ``jobs 1, 2, 3 and 9 more``."""
    return f"job{'s' if len(jobs) > 1 else ''} {_join_first(list(map(str, jobs)), ', ')}"


def _extensions_text(package: PackageRecord | None) -> str:
    """Return the packages that extended vflops, for the end of a sentence; empty without any."""
    if package is None or not package.extensions:
        return ""
    names = [
        f"{name} ({sha256[:_SHOWN] if sha256 else 'without a hash'})"
        for name, sha256 in package.extensions.items()
    ]
    return f"; not compared: extensions {_join_first(names, ', ')}"


def _join_first(texts: Sequence[str], separator: str) -> str:
    """Return the first few texts, and how many more there are."""
    more = f" and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    return separator.join(texts[:_MAX_NAMED]) + more


def _epochs_fault(job: TrainedJob, published: Published) -> str | None:
    planned = job.record.settings.get("train", {}).get("epochs")
    if planned != published.epochs:
        return f"{planned} epochs, but the paper requires {published.epochs}"
    train, done = job.record.settings.get("train", {}), job.finished
    if train.get("end_epoch") not in (None, published.epochs):
        return f"end_epoch is {train['end_epoch']}, but the paper requires {published.epochs}"
    if done is None:
        return None
    if done.reason != "epochs":
        return f"training ended because of its {done.reason}, not after its epochs"
    step = train.get("batch", 1) / max(
        job.record.data.train, 1
    )  # the last batch may exceed the epoch
    if not -EPOCH_ROUNDING <= done.epoch - published.epochs <= step + EPOCH_ROUNDING:
        return f"it ended after epoch {done.epoch:g}, but the paper requires {published.epochs}"
    return None


def _published_vflops(contents: Contents, workloads: Collection[str]) -> list[str]:
    """Return the VFLOPS by the papers' equation of each workload, as the mean of its repeats."""
    scored = contents.once(run_score)
    values: dict[str, list[float | None]] = {}
    for ensemble in scored.ensembles:
        values.setdefault(ensemble.workload, []).append(ensemble.vflops)
    for training in scored.trainings:
        if training.model is None:
            valid = training.speed.vflops if training.speed else None
            values.setdefault(training.workload, []).append(valid)
    texts = []
    for name in workloads:
        known = [value for value in values.get(name, ()) if value is not None]
        if known and len(known) == len(values[name]):
            of = f" (mean of {len(known)})" if len(known) > 1 else ""
            texts.append(f"{name} {quantity(mean(known), 'VFLOPS')}{of}")
    return texts


def _target_fault(job: TrainedJob, published: Published) -> str | None:
    goal = job.record.goal
    if (goal.quality, goal.better) != (published.quality, "higher"):
        return f"its quality is {goal.quality}, but the paper requires {published.quality}"
    if goal.target != published.target:
        return f"its target is {goal.target:g}, but the paper requires {published.target:g}"
    if goal.exponent != published.exponent:
        return f"its exponent is {goal.exponent}, but the paper requires {published.exponent}"
    return None


def _data_fault(job: TrainedJob, published: Published) -> str | None:
    return data_fault(job.record.data, published.data)


def check_ensembles(contents: Contents) -> Outcome:
    """Fail unless every ensemble has all its models, trained at once with equally many ranks."""
    groups = _ensembles(contents)
    if not groups:
        return Outcome("not applicable", "no ensemble in this run: M = 1")
    scores = {(score.workload, score.repeat): score for score in contents.once(run_score).ensembles}
    for key, members in groups.items():
        name = f"{key[0]}, repeat {key[1]}"
        score = scores.get(key)
        if score is None:
            evidence = f"{name}: the predictions were not combined"
            return Outcome("fail", evidence, job_file(members[0].record))
        if score.partial:
            evidence = f"{name}: {len(score.jobs)} of {score.planned} models are in the ensemble"
            return Outcome("fail", evidence, run_event_location(contents, "ensemble"))
        if len({job.record.ranks for job in members}) > 1:
            evidence = f"{name}: its models have different numbers of ranks"
            return Outcome("fail", evidence, job_file(members[0].record))
        if score.waves:
            evidence = "some models waited for others, so M × P exceeds the system"
            return Outcome("fail", f"{name}: {evidence}", "run.json")
    first = next(iter(groups.values()))
    shape = f"M = {len(first)}, P = {first[0].record.ranks}"
    return Outcome("pass", f"{count(len(groups), 'ensemble')}, {shape}")


def check_bootstrap(contents: Contents) -> Outcome:
    """Fail unless every base model has its own sample, drawn with replacement."""
    bags = [(job.record.bag, job.record) for job in contents.training_jobs if job.record.bag]
    if not bags:
        return Outcome("not applicable", "no ensemble in this run: M = 1")
    for bag, record in bags:
        if bag.twins:
            evidence = "twins share their sample, so they are a diagnostic and not a result"
            return Outcome("fail", evidence, job_file(record))
        if bag.bootstrap not in ("poisson", "multinomial"):
            evidence = f"bootstrap {bag.bootstrap}: expected poisson or multinomial"
            return Outcome("fail", evidence, job_file(record))
    return Outcome("pass", f"{count(len(bags), 'sample')}, drawn with replacement")


def _ensembles(contents: Contents) -> dict[tuple[str, int], Sequence[TrainedJob]]:
    members: dict[tuple[str, int], list[TrainedJob]] = {}
    for job in contents.training_jobs:
        if job.record.bag:
            members.setdefault((job.record.workload, job.record.repeat), []).append(job)
    return dict(members)
