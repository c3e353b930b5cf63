"""Figures of a score as text, with their units and what they are based on."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.metrics.statistics import margin_of_mean
from vflops.record.formats.job import DataKind, data_kind
from vflops.record.formats.job_events import PHASES
from vflops.results.score.node_outliers import NodesNamed
from vflops.results.score.score_file import (
    ConventionScore,
    EnsembleScore,
    LossScore,
    MfuScore,
    NodeScore,
    PowerScore,
    QualityScore,
    RepeatScore,
    ScaleScore,
    Spread,
    TrainingScore,
    WorkScore,
)
from vflops.results.score.twins import TwinPair, TwinsScore
from vflops.results.task.task import Task, TaskKind
from vflops.units import count, percent, quantity, seconds

NOT_REACHED = "not reached"
NOT_MEASURED = "power not measured"
FACTOR = "quality factor"
"""The factor on FLOPS: 1 if the target was reached, below 1 if it was missed."""
AS_PUBLISHED = "as published"
"""Marks the quality factor of the papers, which exceeds 1 above the target, and its VFLOPS."""
UNBOUNDED = "unbounded"
"""The quality factor of an error of 0, as published."""
OPEN_VFLOPS = "open VFLOPS"
"""The name of the VFLOPS of an open task."""
NOT_COMPARABLE = "own task: not comparable"
CONFIDENCE = 0.95
"""The level of the confidence intervals of means over repeats."""
_MAX_DIFFERENCES = 4
"""The number of differences from a profile that a line lists."""


def result(training: TrainingScore) -> tuple[str, str, str]:
    """Return the quality, the speed and the time to the target of a training job.

    The speed of an open task is in FLOPS, since its VFLOPS are not comparable.
    """
    if not training.complete:
        return achieved(training.quality), "", progress(training)
    return achieved(training.quality), speed(training), reached(training.quality)


def task(task: Task, limit: int = _MAX_DIFFERENCES) -> str:
    """Return whether a task is closed, its digest, and at most ``limit`` differences."""
    digest = task.digest or "of unknown definition"
    if task.kind == "closed":
        return f"closed task {digest} (profile {task.profile})"
    shown = "; ".join(task.differences[:limit])
    more = len(task.differences) - limit
    return f"open task {digest}: {shown}{f'; and {more} more' if more > 0 else ''}"


def progress(training: TrainingScore) -> str:
    """Return how far an unfinished training job has come."""
    if not training.attempts:
        return "has not started"
    return f"has not finished: epoch {training.epochs:.2f} after {seconds(training.wall_s)}"


def speed(training: TrainingScore) -> str:
    """Return the equation FLOPS × quality factor = valid FLOPS; only FLOPS of an open task."""
    measured, factor = training.speed, training.quality.factor
    if measured is None or factor is None:
        return ""
    return equation(measured.flops, factor, training.capped_vflops, measured.vflops, training.task)


def equation(
    flops: float | None,
    factor: float,
    capped: float | None,
    published: float | None,
    task: TaskKind | None,
) -> str:
    """Return FLOPS × quality factor = VFLOPS, with a factor of at most 1, and those as published.

    Return only FLOPS of an open task, and of a rehearsal, which has no VFLOPS.
    """
    rate = quantity(flops, "FLOPS")
    if task == "open" or capped is None:
        return rate
    return f"{rate} × {FACTOR} {factor:.3g} = {valid_flops(capped, published)}"


def valid_flops(capped: float | None, published: float | None) -> str:
    """Return VFLOPS of a closed task, and those as published if they differ."""
    text, note = quantity(capped, "VFLOPS"), published_flops(capped, published)
    return f"{text} ({note})" if note else text


def published_flops(capped: float | None, published: float | None) -> str:
    """Return VFLOPS as published if they differ from the capped ones: ``51 as published``."""
    if capped is None:
        return ""
    if published is None:
        return f"{UNBOUNDED} {AS_PUBLISHED}"
    shown, text = quantity(capped, "VFLOPS"), quantity(published, "VFLOPS")
    if text == shown:
        return ""
    value, _, unit = text.partition(" ")
    return f"{value if shown.endswith(f' {unit}') else text} {AS_PUBLISHED}"


def vflops_name(task: TaskKind | None, suffix: str = "") -> str:
    """Return the name of VFLOPS, or of VFLOPS/W with a suffix, for a closed or an open task."""
    return f"{OPEN_VFLOPS if task == 'open' else 'VFLOPS'}{suffix}"


def achieved(quality: QualityScore) -> str:
    """Return the quality with its target."""
    value = "no" if quality.achieved is None else number(quality.achieved)
    test = "" if quality.tested is None else f"; {number(quality.tested)} on the test set"
    return f"{value} {quality.name} ({target(quality)}{test})"


def target(quality: QualityScore) -> str:
    """Return the target, and the target of the profile if it differs."""
    text = f"target {quality.target:g}"
    if quality.profile_target not in (None, quality.target):
        text += f", not the profile's {quality.profile_target:g}"
    return text


def reached(quality: QualityScore) -> str:
    """Return when the target was reached, or that it was not."""
    if quality.time_to_quality_s is None:
        return f"target {NOT_REACHED}"
    return f"reached after {seconds(quality.time_to_quality_s)}"


def epoch(number: float | None) -> str:
    """Return ``epoch 5`` for 5.008: an evaluation follows the batch that ends an epoch."""
    return "epoch —" if number is None else f"epoch {round(number, 1):g}"


def time_to_quality(quality: QualityScore) -> str:
    """Return the time to the target with its epoch, or that it was not reached."""
    if quality.time_to_quality_s is None:
        return NOT_REACHED
    return f"{seconds(quality.time_to_quality_s)}, {epoch(quality.epochs_to_quality)}"


def ensemble_time(ensemble: EnsembleScore) -> str:
    """Return when the models together first reached the target, or why that is not known."""
    combined = combined_at(ensemble)
    if ensemble.time_to_quality_s is None:
        return f"{NOT_REACHED}; {combined}" if ensemble.moments else f"not known: {combined}"
    time = f"{seconds(ensemble.time_to_quality_s)}, {epoch(ensemble.epochs_to_quality)}"
    waited = ", including the time that models waited for others" if ensemble.waves else ""
    return f"{time}{waited}; {combined}"


def combined_at(ensemble: EnsembleScore) -> str:
    """Return how often the predictions of all models were combined."""
    if not ensemble.moments:
        return "combined only after training, at no evaluation"
    return f"combined at {count(len(ensemble.moments), 'evaluation')}"


def sys_scale(scale: ScaleScore) -> str:
    """Return the slots in use at once as M × P, and what a slot is."""
    product = f"{count(scale.models, 'model')} × {count(scale.ranks, 'rank')}"
    return f"{count(scale.sys_scale, (scale.slots or 'slots').removesuffix('s'))} = {product}"


def apc(scale: ScaleScore) -> str:
    """Return the amount of parallel computation of one update."""
    each = f" of each of {scale.models:,} models" if scale.models > 1 else ""
    return f"{quantity(scale.apc, 'FLOP')} for one update{each}"


def factor(quality: QualityScore) -> str:
    """Return the quality factor with its formula and its meaning."""
    if quality.achieved is None:
        return "no evaluation"
    if quality.penalty is None:
        value = number(quality.achieved)
        return f"1: the target was reached ({UNBOUNDED} for a value of {value} {AS_PUBLISHED})"
    above, below = number(quality.achieved), f"{quality.target:g}"
    if quality.better == "lower":
        above, below = below, above
    formula = f"{quality.penalty:.4g} = ({above} / {below})^{quality.exponent}"
    if quality.penalty > 1:
        return f"1: the target was reached ({formula} {AS_PUBLISHED})"
    missed = quality.penalty < 1
    return f"{formula}, {'a penalty for quality below the target' if missed else 'at the target'}"


def rules(work: WorkScore | None) -> str:
    """Return the rules by which operations were counted, or the source that declared them."""
    if work is None:
        return "operations not known"
    if work.source != "counted":
        return f"operations declared: {work.detail}"
    return f"rules {work.rules}/{work.rules_version}"


def executed_work(work: WorkScore) -> str:
    """Return the operations per sample: by its rules and, if they differ, as executed."""
    counted = f"{quantity(work.ops_total, 'FLOP')} per sample ({rules(work)})"
    if work.ops_executed in (None, work.ops_total):
        return counted
    return f"{counted}, {quantity(work.ops_executed, 'FLOP')} executed"


def uncounted(work: WorkScore, most: int | None = None) -> str:
    """Return the operators that the rules do not count, at most ``most`` of them by name."""
    named = work.uncounted[:most]
    names = [f"{operator.op} ×{operator.nodes}" for operator in named]
    if len(named) < len(work.uncounted):
        names.append(f"{len(work.uncounted) - len(named)} more")
    if any(operator.foreign for operator in work.uncounted):
        share = "an unknown share of the executed operations"
    elif work.uncounted_share:
        share = f"{percent(work.uncounted_share)} of the executed operations"
    else:
        share = "0 % of the executed operations, which are convolutions and matrix products"
    return f"{', '.join(names)}: {share}"


def mfu(score: MfuScore) -> str:
    """Return the model FLOPS utilisation (MFU) with its ceiling and the executed FLOPS."""
    if score.value is None:
        return f"— ({score.reason})"
    ceiling = quantity(score.ceiling_flops, "FLOPS")
    return (
        f"{percent(score.value)} of {ceiling} "
        f"({score.ceiling}; executed: {quantity(score.flops, 'FLOPS')})"
    )


def power(score: PowerScore) -> str:
    """Return the mean power and the parts that it includes, or why it was not measured."""
    if score.power_w is None:
        return f"{NOT_MEASURED} ({score.reason})"
    text = f"{quantity(score.power_w, 'W')} mean ({', '.join(score.includes)})"
    if score.shared_with:
        jobs = numbers(score.shared_with)
        text += f", from sensors shared with job{'s' if len(score.shared_with) > 1 else ''} {jobs}"
    return text


def offset(seconds_off: float) -> str:
    """Return a difference between clocks with microseconds."""
    if abs(seconds_off) >= 1:
        return f"{seconds_off:.3f} s"
    return f"{seconds_off * 1e3:.3f} ms"


def clock(node: NodeScore) -> str:
    """Return the offset of a node's clock from the controller's, or why it is not known."""
    if node.offset_s is None or node.uncertainty_s is None:
        return f"unknown: {node.fault}"
    if not node.uncertainty_s:
        return "the controller's clock"
    sign = "+" if node.offset_s >= 0 else ""
    return f"{sign}{offset(node.offset_s)} ± {offset(node.uncertainty_s)}"


def numbers(values: Sequence[int]) -> str:
    """Return numbers as text, with consecutive ones as ranges: ``1–4, 7``."""
    ranges: list[list[int]] = []
    for value in sorted(values):
        if ranges and value == ranges[-1][-1] + 1:
            ranges[-1].append(value)
        else:
            ranges.append([value])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in ranges)


def nodes_named(score: NodesNamed) -> str:
    """Return the nodes that are slow or noisy, if any, or why that is not known."""
    if score.reason is not None:
        return f"cannot tell which are slow or noisy: {score.reason}"
    if not score.named:
        return f"none of {score.places} slow or noisy beyond chance"
    texts = []
    for node in score.named:
        by = percent(node.excess)
        how = f"by {by}" if node.trait == "slow" else f"times spread by {by} more than elsewhere"
        texts.append(f"{', '.join(node.nodes)} {node.trait}, {how} (jobs {numbers(node.jobs)})")
    return "; ".join(texts)


def twins(score: TwinsScore, quality: str) -> str:
    """Return how many pairs agree, how the others differ, and which nodes are suspect."""
    agree = [pair for pair in score.pairs if pair.verdict == "agree"]
    texts = [f"{len(agree)} of {count(len(score.pairs), 'pair')} agree"]
    on_one_node = sum(pair.one_node for pair in agree)
    if on_one_node:
        texts.append(f"{on_one_node} of them on one node, so not compared with another")
    texts += [twin_pair(pair, quality) for pair in score.pairs if pair.verdict != "agree"]
    if score.suspects:
        texts.append(f"suspect: {', '.join(score.suspects)}")
    return "; ".join(texts)


def twin_pair(pair: TwinPair, quality: str) -> str:
    """Return which two models do not agree, on which nodes, and from which epoch on."""
    where = " and ".join(" + ".join(nodes) or "an unknown node" for nodes in pair.nodes)
    models = f"models {pair.models[0] + 1} and {pair.models[1] + 1} ({where})"
    if pair.verdict == "cannot tell":
        return f"{models} cannot be compared: {pair.reason}"
    if pair.epoch is None:
        return f"{models} differ in their trained weights, but in no evaluation"
    by = "" if pair.difference is None else f", by {abs(pair.difference):.3g} {quality}"
    return f"{models} differ from epoch {number(pair.epoch)} on{by}"


def rate(per_s: float | None, unit: str = "samples/s") -> str:
    """Return samples or tokens per second, without an SI prefix: ``7,081 samples/s``."""
    if per_s is None:
        return "—"
    if per_s < 100:
        return quantity(per_s, unit)
    return f"{per_s:,.0f} {unit}"


def throughput(training: TrainingScore) -> str:
    """Return the speed in units of a sample, such as tokens, and in samples."""
    speed, unit = training.speed, training.unit
    samples = rate(speed.samples_per_s if speed else None)
    if speed is None or unit is None:
        return samples
    return f"{rate(speed.units_per_s, f'{unit.name}/s')} ({samples} of {unit.count:,} {unit.name})"


def loss(score: LossScore) -> str:
    """Return the loss behind a quality: perplexity, bits per byte, its target and its floor."""
    if score.value is None:
        return "infinite"
    parts = [f"{number(score.value)} nats per {score.unit}"]
    if score.perplexity is not None:
        parts.append(f"perplexity {number(score.perplexity)}")
    if score.bits_per_byte is not None:
        parts.append(f"{number(score.bits_per_byte)} bits per byte")
    text = f"{', '.join(parts)} (target {number(score.target)}"
    if score.floor is None:
        return f"{text})"
    return f"{text}; the source of the text itself: {number(score.floor)})"


def short_loss(score: LossScore | None) -> list[str]:
    """Return the loss with its target and its floor, and the perplexity; nothing if unknown."""
    if score is None or score.value is None or score.perplexity is None:
        return []
    floor = "" if score.floor is None else f", floor {number(score.floor)}"
    loss = f"loss {number(score.value)} (target {number(score.target)}{floor})"
    return [f"{loss}, perplexity {number(score.perplexity)}"]


def vendor(score: MfuScore) -> str:
    """Return the share of the peak in the vendor's data sheet, or why it is not known."""
    if score.vendor is None:
        return f"— ({score.vendor_reason})" if score.vendor_reason else "—"
    peak = quantity(score.vendor.flops, "FLOPS")
    return f"{percent(score.vendor.value)} of {peak} ({score.vendor.source})"


