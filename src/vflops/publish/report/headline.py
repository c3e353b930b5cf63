"""What a run came to, in words: the first thing on its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """A figure, and what it is made of."""

    name: str
    figure: str
    sentence: str
    note: str = ""


def results(scored: Score) -> list[Result]:
    """One a search, an ensemble, a training by itself and what seeds came to in the mean.

    They are in the order of the page; what has not begun comes last.
    """
    means = {each.workload: each for each in scored.repeats if each.vflops is not None}
    alone = [e for e in scored.trainings if e.model is None and e.workload not in means]
    whole = {(each.workload, each.repeat) for each in scored.ensembles}
    parts: dict[tuple[str, int], list[TrainingScore]] = {}
    for each in scored.trainings:
        if each.model is not None and (each.workload, each.repeat) not in whole:
            parts.setdefault((each.workload, each.repeat), []).append(each)
    found = [
        *((_search(each), search_text.begun(each)) for each in scored.searches),
        *((_ensemble(each), True) for each in scored.ensembles),
        *((_models(each), any(e.attempts for e in each)) for each in parts.values()),
        *((_mean(scored, each), True) for each in means.values()),
        *((_training(scored, each), each.attempts > 0) for each in alone),
    ]
    return [result for result, begun in sorted(found, key=lambda pair: not pair[1])]


def _mean(scored: Score, repeat: RepeatScore) -> Result:
    """The figure that ranks, with the seeds that it is the mean of."""
    own = [e for e in scored.trainings if e.model is None and e.workload == repeat.workload]
    seeds = (f"seed {each.seed} {figure_text.vflops(each) or 'not ended'}" for each in own)
    assert repeat.vflops is not None
    return Result(
        f"{repeat.workload}, {figure_text.seeds(repeat)}",
        quantity(repeat.vflops.mean, "VFLOPS"),
        f"Mean of {figure_text.seeds(repeat)}, CV {percent(repeat.vflops.variation)}: "
        f"{_made_of(own)}; "
        f"{repeat.reached} of {repeat.complete} reached it",
        ", ".join(seeds),
    )


def _made_of(trainings: Sequence[TrainingScore]) -> str:
    """Quality against target, and FLOPS: what the score is the product of."""
    quality = trainings[0].quality
    reached = sorted(e.quality.achieved for e in trainings if e.quality.achieved is not None)
    ends = dict.fromkeys(figure_text.number(each) for each in (reached[0], reached[-1]))
    speeds = [e.speed.flops for e in trainings if e.speed and e.speed.flops is not None]
    flops = quantity(sum(speeds) / len(speeds), "FLOPS") if speeds else "FLOPS not known"
    return (
        f"{' to '.join(ends)} {quality.name} of the target {quality.target:g}, "
        f"by the power of {quality.exponent}, × {flops}"
    )


def _models(models: Sequence[TrainingScore]) -> Result:
    """An ensemble that is not whole yet: where its models stand."""
    ended = sum(each.complete for each in models)
    waiting = sum(not each.attempts for each in models)
    states = {"ended": ended, "not ended": len(models) - ended - waiting, "not begun": waiting}
    told = ", ".join(f"{number} {state}" for state, number in states.items() if number)
    name = f"{models[0].workload}, {figure_text.count(len(models), 'model')}"
    return Result(name, "—", f"No score of the ensemble so far; of its models {told}")


def _search(search: SearchScore) -> Result:
    figure = quantity(search.ops_per_s, "OPS")
    return Result(search.workload, figure, _sentence(search_text.search_line(search)))


def _ensemble(ensemble: EnsembleScore) -> Result:
    reached, target = figure_text.number(ensemble.achieved), figure_text.number(ensemble.target)
    return Result(
        f"{ensemble.workload}, {figure_text.count(len(ensemble.jobs), 'model')}",
        quantity(ensemble.vflops, "VFLOPS"),
        f"Together reached {reached} of target {target} {ensemble.quality_name}, "
        f"so {figure_text.FACTOR} {ensemble.penalty:.3g} × {quantity(ensemble.flops, 'FLOPS')}",
        f"{ensemble.penalty:.4g} = ({reached} / {target})^{ensemble.exponent}; "
        f"FLOPS over {seconds(ensemble.window_s)}, from the first step to the last end",
    )


def _training(scored: Score, training: TrainingScore) -> Result:
    name, quality, speed = score_tables.name(scored, training), training.quality, training.speed
    if not training.complete:
        return Result(name, "—", _sentence(figure_text.how_far(training)))
    reached = "no quality" if quality.achieved is None else figure_text.number(quality.achieved)
    lower = ", where lower is better" if quality.better == "lower" else ""
    sentence = f"Reached {reached} of target {quality.target:g} {quality.name}{lower}"
    if speed is None or speed.vflops is None or quality.penalty is None:
        return Result(name, "—", f"{sentence}; {figure_text.rules(training.work)}")
    sentence += (
        f", so {figure_text.FACTOR} {quality.penalty:.3g} × {quantity(speed.flops, 'FLOPS')}"
    )
    share = training.mfu.value
    of = f"; MFU {percent(share)} ({training.mfu.ceiling})" if share else ""
    return Result(
        name, figure_text.vflops(training), sentence, f"{figure_text.factor(quality)}{of}"
    )


def job_rows(contents: Contents, scored: Score) -> list[tuple[str, ...]]:
    """The jobs of the run, a row each, under the names of ``JOBS``."""
    ended = {each.job: each.complete for each in scored.trainings}
    rows: list[tuple[str, ...]] = []
    for job in sorted((*contents.trained, *contents.workers), key=lambda each: each.record.job):
        record, started = job.record, job.started
        which = f"seed {record.seed}"
        if record.worker is not None:
            which = f"worker {record.worker.worker + 1}"
        elif record.bag is not None:
            which = f"model {record.bag.model + 1}"
        complete = ended.get(record.job, job.finished is not None)
        state = "ended" if complete else "not ended" if job.logs else "not started"
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


def level_words(levels: Levels) -> str:
    """The level that the run may claim, or why it may claim none."""
    if levels.reason is not None:
        return ""
    if levels.claim is not None:
        made = _some(levels.deciding)
        return f"It may claim the level {levels.claim}{f' ({made})' if made else ''}."
    other = _some(levels.layers[-1].differences)
    return f"It may claim no level of the papers: the problem is another ({other})."


def _some(differences: Sequence[Difference], most: int = 3) -> str:
    more = f" and {len(differences) - most} more" if len(differences) > most else ""
    return "; ".join(map(str, differences[:most])) + more


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
