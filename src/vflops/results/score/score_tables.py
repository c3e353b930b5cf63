"""The score as rows of text for tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from vflops.metrics import mean
from vflops.record.formats.measurement import Measurement
from vflops.results.score import figure_text, parallelism_text
from vflops.results.score.ensemble_text import ensemble_loss, single_models
from vflops.results.score.score_file import (
    CeilingScore,
    EnsembleScore,
    ModelScore,
    NodeScore,
    RepeatScore,
    RuleCount,
    ScaleScore,
    Score,
    SearchScore,
    TrainingScore,
    WorkScore,
)
from vflops.units import count, percent, quantity, seconds

CEILINGS = ("benchmark", "case", "precision", "median", "spread", "caveat")
MODELS = ("model", "rules", "forward", "training", "bound here")
REPEATS = (
    "figure",
    f"mean ± ({percent(figure_text.CONFIDENCE, digits=0)})",
    "variation",
    "of",
)
_NAMED_OPERATORS = 5
"""How many operators that are not counted are listed by name in the terminal."""
TWINS = "a diagnostic of the nodes, not a result"
NODES = ("node", "machine", "jobs", "clock", "power", "GPU utilisation")


def ensemble_rows(ensemble: EnsembleScore) -> list[tuple[str, str]]:
    """Return the figures of an ensemble as names and texts, the most quoted ones first."""
    single = single_models(ensemble)
    if ensemble.out_of_bag is not None:
        single += f"; {figure_text.number(ensemble.out_of_bag)} on out-of-bag samples"
    by_size = ", ".join(
        f"{size.models}: {figure_text.number(size.quality)}" for size in ensemble.sizes
    )
    rows = [
        ("time to quality", figure_text.ensemble_time(ensemble)),
        ("FLOPS", f"{quantity(ensemble.flops, 'FLOPS')} over {seconds(ensemble.window_s)}"),
        ("FLOPS per epoch", _epoch_text(ensemble)),
        (
            "quality",
            f"{figure_text.number(ensemble.achieved)} {ensemble.quality_name} "
            f"(target {figure_text.number(ensemble.target)}); {single}",
        ),
        *([("loss", ensemble_loss(ensemble))] if ensemble.loss else []),
        (figure_text.FACTOR, _ensemble_factor(ensemble)),
        ("by models", by_size),
        *scale_rows(ensemble.scale),
        ("started", f"within {seconds(ensemble.started_apart_s)}, {ensemble.bootstrap} bootstrap"),
        (figure_text.vflops_name(ensemble.task, "/W"), _per_watt(ensemble)),
        ("clocks", _clocks(ensemble)),
    ]
    rows.insert(*_vflops_row(ensemble, ensemble.vflops, after=5 + bool(ensemble.loss)))
    if ensemble.utilisation is not None:
        rows.append(("utilisation", f"{ensemble.utilisation:.1f} % of the accelerators' time"))
    if ensemble.nodes_named is not None:
        rows.append(("nodes", figure_text.nodes_named(ensemble.nodes_named)))
    if ensemble.twins is not None:
        rows.insert(
            0, ("twins", f"{TWINS}; {figure_text.twins(ensemble.twins, ensemble.quality_name)}")
        )
    if ensemble.waves:
        rows.append(("waves", "models waited for others: no claim of weak scaling"))
    if ensemble.partial:
        missing = ensemble.planned - len(ensemble.jobs)
        rows.append(("partial", f"{count(missing, 'model')} of {ensemble.planned} missing"))
    return rows


def scale_rows(scale: ScaleScore | None) -> list[tuple[str, str]]:
    """Return the scale of the system and the amount of parallel computation."""
    if scale is None:
        return []
    return [("Sys_scale", figure_text.sys_scale(scale)), ("APC", figure_text.apc(scale))]


def ensemble_name(score: Score, workload: str, repeat: int) -> str:
    """Return the workload of an ensemble, with the ensemble's number if it was repeated."""
    return ", ".join(filter(None, (workload, ensemble_number(score, workload, repeat))))


def ensemble_number(score: Score, workload: str, repeat: int) -> str:
    """Return which of the repeated ensembles of a workload it is; empty if there is only one."""
    repeats = {training.repeat for training in score.trainings if training.workload == workload}
    return f"ensemble {repeat + 1} of {len(repeats)}" if len(repeats) > 1 else ""