def convention_share(score: ConventionScore) -> str:
    """Return the speed by a counting convention and its shares of both peaks."""
    shares = [f"{percent(score.mfu)} of the measured ceiling"] if score.mfu is not None else []
    if score.mfu_vendor is not None:
        shares.append(f"{percent(score.mfu_vendor)} of the vendor's peak")
    return ", ".join([quantity(score.flops, "FLOPS"), *shares])


DATA_TEXTS: dict[DataKind, str] = {
    "real": "real data",
    "synthetic": "synthetic data: not comparable with real data",
    "unknown": "unknown data: the command reads its own; name it with --data to have it hashed",
}


def data(training: TrainingScore) -> str:
    """Return whether the data is real or synthetic, and how many samples were left out."""
    kind = DATA_TEXTS[data_kind(training.synthetic)]
    return kind + (f"; {training.skipped:,} unreadable left out" if training.skipped else "")


def data_facts(training: TrainingScore) -> str:
    """Return facts about the data, such as sizes, classes and split."""
    return ", ".join(
        f"{name} {number(value) if isinstance(value, float) else value}"
        for name, value in training.data_facts.items()
    )


def budget(training: TrainingScore) -> str:
    """Return the wall time and how it divides into phases."""
    spent = [
        f"{phase} {seconds(training.phases[phase])} ({percent(share, digits=0)})"
        for phase in PHASES
        if (share := training.phases.get(phase, 0.0) / (training.wall_s or 1.0)) > 0
    ]
    return f"{seconds(training.wall_s)}: " + ", ".join(spent)


