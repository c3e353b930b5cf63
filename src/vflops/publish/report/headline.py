"""The results at the top of a report, as figures with sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics.summation import sum_in_order
from vflops.record.readout.contents import Contents
from vflops.results.check.level import Difference, Levels
from vflops.results.score import figure_text, score_tables, search_text
from vflops.results.score.score_file import (
    EnsembleScore,
    RepeatScore,
    Score,
    SearchScore,
    TrainingScore,
)
from vflops.units import percent, quantity, seconds

JOBS = ("job", "workload", "which", "ranks", "device", "state", "attempts", "time")
"""The columns of ``job_rows``."""


@dataclass(frozen=True)
class Result:
    """A figure, and a sentence on how it was reached."""

    name: str
    figure: str
    sentence: str
    note: str = ""


def results(scored: Score) -> list[Result]:
    """Return one result per search, ensemble, single training and mean over seeds.

    The results are in the order of the page; those that have not begun come last.
    """
    means = {repeat.workload: repeat for repeat in scored.repeats if repeat.vflops is not None}
    single = [t for t in scored.trainings if t.model is None and t.workload not in means]
    scored_ensembles = {(ensemble.workload, ensemble.repeat) for ensemble in scored.ensembles}
    unscored_models: dict[tuple[str, int], list[TrainingScore]] = {}
    for training in scored.trainings:
        if (
            training.model is not None
            and (training.workload, training.repeat) not in scored_ensembles
        ):
            unscored_models.setdefault((training.workload, training.repeat), []).append(training)
    ordered = [
        *((_search(search), search_text.has_started(search)) for search in scored.searches),
        *((_ensemble(ensemble), True) for ensemble in scored.ensembles),
        *(
            (_unfinished_ensemble(models), any(t.attempts for t in models))
            for models in unscored_models.values()
        ),
        *((_seed_mean(scored, repeat), True) for repeat in means.values()),
        *((_training(scored, training), training.attempts > 0) for training in single),
    ]
    return [result for result, begun in sorted(ordered, key=lambda pair: not pair[1])]


def _seed_mean(scored: Score, repeat: RepeatScore) -> Result:
    """Return the mean over seeds, which is the figure that a ranking uses."""
    trainings = [t for t in scored.trainings if t.model is None and t.workload == repeat.workload]
    seeds = (f"seed {training.seed} {_seed_speed(training)}" for training in trainings)
    assert repeat.vflops is not None
    mean = repeat.flops if repeat.task == "open" and repeat.flops else repeat.vflops
    time_s = repeat.time_to_quality_s
    after = f" after {seconds(time_s.mean)} on average" if time_s else ""
    return Result(
        f"{repeat.workload}, {figure_text.seeds(repeat)}",
        quantity(mean.mean, "FLOPS" if repeat.task == "open" else "VFLOPS"),
        f"Mean of {figure_text.seeds(repeat)}, CV {percent(mean.variation)}: "
        f"{_factors(trainings)}; "
        f"{repeat.reached} of {repeat.complete} reached it{after}",
        ", ".join(seeds),
    )


def _seed_speed(training: TrainingScore) -> str:
    speed = training.speed
    if speed is None or speed.vflops is None:
        return "not finished"
    if training.task == "open":
        return quantity(speed.flops, "FLOPS")
    return quantity(speed.vflops, "VFLOPS")


def _factors(trainings: Sequence[TrainingScore]) -> str:
    """Return the factors of the score as text: quality over target, and FLOPS."""
    quality = trainings[0].quality
    reached = sorted(t.quality.achieved for t in trainings if t.quality.achieved is not None)
    quality_range = dict.fromkeys(figure_text.number(value) for value in (reached[0], reached[-1]))
    speeds = [t.speed.flops for t in trainings if t.speed and t.speed.flops is not None]
    flops = quantity(sum_in_order(speeds) / len(speeds), "FLOPS") if speeds else "FLOPS not known"
    return (
        f"{' to '.join(quality_range)} {quality.name} over the target {quality.target:g}, "
        f"to the power of {quality.exponent}, × {flops}"
    )


def _unfinished_ensemble(models: Sequence[TrainingScore]) -> Result:
    """Return the states of the models of an ensemble that is not complete."""
    finished = sum(model.complete for model in models)
    waiting = sum(not model.attempts for model in models)
    states = {
        "finished": finished,
        "unfinished": len(models) - finished - waiting,
        "not started": waiting,
    }
    counts = ", ".join(f"{number} {state}" for state, number in states.items() if number)
    name = f"{models[0].workload}, {figure_text.count(len(models), 'model')}"
    return Result(name, "—", f"The ensemble has no score yet; models: {counts}")


def _search(search: SearchScore) -> Result:
    figure = quantity(search.ops_per_s, "OPS")
    return Result(search.workload, figure, _sentence(search_text.search_line(search)))


def _ensemble(ensemble: EnsembleScore) -> Result:
    reached, target = figure_text.number(ensemble.achieved), figure_text.number(ensemble.target)
    is_open = ensemble.task == "open"
    return Result(
        f"{ensemble.workload}, {figure_text.count(len(ensemble.jobs), 'model')}",
        quantity(ensemble.flops, "FLOPS") if is_open else quantity(ensemble.vflops, "VFLOPS"),
        f"Together, the models reached {reached} {ensemble.quality_name} for a target of {target}, "
        f"so {figure_text.FACTOR} {ensemble.penalty:.3g} × {quantity(ensemble.flops, 'FLOPS')}",
        f"{ensemble.penalty:.4g} = ({reached} / {target})^{ensemble.exponent}; "
        f"FLOPS over {seconds(ensemble.window_s)}, from the first step to the last end",
    )


def _training(scored: Score, training: TrainingScore) -> Result:
    name, quality, speed = (
        score_tables.training_name(scored, training),
        training.quality,
        training.speed,
    )
    if not training.complete:
        return Result(name, "—", _sentence(figure_text.progress(training)))
    reached = "no quality" if quality.achieved is None else figure_text.number(quality.achieved)
    lower = " (lower is better)" if quality.better == "lower" else ""
    sentence = f"Reached {reached} {quality.name}{lower} for a target of {quality.target:g}"
    if speed is None or speed.vflops is None or quality.penalty is None:
        return Result(name, "—", f"{sentence}; {figure_text.rules(training.work)}")
    share = training.mfu.value
    mfu = f"; MFU {percent(share)} ({training.mfu.ceiling})" if share else ""
    if quality.time_to_quality_s is not None:
        sentence += f" after {seconds(quality.time_to_quality_s)}"
    if training.task == "open":
        note = f"open task; {figure_text.vflops(training)}{mfu}"
        return Result(name, quantity(speed.flops, "FLOPS"), sentence, note)
    sentence += (
        f", so {figure_text.FACTOR} {quality.penalty:.3g} × {quantity(speed.flops, 'FLOPS')}"
    )
    capped = f"; {quantity(speed.vflops_capped, 'VFLOPS')} {figure_text.CAPPED}"
    note = f"{figure_text.factor(quality)}{capped if quality.penalty > 1 else ''}{mfu}"
    return Result(name, quantity(speed.vflops, "VFLOPS"), sentence, note)


def job_rows(contents: Contents, scored: Score) -> list[tuple[str, ...]]:
    """Return one row per job of the run, with the columns of ``JOBS``."""
    complete_jobs = {training.job: training.complete for training in scored.trainings}
    rows: list[tuple[str, ...]] = []
    for job in sorted((*contents.training_jobs, *contents.workers), key=lambda job: job.record.job):
        record, started = job.record, job.started
        which = f"seed {record.seed}"
        if record.worker is not None:
            which = f"worker {record.worker.worker + 1}"
        elif record.bag is not None:
            which = f"model {record.bag.model + 1}"
        complete = complete_jobs.get(record.job, job.finished is not None)
        state = "finished" if complete else "unfinished" if job.logs else "not started"
        rows.append(
            (
                str(record.job),
                record.workload,
                which,
                str(record.ranks),
                started.device_name if started else "—",
                state,
                str(len(job.logs)),
                seconds(job.wall_s) if job.logs else "—",
            )
        )
    return rows


def level_sentence(levels: Levels) -> str:
    """Return a sentence on the level that the run may claim, or why it may claim none."""
    if levels.reason is not None:
        return ""
    if levels.claim is not None:
        differences = _first_differences(levels.deciding)
        return f"It may claim the level {levels.claim}{f' ({differences})' if differences else ''}."
    differences = _first_differences(levels.layers[-1].differences)
    return f"It may claim no level of the papers: its problem differs from theirs ({differences})."


def _first_differences(differences: Sequence[Difference], limit: int = 3) -> str:
    more = f" and {len(differences) - limit} more" if len(differences) > limit else ""
    return "; ".join(map(str, differences[:limit])) + more


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