def ensemble_title(score: Score, ensemble: EnsembleScore) -> str:
    """Return the name of an ensemble and the number of its models."""
    name = ensemble_name(score, ensemble.workload, ensemble.repeat)
    models = count(ensemble.planned, "model")
    return f"{name}, {f'{len(ensemble.jobs)} of ' if ensemble.partial else ''}{models} together"


def ensemble_line(score: Score, ensemble: EnsembleScore) -> str:
    """Return the result of an ensemble in one line."""
    twins = ""
    if ensemble.twins:
        twins = f" (twins, {TWINS}: {figure_text.twins(ensemble.twins, ensemble.quality_name)})"
    return (
        f"{ensemble_title(score, ensemble)}{twins}: "
        f"{figure_text.number(ensemble.achieved)} {ensemble.quality_name} "
        f"({single_models(ensemble)}), {_short_loss(ensemble)}"
        + figure_text.equation(
            ensemble.flops,
            ensemble.factor,
            ensemble.capped_vflops,
            ensemble.vflops,
            ensemble.task,
        )
        + _together_reached(ensemble)
    )


def _short_loss(ensemble: EnsembleScore) -> str:
    return "".join(f"{text}, " for text in figure_text.short_loss(ensemble.loss))


def _together_reached(ensemble: EnsembleScore) -> str:
    if ensemble.time_to_quality_s is not None:
        return f", target reached after {seconds(ensemble.time_to_quality_s)}"
    return f", target {figure_text.NOT_REACHED}" if ensemble.moments else ""


def _ensemble_factor(ensemble: EnsembleScore) -> str:
    factor = f"{ensemble.factor:.4g}, n = {ensemble.exponent}"
    if ensemble.penalty == ensemble.factor:
        return factor
    published = figure_text.UNBOUNDED if ensemble.penalty is None else f"{ensemble.penalty:.4g}"
    return f"{factor} ({published} {figure_text.AS_PUBLISHED})"


def _vflops_row(
    scored: TrainingScore | EnsembleScore, published: float | None, after: int
) -> tuple[int, tuple[str, str]]:
    """Return the position and the row of VFLOPS: first, or after other rows for an open task."""
    name = figure_text.vflops_name(scored.task)
    capped = scored.capped_vflops
    if scored.task != "open":
        return 0, (name, figure_text.valid_flops(capped, published))
    notes = (figure_text.published_flops(capped, published), figure_text.NOT_COMPARABLE)
    return after, (name, f"{quantity(capped, 'VFLOPS')} ({'; '.join(filter(None, notes))})")


def task_lines(score: Score) -> list[str]:
    """Return one line per task of the run, starting with its workload."""
    return [f"{task.workload}: {figure_text.task(task)}" for task in score.tasks]


def training_title(score: Score, training: TrainingScore) -> str:
    """Return the workload of a training job with its ensemble and model, or its seed."""
    if training.model is not None:
        ensemble = ensemble_name(score, training.workload, training.repeat)
        return f"{ensemble}, model {training.model + 1}"
    return f"{training.workload}, seed {training.seed}"


def training_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """Return the figures of a training job as names and texts, the most quoted ones first."""
    speed, quality = training.speed, training.quality
    rows = []
    if not training.complete:
        rows.append(("incomplete", figure_text.progress(training)))
    if not training.attempts:  # nothing else is known
        return [*rows, ("quality", figure_text.achieved(quality)), *data_rows(training)]
    flops = quantity(speed.flops if speed else None, "FLOPS")
    results = [
        ("time to quality", figure_text.time_to_quality(quality)),
        ("FLOPS", f"{flops} ({figure_text.rules(training.work)})"),
        ("quality", figure_text.achieved(quality)),
        *([("loss", figure_text.loss(quality.loss))] if quality.loss else []),
        (figure_text.FACTOR, figure_text.factor(quality)),
    ]
    if speed is not None:
        results.insert(*_vflops_row(training, speed.vflops, after=len(results)))
    rows += [
        *results,
        *_work_rows(training.work),
        ("precision", parallelism_text.precision(training)),
        *scale_rows(training.scale),
        ("speed", figure_text.throughput(training)),
        ("MFU", figure_text.mfu(training.mfu)),
        *utilisation_rows(training),
        (figure_text.vflops_name(training.task, "/W"), _per_watt(training)),
        ("time", figure_text.budget(training)),
        *data_rows(training),
        *parallelism_text.shared_rows(training),
    ]
    if training.attempts > 1:
        repeated = count(training.samples_redone, "sample")
        rows.append(("attempts", f"{training.attempts}, {repeated} repeated"))
    return rows


