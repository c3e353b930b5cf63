"""The results of a run as rows of the report's first screen, in the order of their validity."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from vflops.metrics import mean
from vflops.publish.report.limits import search_limit, training_limit
from vflops.publish.report.training_blocks import RooflineModel
from vflops.results.score import figure_text, score_tables, search_text
from vflops.results.score.ensemble_text import single_models
from vflops.results.score.score_file import (
    EnsembleScore,
    MfuScore,
    PowerScore,
    QualityScore,
    RepeatScore,
    Score,
    SearchScore,
    Spread,
    TrainingScore,
)
from vflops.results.task.task import TaskKind
from vflops.units import count, percent, quantity, seconds

Tone = Literal["", "good", "bad", "soft"]


class Order(IntEnum):
    """The order of results on the page."""

    VALID = 0
    MISSED = 1
    """The target was not reached."""
    OPEN = 2
    """The task is open, so its figures are not comparable."""
    NOT_VALID = 3
    """A rule is not met in one of its jobs, or by AIPerf's rules it is not a result."""
    UNFINISHED = 4
    NOT_STARTED = 5


@dataclass(frozen=True)
class Cell:
    """A figure, with notes on what it is based on."""

    figure: str
    notes: tuple[str, ...] = ()
    tone: Tone = ""


_OPEN_SPEED = "no VFLOPS: the task is open"
_MAX_DIFFERENCES = 2
NOTHING = Cell("—", tone="soft")


@dataclass(frozen=True)
class Result:
    """A search, an ensemble, a training run or the mean over seeds."""

    workload: str
    name: str
    order: Order
    state: str
    """What a reader must know before the figures; empty if there is nothing to say."""
    speed: Cell
    quality: Cell = NOTHING
    time: Cell = NOTHING
    energy: Cell = NOTHING
    limit: str | None = None
    """What limits it; None before it has begun."""


def results(
    scored: Score,
    models: Mapping[str, RooflineModel] | None = None,
    failed_jobs: Collection[int] = (),
) -> list[Result]:
    """Return one result per search, ensemble, single training and mean over repeats.

    Valid results come first, then those that missed their target, open tasks, those that are not
    valid, and those that have not finished or begun. A rule is not met in ``failed_jobs``.
    """
    run = _Run(scored, models or {}, frozenset(failed_jobs))
    means = {
        repeat.workload: repeat for repeat in scored.repeats if repeat.vflops_capped is not None
    }
    single = [t for t in scored.trainings if t.model is None and t.workload not in means]
    scored_ensembles = {(ensemble.workload, ensemble.repeat) for ensemble in scored.ensembles}
    unscored_models: dict[tuple[str, int], list[TrainingScore]] = {}
    for training in scored.trainings:
        key = (training.workload, training.repeat)
        if training.model is not None and key not in scored_ensembles:
            unscored_models.setdefault(key, []).append(training)
    rows = [
        *(
            _seed_mean(run, repeat) if repeat.models is None else _ensemble_mean(run, repeat)
            for repeat in means.values()
        ),
        *(_training(run, training) for training in single),
        *(_ensemble(run, e) for e in scored.ensembles if e.workload not in means),
        *(_unfinished_ensemble(scored, base_models) for base_models in unscored_models.values()),
        *(_search(run, search) for search in scored.searches),
    ]
    return sorted(rows, key=lambda row: (row.order, row.quality.tone == "bad"))


@dataclass(frozen=True)
class _Run:
    """What all results of a run need to know."""

    scored: Score
    models: Mapping[str, RooflineModel]
    failed_jobs: frozenset[int]

    def order(self, jobs: Iterable[int], task: TaskKind | None, *, reached: bool) -> Order:
        if self.scored.rehearsal or self.failed_jobs.intersection(jobs):
            return Order.NOT_VALID
        if task == "open":
            return Order.OPEN
        return Order.VALID if reached else Order.MISSED

    def state(self, workload: str, *others: str) -> str:
        """Return the task of a workload and other remarks, as one text."""
        task = self.scored.task(workload)
        definition = figure_text.task(task, limit=_MAX_DIFFERENCES) if task else ""
        rehearsal = "rehearsal: no score" if self.scored.rehearsal else ""
        return "; ".join(filter(None, (rehearsal, definition, *others)))

    def limit(self, training: TrainingScore) -> str:
        model = self.models.get(training.workload)
        return training_limit(training, model, self._unknown_limit(training))

    def _unknown_limit(self, training: TrainingScore) -> str | None:
        """Return why a training job has no roofline, if that is known."""
        graphs = [model for model in self.scored.models if model.model == training.workload]
        if all(ceiling.value is None for ceiling in self.scored.ceilings):
            return "no ceilings were measured"
        if not graphs:
            return "the operations are declared, and a roofline needs a recorded graph"
        if graphs[0].bound_reason is None and training.precision is None:
            return "the script does not state its precision: set precision in [command]"
        return graphs[0].bound_reason