def spread(score: Spread | None, unit: str | None, repeats: int) -> tuple[str, str]:
    """Return the mean over ``repeats`` with its confidence interval, and their variation."""
    if score is None:
        return "—", "—"
    mean, margin = (_value(value, unit) for value in (score.mean, _margin(score, repeats)))
    return f"{mean} ± {margin}", percent(score.variation, digits=2)


def interval(score: Spread, unit: str | None, repeats: int) -> str:
    """Return how far the confidence interval of a mean extends: ``± 3 MFLOPS at 95 %``."""
    return f"± {_value(_margin(score, repeats), unit)} at {percent(CONFIDENCE, digits=0)}"


def _margin(score: Spread, repeats: int) -> float:
    deviation = score.variation * abs(score.mean)
    return margin_of_mean(deviation, repeats, level=CONFIDENCE)


def _value(value: float, unit: str | None) -> str:
    if unit == "s":
        return seconds(value)
    return quantity(value, unit) if unit else number(value)


def mean_speed(repeat: RepeatScore) -> str:
    """Return the mean of the valid FLOPS, which rankings use, with its interval and variation.

    For an open task, return the mean of FLOPS.
    """
    is_open = repeat.task == "open"
    score, unit = (repeat.flops, "FLOPS") if is_open else (repeat.vflops_capped, "VFLOPS")
    if score is None:
        return f"no mean of {seeds(repeat)}"
    published = repeat.vflops.mean if repeat.vflops else None
    note = "" if is_open else published_flops(score.mean, published)
    mean = quantity(score.mean, unit) + (f" ({note})" if note else "")
    around = f"{interval(score, unit, repeat.complete)} confidence"
    return f"{mean}, mean of {seeds(repeat)}, {around}, CV {percent(score.variation)}"


def seeds(repeat: RepeatScore) -> str:
    """Return how many of the planned seeds, or ensembles, finished."""
    if repeat.complete == repeat.planned:
        return count(repeat.planned, repeated(repeat))
    return f"{repeat.complete} of {repeat.planned} {repeated(repeat)}s"


def repeated(repeat: RepeatScore) -> str:
    """Return what was repeated: ``seed`` for single models, or ``ensemble``."""
    return "seed" if repeat.models is None else "ensemble"


def number(value: float) -> str:
    """Return a quality or a number of epochs with at most four significant digits."""
    return f"{value:.4g}"