def data_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """Return what a job is trained on, and facts about it."""
    facts = [("", figure_text.data_facts(training))] if training.data_facts else []
    return [("data", figure_text.data(training)), *facts]


def utilisation_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """Return the share of the vendor's peak, and the speed by conventions for transformers."""
    rows = [
        (f"by {score.rules}/{score.rules_version}", figure_text.convention_share(score))
        for score in training.conventions
    ]
    if training.mfu.vendor is not None or rows:
        rows.insert(0, ("of the vendor's peak", figure_text.vendor(training.mfu)))
    return rows


def _work_rows(work: WorkScore | None) -> list[tuple[str, str]]:
    """Return the operations per sample, and the operators that are not among them."""
    if work is None:
        return []
    rows = [("operations", figure_text.executed_work(work))]
    if work.uncounted:
        rows.append(("not counted", figure_text.uncounted(work, _NAMED_OPERATORS)))
    return rows


def result_rows(score: Score, trainings: Sequence[TrainingScore]) -> list[tuple[str, ...]]:
    """Return one row per training job of ``trainings`` with its result."""
    return [
        (training_name(score, training), *figure_text.result(training)) for training in trainings
    ]


def training_name(score: Score, training: TrainingScore) -> str:
    """Return the name of a training job in its run: the workload, with the seed if repeated."""
    repeated = training.model is not None or any(
        repeat.workload == training.workload for repeat in score.repeats
    )
    return training_title(score, training) if repeated else training.workload


def repeat_line(repeat: RepeatScore) -> str:
    """Return the mean over seeds and its variation in one line."""
    figures = (
        ("quality", repeat.quality),
        ("FLOPS", repeat.flops),
        ("epochs to quality", repeat.epochs_to_quality),
    )
    known = [f"{what} {percent(spread.variation)}" for what, spread in figures if spread]
    varied = f"; coefficients of variation: {', '.join(known)}" if known else ""
    repeated = figure_text.repeated(repeat)
    reached = f"{repeat.reached} of {repeat.planned} {repeated}s reached the target{varied}"
    return (
        reached if repeat.vflops_capped is None else f"{figure_text.mean_speed(repeat)}; {reached}"
    )


def repeat_title(repeat: RepeatScore) -> str:
    """Return the title of a mean over seeds or ensembles."""
    models = "" if repeat.models is None else f", {count(repeat.models, 'model')}"
    return f"{repeat.workload}{models}, mean of {figure_text.seeds(repeat)}"


def repeat_rows(repeat: RepeatScore) -> list[tuple[str, ...]]:
    """Return the variation over seeds, one row per figure with the columns of ``REPEATS``."""
    spread = partial(figure_text.spread, repeats=repeat.complete)
    ended = f"{repeat.complete} of {repeat.planned} {figure_text.repeated(repeat)}s"
    reached = f"{repeat.reached} of {repeat.complete} reached the target"
    rows = [
        ("time to quality", *spread(repeat.time_to_quality_s, "s"), reached),
        ("FLOPS", *spread(repeat.flops, "FLOPS"), ended),
        ("quality", *spread(repeat.quality, None), ended),
        ("epochs to quality", *spread(repeat.epochs_to_quality, None), reached),
    ]
    name = figure_text.vflops_name(repeat.task)
    valid = [
        (name, *spread(repeat.vflops_capped, "VFLOPS"), ended),
        (f"{name} {figure_text.AS_PUBLISHED}", *spread(repeat.vflops, "VFLOPS"), ended),
    ]
    return [*rows, *valid] if repeat.task == "open" else [*valid, *rows]


def ceiling_rows(score: Score) -> list[tuple[str, ...]]:
    """Return one row per measured ceiling, with the columns of ``CEILINGS``.

    A caveat is explained in full only where it first appears. If several kinds of nodes were
    measured, or several nodes communicated, the last column names them.
    """
    rows: list[tuple[str, ...]] = []
    explained: set[str] = set()
    several = has_several_kinds(score)
    for item in score.ceilings:
        if item.value is None:
            continue
        caveat, node = item.caveat or "", ceiling_node(item, several)
        rows.append(
            (
                item.benchmark,
                item.case,
                item.precision or "",
                quantity(item.value, item.unit),
                percent(item.spread),
                "; ".join(
                    filter(
                        None, (node, caveat.partition(": ")[0] if caveat in explained else caveat)
                    )
                ),
            )
        )
        explained.add(caveat)
    return rows