def _training(run: _Run, training: TrainingScore) -> Result:
    name, quality = score_tables.training_name(run.scored, training), training.quality
    if not training.attempts:
        return Result(training.workload, name, Order.NOT_STARTED, "has not started", NOTHING)
    if not training.complete:
        progress = figure_text.progress(training)
        return Result(training.workload, name, Order.UNFINISHED, progress, NOTHING)
    met = quality.is_met
    total = f"{seconds(training.wall_s)} in all"
    time = Cell(figure_text.NOT_REACHED, (total,), "bad")
    if quality.time_to_quality_s is not None:
        epoch = figure_text.epoch(quality.epochs_to_quality)
        time = Cell(seconds(quality.time_to_quality_s), (f"{epoch}; {total}",))
    return Result(
        training.workload,
        name,
        run.order([training.job], training.task, reached=met),
        run.state(training.workload, _data_note([training])),
        _speed(training),
        _quality(quality, met=met),
        time,
        _energy(training.power),
        run.limit(training),
    )


def _speed(training: TrainingScore) -> Cell:
    speed, valid = training.speed, training.capped_vflops
    if speed is None:
        return Cell("—", (figure_text.rules(training.work),))
    flops = quantity(speed.flops, "FLOPS")
    notes = [_share(training.mfu)]
    if training.unit is not None:
        notes.append(figure_text.rate(speed.units_per_s, f"{training.unit.name}/s"))
    if valid is None:
        return Cell(flops, tuple(notes))
    if training.task == "open":
        return Cell(flops, (*notes, _OPEN_SPEED))
    factors = _factors(flops, training.quality.factor, valid, speed.vflops)
    return Cell(quantity(valid, "VFLOPS"), (*factors, *notes))


def _factors(
    flops: str, factor: float | None, capped: float | None, published: float | None
) -> tuple[str, ...]:
    """Return what VFLOPS are made of, and VFLOPS as published if they differ."""
    product = "" if factor is None else f"{flops} × {figure_text.FACTOR} {factor:.3g}"
    return tuple(filter(None, (product, figure_text.published_flops(capped, published))))


def _share(mfu: MfuScore) -> str:
    if mfu.value is None:
        return "MFU not known"
    executed, ceiling = quantity(mfu.flops, "FLOPS"), quantity(mfu.ceiling_flops, "FLOPS")
    return f"MFU {percent(mfu.value)}: {executed} executed, of {ceiling}"


def _quality(quality: QualityScore, *, met: bool) -> Cell:
    if quality.achieved is None:
        return Cell("not evaluated", (figure_text.target(quality),), "bad")
    lower = "; lower is better" if quality.better == "lower" else ""
    verdict = "reached" if met else "missed"
    if not met and quality.time_to_quality_s is not None:
        verdict = "reached before the end, missed at the end"
    return Cell(
        figure_text.number(quality.achieved),
        (
            quality.name,
            f"target {quality.target:g} {verdict}{lower}",
            *figure_text.short_loss(quality.loss),
        ),
        "good" if met else "bad",
    )


def _energy(*powers: PowerScore) -> Cell:
    """Return the energy of one result, or the mean over several seeds."""
    energies = [power.energy_j for power in powers if power.energy_j is not None]
    watts = [power.power_w for power in powers if power.power_w is not None]
    if not powers or len(energies) < len(powers) or len(watts) < len(powers):
        return Cell("not measured", tone="soft")
    notes = [f"{quantity(mean(watts), 'W')} mean ({', '.join(powers[0].includes)})"]
    if any(power.shared_with for power in powers):
        notes.append("includes other jobs on the machine")
    return Cell(quantity(mean(energies), "J"), tuple(notes))


def _data_note(trainings: Sequence[TrainingScore]) -> str:
    return "synthetic data" if any(training.synthetic for training in trainings) else ""


def _seed_mean(run: _Run, repeat: RepeatScore) -> Result:
    """Return the mean over seeds, which is the figure that a ranking uses."""
    trainings = [
        t for t in run.scored.trainings if t.model is None and t.workload == repeat.workload
    ]
    finished = [training for training in trainings if training.complete]
    reached = repeat.reached == repeat.complete
    late = [f"seed {training.seed} not finished" for training in trainings if not training.complete]
    return Result(
        repeat.workload,
        score_tables.repeat_title(repeat),
        run.order([t.job for t in trainings], repeat.task, reached=reached),
        run.state(repeat.workload, _data_note(trainings), *late),
        _mean_speed(repeat, _mean_share(finished)),
        _mean_quality(
            repeat, finished[0].quality, [training.quality.achieved for training in finished]
        ),
        _mean_time(repeat, [training.quality.time_to_quality_s for training in finished]),
        _energy(*(training.power for training in finished)),
        run.limit(finished[0]),
    )


