"""Rules of the papers; the figures that they compare with are in ``published_figures``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.level import levels
from vflops.results.check.locations import job_file, logged, noted
from vflops.results.check.published_figures import EPOCH_ROUNDING, Benchmark, Published
from vflops.results.check.rule import Outcome
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.score.figure_text import count
from vflops.units import integer

_NONE = Outcome("not applicable", "none of its workloads was trained")
_SHOWN = 3
"""Of what is wrong: jobs, and kinds of faults."""


@dataclass(frozen=True)
class PaperRules:
    """The judges of one paper."""

    paper: Benchmark

    def _jobs(self, contents: Contents) -> list[TrainedJob]:
        """Those of its workloads; a benchmark without any is one of searches."""
        if not self.paper.workloads:
            return contents.workers
        return [job for job in contents.trained if job.record.workload in self.paper.workloads]

    def _each(
        self,
        contents: Contents,
        fault: Callable[[TrainedJob, Published], str | None],
        met: Callable[[Published], str],
    ) -> Outcome:
        """Every job that a fault is found in, or how all of them meet the rule."""
        found: dict[str, list[JobRecord]] = {}
        for job in self._jobs(contents):
            words = fault(job, self.paper.workloads[job.record.workload])
            if words:
                found.setdefault(words, []).append(job.record)
        if not found:
            return self._met(contents, met)
        told = [f"{_named([each.job for each in own])}: {words}" for words, own in found.items()]
        first = next(iter(found.values()))[0]
        return Outcome("fail", _few(told, "; "), job_file(first))

    def workload(self, contents: Contents) -> Outcome:
        """Something of the benchmark was run: an empty run meets every other rule."""
        jobs = self._jobs(contents)
        if not jobs:
            wanted = " or ".join(self.paper.workloads) or "a search"
            return Outcome("fail", f"{wanted} is what it judges, and the run has none", "run.json")
        return Outcome("pass", ", ".join(dict.fromkeys(job.record.workload for job in jobs)))

    def epochs(self, contents: Contents) -> Outcome:
        """The number of epochs is fixed, and was trained."""
        return self._each(contents, _epochs, lambda each: f"{each.epochs} epochs")

    def target(self, contents: Contents) -> Outcome:
        """Quality, target and exponent are the published ones."""
        fixed = "{0.quality} {0.target:g}, exponent {0.exponent}"
        return self._each(contents, _target, fixed.format)

    def published_data(self, contents: Contents) -> Outcome:
        """The data is the published one: not synthetic, all of it."""
        return self._each(contents, _data, lambda each: "published data")

    def precision(self, contents: Contents) -> Outcome:
        """Nothing was computed in less than the paper allows."""
        jobs = self._jobs(contents)
        used = {job.started.ceiling_precision if job.started else None for job in jobs}
        if not jobs:
            return _NONE
        if None in used:
            words = "the record does not say in which precision it computed"
            return Outcome("cannot tell", words, noted(jobs[0], "job"))
        low = sorted(name for name in used if name and name not in self.paper.precisions)
        if low:
            allowed = ", ".join(self.paper.precisions)
            words = f"{', '.join(low)}: expected one of {allowed}"
            return Outcome("fail", words, noted(jobs[0], "job"))
        return Outcome("pass", f"computed in {', '.join(sorted(filter(None, used)))}")

    def repeats(self, contents: Contents) -> Outcome:
        """The benchmark was run often enough to know how far runs differ."""
        jobs, least = self._jobs(contents), self.paper.repeats
        if not jobs:
            return _NONE
        short = []
        for name in dict.fromkeys(job.record.workload for job in jobs):
            own = [job for job in jobs if job.record.workload == name]
            ended = {job.record.repeat for job in own if contents.history.ended(job.record.job)}
            if len(ended) < least:
                short.append(f"{name} was trained {count(len(ended), 'time')}")
        if short:
            words = f"{', '.join(short)}, {least} are the least: --repeat {least}"
            return Outcome("fail", words, "run.json")
        return Outcome("pass", f"{least} times or more")

    def ceilings(self, contents: Contents) -> Outcome:
        """Convolution and matrix product, the bounds of the system, were measured."""
        jobs = self._jobs(contents)
        if not jobs:
            return _NONE
        known = measured_ceilings(contents.measurements).precisions()
        for job in jobs:
            name = job.started.ceiling_precision if job.started else None
            if name in self.paper.precisions and name not in known:  # others have their own rule
                words = f"no matrix product and convolution were measured in {name}"
                where = logged(contents, "plan")
                return Outcome("cannot tell", f"job {job.record.job}: {words}", where)
        if not known:
            words = "no matrix product and convolution were measured"
            return Outcome("cannot tell", words, logged(contents, "plan"))
        return Outcome("pass", f"matrix product and convolution in {', '.join(known)}")

    def level(self, contents: Contents) -> Outcome:
        """The level follows from the settings; what is of the problem has rules of its own."""
        jobs = self._jobs(contents)
        if not jobs:
            return _NONE
        found = contents.once(levels)
        if found.reason:
            return Outcome("cannot tell", found.reason, job_file(jobs[0].record))
        made = found.deciding if found.claim else found.other_problem
        told = ", ".join(map(str, made[:3])) + (" …" if len(made) > 3 else "")
        named = f"level {found.claim}" if found.claim else "no level, it is another problem"
        return Outcome("pass", named + (f": {told}" if told else ""))

    def _met(self, contents: Contents, words: Callable[[Published], str]) -> Outcome:
        names = dict.fromkeys(job.record.workload for job in self._jobs(contents))
        told = [f"{name}: {words(self.paper.workloads[name])}" for name in names]
        return Outcome("pass", "; ".join(told)) if told else _NONE


def _named(jobs: Sequence[int]) -> str:
    """``job 1``, ``jobs 1, 2, 3 and 9 more``."""
    return f"job{'s' if len(jobs) > 1 else ''} {_few(list(map(str, jobs)), ', ')}"


def _few(words: Sequence[str], between: str) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return between.join(words[:_SHOWN]) + more


def _epochs(job: TrainedJob, published: Published) -> str | None:
    planned = job.record.settings.get("train", {}).get("epochs")
    if planned != published.epochs:
        return f"{planned} epochs, {published.epochs} are fixed"
    train, done = job.record.settings.get("train", {}), job.finished
    if train.get("end_epoch") not in (None, published.epochs):
        return f"it was to end after epoch {train['end_epoch']}, {published.epochs} are fixed"
    if done is None:
        return None
    if done.reason != "epochs":
        return f"it ended by its {done.reason} and not by its epochs"
    step = train.get("batch", 1) / max(job.record.data.train, 1)  # the last one may go beyond
    if not -EPOCH_ROUNDING <= done.epoch - published.epochs <= step + EPOCH_ROUNDING:
        return f"it ended after epoch {done.epoch:g}, {published.epochs} are fixed"
    return None


def _target(job: TrainedJob, published: Published) -> str | None:
    goal = job.record.goal
    if (goal.quality, goal.better) != (published.quality, "higher"):
        return f"its quality is {goal.quality}, {published.quality} is fixed"
    if goal.target != published.target:
        return f"its target is {goal.target:g}, {published.target:g} is fixed"
    if goal.exponent != published.exponent:
        return f"its exponent is {goal.exponent}, {published.exponent} is fixed"
    return None


def _data(job: TrainedJob, published: Published) -> str | None:
    data = job.record.data
    if data.synthetic:
        return "synthetic data in place of the published"
    if data.skipped:
        return f"{count(data.skipped, 'sample')} left out"
    if published.samples and (data.train, data.validation) != published.samples:
        train, validation = published.samples
        own = f"{integer(data.train)} + {integer(data.validation)} samples"
        return f"{own}, {integer(train)} + {integer(validation)} are published"
    for name, value in published.facts:
        if data.facts.get(name) != value:
            return f"{name} {data.facts.get(name)}, {value} is published"
    return None


def whole_ensembles(contents: Contents) -> Outcome:
    """Every base model that was planned is in its ensemble, all at once and of one shape."""
    from vflops.results.score.ensemble_score import ensemble_scores
    from vflops.results.score.training_score import training_scores

    groups = _ensembles(contents)
    if not groups:
        return Outcome("not applicable", "no ensemble in this run: M = 1")
    found = {
        (each.workload, each.repeat): each
        for each in ensemble_scores(contents, contents.once(training_scores))
    }
    for key, members in groups.items():
        name = f"{key[0]}, repeat {key[1]}"
        score = found.get(key)
        if score is None:
            words = f"{name}: the predictions were not put together"
            return Outcome("fail", words, job_file(members[0].record))
        if score.partial:
            told = f"{len(score.jobs)} of {score.planned} models"
            words = f"{name}: {told} are in the ensemble"
            return Outcome("fail", words, logged(contents, "ensemble"))
        if len({job.record.ranks for job in members}) > 1:
            words = f"{name}: its models have different numbers of ranks"
            return Outcome("fail", words, job_file(members[0].record))
        if score.waves:
            words = "models waited for others, so that M × P is more than the system"
            return Outcome("fail", f"{name}: {words}", "run.json")
    first = next(iter(groups.values()))
    shape = f"M = {len(first)}, P = {first[0].record.ranks}"
    return Outcome("pass", f"{count(len(groups), 'ensemble')}, {shape}")


def bootstrapped(contents: Contents) -> Outcome:
    """Every base model learns from a sample of its own, drawn with replacement."""
    bags = [(job.record.bag, job.record) for job in contents.trained if job.record.bag]
    if not bags:
        return Outcome("not applicable", "no ensemble in this run: M = 1")
    for bag, record in bags:
        if bag.twins:
            words = "twins learn from one sample: a diagnostic, no score"
            return Outcome("fail", words, job_file(record))
        if bag.bootstrap not in ("poisson", "multinomial"):
            words = f"bootstrap {bag.bootstrap}: expected poisson or multinomial"
            return Outcome("fail", words, job_file(record))
    return Outcome("pass", f"{count(len(bags), 'sample')}, drawn with replacement")


def _ensembles(contents: Contents) -> dict[tuple[str, int], Sequence[TrainedJob]]:
    found: dict[tuple[str, int], list[TrainedJob]] = {}
    for job in contents.trained:
        if job.record.bag:
            found.setdefault((job.record.workload, job.record.repeat), []).append(job)
    return dict(found)