def has_several_kinds(score: Score) -> bool:
    """Whether ceilings of several kinds of nodes were measured."""
    return len({item.kind for item in score.ceilings} - {None}) > 1


def ceiling_node(item: CeilingScore, several: bool) -> str:
    """Return the nodes of a ceiling, if the heading does not name them."""
    if item.node is None or (item.kind is not None and not several):
        return ""
    return f"on {item.node}" if item.kind is not None else f"between {item.node}"


def absent_rows(ceilings: Iterable[CeilingScore | Measurement]) -> list[tuple[str, str]]:
    """Return one row per reason for missing ceilings, with the names of these ceilings."""
    by_reason: dict[str, list[str]] = {}
    for item in ceilings:
        if item.reason is not None:
            name = " ".join(filter(None, (item.benchmark, item.case, item.precision)))
            by_reason.setdefault(item.reason, []).append(name)
    return [(", ".join(names), reason) for reason, names in by_reason.items()]


def model_rows(score: Score) -> list[tuple[str, ...]]:
    """Return the operations per sample, one row per model and convention, as in ``MODELS``."""
    return [
        (
            model.model,
            f"{count.rules}/{count.rules_version}",
            quantity(count.ops_forward, "FLOP"),
            quantity(count.ops_total, "FLOP"),
            _bound(model, count),
        )
        for model in score.models
        for count in model.counts
    ]


def _per_watt(scored: TrainingScore | EnsembleScore) -> str:
    per_watt = scored.capped_vflops_per_watt
    if per_watt is None:
        return f"— {figure_text.power(scored.power)}"
    return f"{quantity(per_watt, 'VFLOPS/W')} at {figure_text.power(scored.power)}"


def _clocks(ensemble: EnsembleScore) -> str:
    """Return the largest correction of a node's clock, and the jobs without a correction."""
    hosts = count(len(ensemble.nodes), "node")
    text = f"{hosts}, corrected by at most {figure_text.offset(ensemble.clock_corrected_s)}"
    if ensemble.clock_unknown:
        jobs = figure_text.numbers(ensemble.clock_unknown)
        text += f"; unknown and not corrected for jobs {jobs}"
    return text


def node_rows(
    ensemble: EnsembleScore | SearchScore, at_most: int | None = None
) -> list[tuple[str, ...]]:
    """Return one row per node that trained, with the columns of ``NODES``.

    If there are more than ``at_most``, those that differ from the others are chosen.
    """
    nodes = list(ensemble.nodes)
    if at_most is not None and len(nodes) > at_most:
        chosen = {node.host for node in _differing_nodes(ensemble)[:at_most]}
        nodes = [node for node in nodes if node.host in chosen]
    return [
        (
            node.host,
            node.machine,
            figure_text.numbers(node.jobs),
            figure_text.clock(node),
            figure_text.power(node.power),
            "" if node.utilisation is None else f"{node.utilisation:.1f} %",
        )
        for node in nodes
    ]


def _differing_nodes(ensemble: EnsembleScore | SearchScore) -> list[NodeScore]:
    """Return all nodes: slow, noisy and faulty ones, then by their distance from the mean power."""
    named = ensemble.nodes_named if isinstance(ensemble, EnsembleScore) else None
    jobs = {job for node in named.named for job in node.jobs} if named else set()
    powers = [node.power.power_w for node in ensemble.nodes if node.power.power_w is not None]
    mean_w = mean(powers) if powers else 0.0

    def usual(node: NodeScore) -> tuple[bool, bool, float]:
        power_w = node.power.power_w
        distance_w = 0.0 if power_w is None else abs(power_w - mean_w)
        return jobs.isdisjoint(node.jobs), node.fault is None, -distance_w

    return sorted(ensemble.nodes, key=usual)


def _bound(model: ModelScore, count: RuleCount) -> str:
    bound = model.bound
    if bound is None or bound.rules != count.rules:
        return ""
    return f"{quantity(bound.samples_per_s, 'samples/s')} in {bound.precision}"


def _epoch_text(ensemble: EnsembleScore) -> str:
    if ensemble.flops_epoch is None and ensemble.waves:
        return "— not defined for models in waves"
    return f"{quantity(ensemble.flops_epoch, 'FLOPS')} (as published)"