def _ensemble_mean(run: _Run, repeat: RepeatScore) -> Result:
    """Return the mean over the ensembles of a workload that have all their models."""
    ensembles = [e for e in run.scored.ensembles if e.workload == repeat.workload]
    whole = [ensemble for ensemble in ensembles if not ensemble.partial]
    base_models = [t for t in run.scored.trainings if t.workload == repeat.workload]
    jobs = [training.job for training in base_models]
    order = run.order(jobs, repeat.task, reached=repeat.reached == repeat.complete)
    states = [_data_note(base_models)]
    if repeat.complete < repeat.planned:
        order = Order.NOT_VALID
        missing = repeat.planned - repeat.complete
        states.append(f"{count(missing, 'ensemble')} not finished or partial")
    if any(ensemble.twins for ensemble in ensembles):
        order = Order.NOT_VALID
        states.append(f"twins: {score_tables.TWINS}")
    return Result(
        repeat.workload,
        score_tables.repeat_title(repeat),
        order,
        run.state(repeat.workload, *states),
        _mean_speed(repeat, f"a model: {_mean_share(base_models)}"),
        _mean_quality(repeat, base_models[0].quality, [ensemble.achieved for ensemble in whole]),
        _mean_time(repeat, [ensemble.time_to_quality_s for ensemble in whole])
        if all(ensemble.moments for ensemble in whole)
        else Cell("—", (figure_text.combined_at(whole[0]),), "soft"),
        _energy(*(ensemble.power for ensemble in whole)),
        run.limit(base_models[0]),
    )


def _mean_speed(repeat: RepeatScore, share: str) -> Cell:
    if repeat.task == "open" and repeat.flops:
        notes = _variation(repeat, repeat.flops, "FLOPS")
        return Cell(quantity(repeat.flops.mean, "FLOPS"), (*notes, share, _OPEN_SPEED))
    valid = repeat.vflops_capped
    assert valid is not None
    flops = quantity(repeat.flops.mean, "FLOPS") if repeat.flops else ""
    factors = [
        flops,
        *_factors("", None, valid.mean, repeat.vflops.mean if repeat.vflops else None),
    ]
    notes = _variation(repeat, valid, "VFLOPS")
    return Cell(quantity(valid.mean, "VFLOPS"), (*notes, "; ".join(filter(None, factors)), share))


def _variation(repeat: RepeatScore, spread: Spread, unit: str) -> tuple[str, str]:
    """Return the confidence interval of a mean over repeats, and their variation."""
    return (
        f"{figure_text.interval(spread, unit, repeat.complete)} confidence",
        f"coefficient of variation {percent(spread.variation)}",
    )


def _mean_share(trainings: Sequence[TrainingScore]) -> str:
    shares = [t.mfu.value for t in trainings if t.mfu.value is not None]
    if len(shares) < len(trainings):
        return _share(trainings[0].mfu)
    flops = [t.mfu.flops for t in trainings if t.mfu.flops is not None]
    means = {"value": mean(shares), "flops": mean(flops)}
    return _share(trainings[0].mfu.model_copy(update=means))


def _mean_quality(
    repeat: RepeatScore, quality: QualityScore, achieved: Sequence[float | None]
) -> Cell:
    known = [value for value in achieved if value is not None]
    figure = figure_text.number(mean(known)) if known else "not evaluated"
    lower = "; lower is better" if quality.better == "lower" else ""
    note = f"target {quality.target:g}, reached by {repeat.reached} of {repeat.complete}{lower}"
    tone: Tone = "good" if repeat.reached == repeat.complete else "bad"
    return Cell(figure, (quality.name, note), tone)


def _mean_time(repeat: RepeatScore, times_s: Sequence[float | None]) -> Cell:
    known_s = [time_s for time_s in times_s if time_s is not None]
    if len(known_s) < len(times_s):
        repeats = count(len(times_s), figure_text.repeated(repeat))
        note = f"{len(times_s) - len(known_s)} of {repeats}"
        return Cell(figure_text.NOT_REACHED, (note,), "bad")
    return Cell(
        seconds(mean(known_s)), (f"mean; {seconds(min(known_s))} to {seconds(max(known_s))}",)
    )


