"""The results of a run for a ranking: one per workload, from its score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vflops.metrics import mean
from vflops.publish.ranking.entry import Result
from vflops.publish.ranking.power_evidence import power_evidence, training_span_s
from vflops.publish.ranking.run_nodes import ranks_at_once, run_nodes
from vflops.record.formats.job import DataKind, JobRecord, data_kind
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import job_ceilings
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.figures import ensemble_figures, mean_of, search_figures, training_figures
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.score import figure_text
from vflops.results.score.score_file import EnsembleScore, Score, SearchScore, TrainingScore
from vflops.results.task.closed_tasks import tasks
from vflops.results.task.drawn_data import profile_fingerprint
from vflops.units import count, quantity, seconds
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.validated_settings import validated_settings

_EARLY_ENDS = {
    "stop_at_target": "or until the target is reached",
    "patience": "or until the quality stops improving",
}
"""Settings that may end a training run before its last epoch, with their description."""
_UNKNOWN_LENGTH = "not stated"


def results(contents: Contents, score: Score) -> tuple[Result, ...]:
    """Return one result per workload, as the mean of its repeats.

    Models of an ensemble have no results of their own.
    """
    collected = [
        _ensemble_result(contents, score, repeats) for repeats in _by_workload(score.ensembles)
    ]
    in_ensembles = {ensemble.workload for ensemble in score.ensembles}
    single = [t for t in score.trainings if t.workload not in in_ensembles]
    collected += [_training_result(contents, repeats) for repeats in _by_workload(single)]
    collected += [_search_result(contents, repeats) for repeats in _by_workload(score.searches)]
    return tuple(collected)


def _by_workload(scores: Iterable[Any]) -> list[list[Any]]:
    groups: dict[str, list[Any]] = {}
    for score in scores:
        groups.setdefault(score.workload, []).append(score)
    return list(groups.values())


def _training_result(contents: Contents, repeats: Sequence[TrainingScore]) -> Result:
    first, figures = repeats[0], [training_figures(training) for training in repeats]
    quality, score = first.quality, mean_of(figures, "vflops")
    accelerated = _uses_accelerators(contents, first.job)
    return Result(
        workload=first.workload,
        goal=_goal(quality.name, quality.better, quality.target, quality.exponent),
        data=_data([training.synthetic for training in repeats]),
        unit="VFLOPS",
        score=score or 0.0,
        published=mean_of(figures, "vflops_published"),
        time_s=mean([training.wall_s for training in repeats]),
        to_target_s=mean_of(figures, "time_to_quality"),
        quality=mean_of(figures, "quality"),
        accelerators=first.ranks if accelerated else 0,
        ranks=first.ranks,
        nodes=_node_count(contents, [first.job]),
        device=first.device or "not known",
        per_watt=mean_of(figures, "vflops_per_watt"),
        power=power_evidence(
            [training.power for training in repeats],
            [training_span_s(contents, training) for training in repeats],
            accelerated=accelerated,
        ),
        efficiency=mean_of(figures, "mfu"),
        repeats=len(repeats),
        problem=_problem(contents, first),
        length=_length(contents, first),
        reason=_unusable_reason(score, contents, repeats)
        or _mixed_repeats_reason(contents, repeats)
        or _impossible_quality_reason(
            quality.target, quality.better, [t.quality.achieved for t in repeats]
        )
        or _missing_ceiling_reason(contents, contents.training_jobs, first.workload),
    )


def _ensemble_result(
    contents: Contents, run_score: Score, repeats: Sequence[EnsembleScore]
) -> Result:
    first, figures = repeats[0], [ensemble_figures(run_score, ensemble) for ensemble in repeats]
    jobs = {job for ensemble in repeats for job in ensemble.jobs}
    members = [training for training in run_score.trainings if training.job in jobs]
    score = mean_of(figures, "vflops")
    accelerated = _uses_accelerators(contents, first.jobs[0])
    ranks = max(
        _ensemble_ranks(contents, first, members[0]),
        sum(node.accelerators for node in first.nodes),
    )
    better = members[0].quality.better
    partial = next((ensemble for ensemble in repeats if ensemble.partial), None)
    missing = (
        f"only {len(partial.jobs)} of the {partial.planned} planned models are in the ensemble"
        if partial
        else None
    )
    return Result(
        workload=first.workload,
        goal=_goal(first.quality_name, better, first.target, first.exponent),
        data=_data([training.synthetic for training in members]),
        unit="VFLOPS",
        score=score or 0.0,
        published=mean_of(figures, "vflops_published"),
        time_s=mean([ensemble.window_s for ensemble in repeats]),
        to_target_s=mean_of(figures, "time_to_quality"),
        quality=mean([ensemble.achieved for ensemble in repeats]),
        accelerators=ranks if accelerated else 0,
        ranks=ranks,
        nodes=_node_count(contents, first.jobs),
        device=members[0].device or "not known",
        per_watt=mean_of(figures, "vflops_per_watt"),
        power=power_evidence(
            [ensemble.power for ensemble in repeats],
            [ensemble.window_s for ensemble in repeats],
            accelerated=accelerated,
        ),
        efficiency=mean_of([training_figures(member) for member in members], "mfu"),
        repeats=len(repeats),
        problem=_problem(contents, members[0]),
        length=_ensemble_length(contents, first, members[0]),
        reason=missing
        or _unusable_reason(score, contents, members)
        or _mixed_repeats_reason(contents, members)
        or _difference_reason("sizes", [(e.planned, e.bootstrap, e.waves) for e in repeats])
        or _impossible_quality_reason(
            first.target, better, [ensemble.achieved for ensemble in repeats]
        )
        or _missing_ceiling_reason(contents, contents.training_jobs, first.workload),
    )


def _search_result(contents: Contents, repeats: Sequence[SearchScore]) -> Result:
    first, figures = repeats[0], [search_figures(search) for search in repeats]
    score, error = mean_of(figures, "flops"), mean_of(figures, "quality")
    workers = [job for job in contents.workers if job.record.workload == first.workload]
    started = next((worker.started for worker in workers if worker.started), None)
    ranks, accelerated = first.workers * first.ranks, bool(started and started.device != "cpu")
    return Result(
        workload=f"{first.workload} replay" if first.replay else first.workload,
        goal=f"error at most {first.error_limit:g}, operations by {first.rules}",
        data=_data([worker.record.data.synthetic for worker in workers]),
        unit="OPS",
        score=score or 0.0,
        regulated=mean_of(figures, "regulated"),
        time_s=mean([search.duration_s for search in repeats]),
        to_target_s=None,
        quality=None if error is None else 1 - error,
        accelerators=ranks if accelerated else 0,
        ranks=ranks,
        nodes=_node_count(contents, [worker.record.job for worker in workers]),
        device=started.device_name if started else "not known",
        per_watt=mean_of(figures, "ops_per_watt"),
        power=power_evidence(
            [search.power for search in repeats],
            [search.duration_s for search in repeats],
            accelerated=accelerated,
        ),
        efficiency=None,
        repeats=len(repeats),
        problem=", ".join(dict.fromkeys(_data_name(contents, worker.record) for worker in workers)),
        length=_search_length(contents, first, workers),
        reason=_difference_reason(
            "searches", [(s.error_limit, s.rules, s.replay, s.workers, s.ranks) for s in repeats]
        )
        or _difference_reason("data", [worker.record.data.fingerprint for worker in workers])
        or (None if score else "no step of a candidate was completed")
        or ("no candidate was evaluated, so its error is not known" if error is None else None)
        or _open_search_reason(contents, first, workers)
        or _missing_ceiling_reason(contents, workers, first.workload),
    )


def _ensemble_ranks(contents: Contents, ensemble: EnsembleScore, member: TrainingScore) -> int:
    """Return the number of ranks that trained at the same time."""
    if not ensemble.waves:
        return len(ensemble.jobs) * member.ranks
    jobs = [job for job in contents.training_jobs if job.record.job in ensemble.jobs]
    return max(ranks_at_once(jobs), member.ranks)


def _node_count(contents: Contents, jobs: Sequence[int]) -> int:
    """Return how many nodes trained; 1 if none left a record."""
    return max(len(run_nodes(contents, set(jobs))), 1)


def _goal(name: str, better: str, target: float, exponent: int) -> str:
    sign = "≥" if better == "higher" else "≤"
    return f"{name} {sign} {target:g}, n = {exponent}"


def _data(flags: Sequence[bool | None]) -> DataKind:
    """Return the kind of the data of several jobs: what is not real in one is not real at all."""
    kinds = {data_kind(synthetic) for synthetic in flags}
    return next((kind for kind in ("synthetic", "unknown") if kind in kinds), "real")


def _uses_accelerators(contents: Contents, job: int) -> bool:
    started = next(
        trained.started for trained in contents.training_jobs if trained.record.job == job
    )
    return started is not None and started.device != "cpu"


def _unusable_reason(
    score: float | None, contents: Contents, trainings: Sequence[TrainingScore]
) -> str | None:
    """Return why the score cannot be compared; None if it can."""
    unfinished = sum(not training.complete for training in trainings)
    if unfinished:
        return f"{unfinished} of {len(trainings)} training runs did not finish"
    open_task = _open_task_reason(contents, [training.job for training in trainings])
    if open_task:
        return open_task
    if score is None:
        return "it has no valid FLOPS"
    for training in trainings:
        if training.work and training.work.source != "counted":
            return f"its operations are {training.work.source}, not counted from what ran"
    return None


def _open_task_reason(contents: Contents, jobs: Sequence[int]) -> str | None:
    """Return the reason if a task is open: with an own target, any speed looks valid."""
    by_job = contents.once(tasks)
    open_tasks = (by_job[job] for job in jobs if by_job[job].kind == "open")
    return next((figure_text.task(task) for task in open_tasks), None)


def _open_search_reason(
    contents: Contents, search: SearchScore, workers: Sequence[TrainedJob]
) -> str | None:
    """Return the reason if the task of a search is open.

    A replay is fixed work without a target, and has a list of its own by its ledger.
    """
    if search.replay:
        return None
    return _open_task_reason(contents, [worker.record.job for worker in workers])


def _mixed_repeats_reason(contents: Contents, trainings: Sequence[TrainingScore]) -> str | None:
    """Return the reason if repeats differ in more than the seed, so that a mean is meaningless."""
    goals = [training.quality for training in trainings]
    return (
        _difference_reason("goals", [(g.name, g.better, g.target, g.exponent) for g in goals])
        or _difference_reason("numbers of ranks", [training.ranks for training in trainings])
        or _difference_reason(
            "devices", [(t.device, _uses_accelerators(contents, t.job)) for t in trainings]
        )
        or _difference_reason("precisions", [training.precision for training in trainings])
        or _difference_reason("problems", [_problem(contents, training) for training in trainings])
        or _difference_reason("lengths", [_length(contents, training) for training in trainings])
    )


def _missing_ceiling_reason(
    contents: Contents, jobs: Sequence[TrainedJob], workload: str
) -> str | None:
    """Return the reason if no ceiling was measured in the precision of the jobs."""
    for job in (job for job in jobs if job.record.workload == workload):
        bounding = job_ceilings(contents, job)
        if bounding.reason:
            return f"job {job.record.job}: {bounding.reason}, so its FLOPS cannot be checked"
        known = {precision for _, precision in measured_ceilings(bounding.measurements).compute}
        precision = job.started.ceiling_precision if job.started else None
        if precision not in known:
            named = f" in {precision}" if known and precision else ""
            return f"no ceilings were measured{named}, so its FLOPS cannot be checked"
    return None


def _difference_reason(what: str, values: Sequence[Any]) -> str | None:
    return f"its repeats have different {what}" if len(set(values)) > 1 else None


def _impossible_quality_reason(
    target: float, better: str, qualities: Sequence[float | None]
) -> str | None:
    """Return the reason if a quality exceeds 1 although its target is a fraction."""
    best = max((quality for quality in qualities if quality is not None), default=0.0)
    if better == "higher" and target <= 1 < best:
        return f"its quality is {best:g}, but a fraction is at most 1"
    return None


def _problem(contents: Contents, training: TrainingScore) -> str:
    """Return a description of the problem: the data, and the operations per sample.

    They are rounded, because a few operations occur once per batch, whatever its size.
    """
    record = _record(contents, training)
    ops = quantity(training.work.ops_total, "OP", digits=4) if training.work else None
    work = f", {ops} per sample" if ops else ""
    return f"{_data_name(contents, record)}{work}"


def _length(contents: Contents, training: TrainingScore) -> str:
    """Return the planned length of a training run: its epochs, and what may end it early."""
    train = _record(contents, training).settings.get("train", {})
    epochs = train.get("end_epoch") or train.get("epochs")
    if epochs is None:  # an external command decides on its own length
        return _UNKNOWN_LENGTH
    early_ends = [text for key, text in _EARLY_ENDS.items() if train.get(key)]
    return ", ".join([count(epochs, "epoch"), *early_ends])


def _ensemble_length(contents: Contents, ensemble: EnsembleScore, member: TrainingScore) -> str:
    """Return the length of one model, and the number of models if they trained in waves.

    Models side by side take as long as a single one; waves take longer on the same accelerators.
    """
    waves = f", {count(ensemble.planned, 'model')} in waves" if ensemble.waves else ""
    return _length(contents, member) + waves


def _search_length(contents: Contents, search: SearchScore, workers: Sequence[TrainedJob]) -> str:
    """Return the duration of a search, or the hash of a replay's ledger, which fixes its work."""
    ledger = contents.folder.path / "ledger-replayed.json"
    if search.replay and ledger.is_file():
        return f"ledger {contents.hash(ledger)[:12]}"
    settings = workers[0].record.settings.get("search", {}) if workers else {}
    if "duration_s" not in settings:
        return _UNKNOWN_LENGTH
    max_rounds = settings.get("candidates")
    return seconds(settings["duration_s"]) + (
        f", {count(max_rounds, 'round')} at most" if max_rounds else ""
    )


def _record(contents: Contents, training: TrainingScore) -> JobRecord:
    return next(job.record for job in contents.training_jobs if job.record.job == training.job)


def _data_name(contents: Contents, record: JobRecord) -> str:
    """Return a name of the data; data drawn for a challenge is named as that of the profile."""
    challenge, fingerprint = contents.folder.record.challenge, record.data.fingerprint
    if challenge is not None and record.data.synthetic:
        spec = workload(record.workload)
        settings = validated_settings(spec.settings, record.settings).settings
        fingerprint = profile_fingerprint(spec, settings) or fingerprint
    return f"data {fingerprint[:12]}"
