"""The results of a run: one a workload, from its score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vflops.metrics import mean
from vflops.publish.ranking.entry import DataKind, Result
from vflops.record.formats.job import JobRecord
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.score.figure_text import count
from vflops.results.score.score_file import EnsembleScore, Score, SearchScore, TrainingScore
from vflops.units import seconds

_FACTS = {
    "hardware": (
        "machine model",
        "cpu model",
        "cpu sockets",
        "usable cpus",
        "memory",
        "accelerators",
        "accelerator 0 model",
        "accelerator 0 memory",
        "rdma ports",
        "file system",
    ),
    "operating system": ("distribution", "kernel", "container", "scheduler"),
    "communication libraries": ("nccl", "mpi"),
    "accelerator libraries": ("nvidia driver", "cuda", "cudnn", "rocm"),
    "framework": ("torch", "python", "vflops"),
}
"""What the page of a system shows; the report of a run has all nine layers."""
_ENDS = {"stop_at_target": "or to the target", "patience": "or while it gets better"}
"""Settings that may end a training before its epochs."""


def results(contents: Contents, score: Score) -> tuple[Result, ...]:
    """One result a workload: of an ensemble where there is one, of repeats the mean."""
    found = [_ensembles(contents, score, each) for each in _by_workload(score.ensembles)]
    together = {each.workload for each in score.ensembles}
    alone = [each for each in score.trainings if each.workload not in together]
    found += [_trainings(contents, each) for each in _by_workload(alone)]
    found += [_searches(contents, each) for each in _by_workload(score.searches)]
    return tuple(found)


def system_of(record: SystemRecord, found: Sequence[Result]) -> str:
    """A system in a few words: its accelerators, all of them, and its processor."""
    models = [str(fact.value) for fact in record.matching("hardware", "accelerator * model")]
    kinds = [f"{models.count(each)} × {each}" for each in dict.fromkeys(models) if each != "None"]
    if not kinds:  # what was described may be another machine than the one that trained
        kinds = list(dict.fromkeys(each.device for each in found if each.accelerators))
    processors = record.matching("hardware", "cpu model")
    kinds += [str(fact.value) for fact in processors if fact.value is not None]
    return ", ".join(kinds) or "not described"


def facts_of(record: SystemRecord) -> list[dict[str, str]]:
    """What is known of a system, of what a reader asks first."""
    return [
        {"name": fact.name, "value": _with_unit(fact.value, fact.unit)}
        for layer, names in _FACTS.items()
        for fact in sorted(
            (fact for fact in record.layer(layer).facts if fact.name in names),
            key=lambda fact: names.index(fact.name),
        )
        if fact.value is not None
    ]


def framework_of(record: SystemRecord) -> str:
    """The framework and its version."""
    for fact in record.matching("framework", "torch"):
        if fact.value is not None:
            return f"PyTorch {fact.value}"
    return "not known"


def _with_unit(value: Any, unit: str | None) -> str:
    if unit == "B" and isinstance(value, int | float):
        return f"{value / 2**30:.4g} GiB"
    return f"{value} {unit}" if unit else str(value)


def _by_workload(scores: Iterable[Any]) -> list[list[Any]]:
    groups: dict[str, list[Any]] = {}
    for each in scores:
        groups.setdefault(each.workload, []).append(each)
    return list(groups.values())


def _trainings(contents: Contents, all_of: Sequence[TrainingScore]) -> Result:
    first = all_of[0]
    speeds = [each.speed.vflops for each in all_of if each.speed]
    score = _mean(speeds) if len(speeds) == len(all_of) else None
    reached = [each.quality.time_to_quality_s for each in all_of]
    quality = first.quality
    return Result(
        workload=first.workload,
        goal=_goal(quality.name, quality.better, quality.target, quality.exponent),
        data=_data(all_of),
        unit="VFLOPS",
        score=score or 0.0,
        time_s=mean([each.wall_s for each in all_of]),
        to_target_s=_mean(reached),
        quality=_mean([each.quality.achieved for each in all_of]),
        accelerators=first.ranks if _accelerated(contents, first.job) else 0,
        ranks=first.ranks,
        device=first.device or "not known",
        per_watt=_mean([each.vflops_per_watt for each in all_of]),
        efficiency=_mean([each.mfu.value for each in all_of]),
        repeats=len(all_of),
        problem=_problem(contents, first),
        length=_length(contents, first),
        reason=_fault(score, all_of)
        or _mixed(contents, all_of)
        or _another_goal(contents, all_of)
        or _no_share(quality.target, quality.better, [each.quality.achieved for each in all_of])
        or _unbounded(contents, contents.trained, first.workload),
    )


def _ensembles(contents: Contents, whole: Score, all_of: Sequence[EnsembleScore]) -> Result:
    first = all_of[0]
    inside = {job for each in all_of for job in each.jobs}
    members = [each for each in whole.trainings if each.job in inside]
    score = _mean([each.vflops for each in all_of])
    at_once = 1 if first.waves else len(first.jobs)
    ranks = max(at_once * members[0].ranks, sum(node.accelerators for node in first.nodes))
    partial = next((each for each in all_of if each.partial), None)
    cut = f"{len(partial.jobs)} of its {partial.planned} models are in it" if partial else None
    return Result(
        workload=first.workload,
        goal=_goal(first.quality_name, members[0].quality.better, first.target, first.exponent),
        data=_data(members),
        unit="VFLOPS",
        score=score or 0.0,
        time_s=mean([each.window_s for each in all_of]),
        to_target_s=None,
        quality=mean([each.achieved for each in all_of]),
        accelerators=ranks if _accelerated(contents, first.jobs[0]) else 0,
        ranks=ranks,
        device=members[0].device or "not known",
        per_watt=_mean([each.vflops_per_watt for each in all_of]),
        efficiency=_mean([each.mfu.value for each in members]),
        repeats=len(all_of),
        problem=_problem(contents, members[0]),
        length=_ensemble_length(contents, first, members[0]),
        reason=cut
        or _fault(score, members)
        or _mixed(contents, members)
        or _differ("sizes", [(each.planned, each.bootstrap, each.waves) for each in all_of])
        or _another_goal(contents, members)
        or _no_share(first.target, members[0].quality.better, [each.achieved for each in all_of])
        or _unbounded(contents, contents.trained, first.workload),
    )


def _searches(contents: Contents, all_of: Sequence[SearchScore]) -> Result:
    first = all_of[0]
    score = _mean([each.regulated for each in all_of])
    workers = [each for each in contents.workers if each.record.workload == first.workload]
    started = next((each.started for each in workers if each.started), None)
    ranks = first.workers * first.ranks
    errors = [each.error for each in all_of]
    return Result(
        workload=f"{first.workload} replay" if first.replay else first.workload,
        goal=f"error at most {first.error_limit:g}, operations by {first.rules}",
        data="synthetic" if any(each.record.data.synthetic for each in workers) else "real",
        unit="regulated FLOPS",
        score=score or 0.0,
        time_s=mean([each.duration_s for each in all_of]),
        to_target_s=None,
        quality=_mean([None if each is None else 1 - each for each in errors]),
        accelerators=ranks if started and started.device != "cpu" else 0,
        ranks=ranks,
        device=started.device_name if started else "not known",
        per_watt=_mean([each.ops_per_watt for each in all_of]),
        efficiency=None,
        repeats=len(all_of),
        problem=", ".join(dict.fromkeys(_data_named(each.record) for each in workers)),
        length=_search_length(contents, first, workers),
        reason=_differ(
            "searches", [(e.error_limit, e.rules, e.replay, e.workers, e.ranks) for e in all_of]
        )
        or _differ("data", [each.record.data.fingerprint for each in workers])
        or (None if score else "no candidate was trained to an accuracy")
        or _unbounded(contents, workers, first.workload),
    )


def _goal(name: str, better: str, target: float, exponent: int) -> str:
    sign = "≥" if better == "higher" else "≤"
    return f"{name} {sign} {target:g}, n = {exponent}"


def _data(trainings: Sequence[TrainingScore]) -> DataKind:
    return "synthetic" if any(each.synthetic for each in trainings) else "real"


def _accelerated(contents: Contents, job: int) -> bool:
    started = next(each.started for each in contents.trained if each.record.job == job)
    return started is not None and started.device != "cpu"


def _fault(score: float | None, trainings: Sequence[TrainingScore]) -> str | None:
    """Why there is no figure that one can compare."""
    unended = sum(not each.complete for each in trainings)
    if unended:
        return f"{unended} of {len(trainings)} trainings did not come to their end"
    if score is None:
        return "it has no valid FLOPS"
    for each in trainings:
        if each.work and each.work.source != "counted":
            return f"its operations are {each.work.source}, not counted from what ran"
    return None


def _another_goal(contents: Contents, trainings: Sequence[TrainingScore]) -> str | None:
    """Why its target is not that of others: one that is set low makes any speed look valid."""
    for each in trainings:
        asked = each.quality.profile_target
        if asked is not None and asked != each.quality.target:
            profile = contents.folder.record.settings.profile
            return f"its target is {each.quality.target:g}, that of {profile} is {asked:g}"
    return None


def _mixed(contents: Contents, trainings: Sequence[TrainingScore]) -> str | None:
    """Why a mean of repeats says nothing: they are of different things."""
    goals = [each.quality for each in trainings]
    return (
        _differ("goals", [(e.name, e.better, e.target, e.exponent) for e in goals])
        or _differ("numbers of ranks", [each.ranks for each in trainings])
        or _differ("devices", [(e.device, _accelerated(contents, e.job)) for e in trainings])
        or _differ("precisions", [each.precision for each in trainings])
        or _differ("problems", [_problem(contents, each) for each in trainings])
        or _differ("lengths", [_length(contents, each) for each in trainings])
    )


def _unbounded(contents: Contents, jobs: Sequence[TrainedJob], workload: str) -> str | None:
    """Why nothing says that its FLOPS could be: no ceiling of its precision was measured."""
    known = {precision for _, precision in measured_ceilings(contents.measurements).compute}
    for job in (each for each in jobs if each.record.workload == workload):
        precision = job.started.ceiling_precision if job.started else None
        if precision not in known:
            named = f" in {precision}" if known and precision else ""
            return f"no ceilings were measured{named}: nothing bounds its FLOPS"
    return None


def _differ(what: str, values: Sequence[Any]) -> str | None:
    return f"its repeats have different {what}" if len(set(values)) > 1 else None


def _no_share(target: float, better: str, reached: Sequence[float | None]) -> str | None:
    """Why a quality cannot be: one that has a share for its target is a share itself."""
    most = max((each for each in reached if each is not None), default=0.0)
    if better == "higher" and target <= 1 < most:
        return f"its quality is {most:g}, and a share is at most 1"
    return None


def _problem(contents: Contents, training: TrainingScore) -> str:
    """What was learned by what: the data, and the operations of a sample."""
    record = _record(contents, training)
    work = f", {training.work.ops_total:,} operations a sample" if training.work else ""
    return f"{_data_named(record)}{work}"


def _length(contents: Contents, training: TrainingScore) -> str:
    """How long a training was planned to be: its epochs, and what may end it before."""
    train = _record(contents, training).settings.get("train", {})
    epochs = train.get("end_epoch") or train.get("epochs")
    if epochs is None:  # a command decides for itself
        return "its own"
    early = [words for key, words in _ENDS.items() if train.get(key)]
    return ", ".join([count(epochs, "epoch"), *early])


def _ensemble_length(contents: Contents, whole: EnsembleScore, member: TrainingScore) -> str:
    """That of a member; of models one after the other, which do more for the same places, how many.

    Models side by side take a place each, and are as long as one.
    """
    waves = f", {count(whole.planned, 'model')} in waves" if whole.waves else ""
    return _length(contents, member) + waves


def _search_length(contents: Contents, search: SearchScore, workers: Sequence[TrainedJob]) -> str:
    """The time of a search; of a replay the ledger, which says all that is done."""
    ledger = contents.folder.path / "ledger-replayed.json"
    if search.replay and ledger.is_file():
        return f"ledger {contents.hash(ledger)[:12]}"
    told = workers[0].record.settings.get("search", {}) if workers else {}
    rounds = f", {count(told['candidates'], 'round')} at most" if told.get("candidates") else ""
    return seconds(told["duration_s"]) + rounds if "duration_s" in told else "its own"


def _record(contents: Contents, training: TrainingScore) -> JobRecord:
    return next(each.record for each in contents.trained if each.record.job == training.job)


def _data_named(record: JobRecord) -> str:
    return f"data {record.data.fingerprint[:12]}"


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, unless one of them is not known."""
    known = [each for each in values if each is not None]
    return mean(known) if known and len(known) == len(values) else None