def _unfinished_ensemble(scored: Score, models: Sequence[TrainingScore]) -> Result:
    """Return the states of the models of an ensemble that is not complete."""
    finished = sum(model.complete for model in models)
    waiting = sum(not model.attempts for model in models)
    states = {
        "finished": finished,
        "unfinished": len(models) - finished - waiting,
        "not started": waiting,
    }
    counts = ", ".join(f"{number} {state}" for state, number in states.items() if number)
    ensemble = score_tables.ensemble_name(scored, models[0].workload, models[0].repeat)
    name = f"{ensemble}, {count(len(models), 'model')}"
    order = Order.NOT_STARTED if waiting == len(models) else Order.UNFINISHED
    return Result(models[0].workload, name, order, f"no score yet; models: {counts}", NOTHING)


def _ensemble(run: _Run, ensemble: EnsembleScore) -> Result:
    jobs = frozenset(ensemble.jobs)
    base_models = [training for training in run.scored.trainings if training.job in jobs]
    reached = ensemble.is_met
    order = run.order(ensemble.jobs, ensemble.task, reached=reached)
    states = [_data_note(base_models)]
    if ensemble.partial:
        order = Order.NOT_VALID
        states.append(f"{ensemble.planned - len(ensemble.jobs)} of {ensemble.planned} missing")
    if ensemble.twins:
        order = Order.NOT_VALID
        states.append(f"twins: {score_tables.TWINS}")
    target = f"target {figure_text.number(ensemble.target)} {'reached' if reached else 'missed'}"
    single = single_models(ensemble)
    name = score_tables.ensemble_name(run.scored, ensemble.workload, ensemble.repeat)
    flops, share = quantity(ensemble.flops, "FLOPS"), f"a model: {_mean_share(base_models)}"
    valid = ensemble.capped_vflops
    factors = _factors(flops, ensemble.factor, valid, ensemble.vflops)
    speed = Cell(quantity(valid, "VFLOPS"), (*factors, share))
    if valid is None:
        speed = Cell(flops, (share,))
    elif ensemble.task == "open":
        speed = Cell(flops, (share, _OPEN_SPEED))
    return Result(
        ensemble.workload,
        f"{name}, {count(ensemble.planned, 'model')}",
        order,
        run.state(ensemble.workload, *states),
        speed,
        Cell(
            figure_text.number(ensemble.achieved),
            (ensemble.quality_name, f"{target}; {single}", *figure_text.short_loss(ensemble.loss)),
            "good" if reached else "bad",
        ),
        _ensemble_time(ensemble),
        _energy(ensemble.power),
        run.limit(base_models[0]),
    )


def _ensemble_time(ensemble: EnsembleScore) -> Cell:
    trained = f"trained for {seconds(ensemble.window_s)}"
    if not ensemble.moments:
        return Cell("—", (f"{trained}, combined at the end",), "soft")
    if ensemble.time_to_quality_s is None:
        return Cell(figure_text.NOT_REACHED, (trained,), "bad")
    waited = "; models waited for others" if ensemble.waves else ""
    epoch = f"{figure_text.epoch(ensemble.epochs_to_quality)}; {trained}{waited}"
    return Cell(seconds(ensemble.time_to_quality_s), (epoch,))


def _search(run: _Run, search: SearchScore) -> Result:
    if not search_text.has_started(search):
        state = "no candidate was started"
        return Result(search.workload, search.workload, Order.NOT_STARTED, state, NOTHING)
    limit = f"at most {search_text.max_error(search):g} is valid"
    within = search.error is not None and search.error <= search_text.max_error(search)
    error = "not evaluated" if search.error is None else figure_text.number(search.error)
    workers = count(search.workers, "worker")
    searched = f"{search_text.architectures(search)}, {workers}"
    return Result(
        search.workload,
        search.workload,
        Order.VALID if search.aiperf.valid else Order.NOT_VALID,
        run.state(search.workload, _aiperf_state(search)),
        Cell(
            quantity(search.ops_per_s, "OPS"),
            (*_at_the_end(search), f"regulated score {search_text.regulated_value(search)}"),
        ),
        Cell(error, ("error of the best model", limit), "good" if within else "bad"),
        Cell("—", (f"searched for {seconds(search.duration_s)}, {searched}",), "soft"),
        _energy(search.power),
        search_limit(search),
    )


def _at_the_end(search: SearchScore) -> tuple[str, ...]:
    """Return a remark on the speed at the end, which AIPerf publishes, if it is not the highest."""
    highest, last = quantity(search.ops_per_s, "OPS"), quantity(search.last_ops_per_s, "OPS")
    return () if highest == last else (f"the highest; {last} at the end",)


def _aiperf_state(search: SearchScore) -> str:
    """Return whether AIPerf's rules are met, or the first that is not."""
    if search.aiperf.valid or not search_text.aiperf_reasons(search):
        return search_text.aiperf_line(search)
    return f"not valid by AIPerf's rules: {search_text.aiperf_reason(search)}"
