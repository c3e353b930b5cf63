"""The figures of a training as people write them: each with its unit and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.record.formats.job import PHASES
from vflops.results.score.node_outliers import NodesNamed
from vflops.results.score.score_file import (
    MfuScore,
    NodeScore,
    PowerScore,
    QualityScore,
    RepeatScore,
    Spread,
    TrainingScore,
    WorkScore,
)
from vflops.results.score.twins import TwinPair, TwinsScore
from vflops.units import percent, quantity, seconds

NOT_REACHED = "not reached"
NOT_MEASURED = "power not measured"
FACTOR = "quality factor"
"""What FLOPS are multiplied with: a penalty below the target, a reward above it."""


def result(training: TrainingScore) -> tuple[str, str, str]:
    """What a training came to: its quality, its valid FLOPS, and when it reached the target."""
    if not training.complete:
        return achieved(training.quality), "", how_far(training)
    return achieved(training.quality), speed(training), reached(training.quality)


def how_far(training: TrainingScore) -> str:
    """Where a training stands that has not ended."""
    if not training.attempts:
        return "has not begun"
    return f"has not ended: epoch {training.epochs:.2f} after {seconds(training.wall_s)}"


def speed(training: TrainingScore) -> str:
    """FLOPS, the factor that quality puts on them, and what that gives."""
    found, factor = training.speed, training.quality.penalty
    if found is None or factor is None:
        return ""
    made = f"{quantity(found.flops, 'FLOPS')} × {FACTOR} {factor:.3g}"
    return f"{made} = {vflops(training)}"


def vflops(training: TrainingScore) -> str:
    """Valid FLOPS, or nothing where there are none."""
    speed = training.speed
    return quantity(speed.vflops, "VFLOPS") if speed and speed.vflops is not None else ""


def achieved(quality: QualityScore) -> str:
    """The quality beside its target."""
    what = "no" if quality.achieved is None else number(quality.achieved)
    apart = "" if quality.tested is None else f"; {number(quality.tested)} on the test set"
    return f"{what} {quality.name} ({target(quality)}{apart})"


def target(quality: QualityScore) -> str:
    """The target, with the profile's own where that is another."""
    text = f"target {quality.target:g}"
    if quality.profile_target not in (None, quality.target):
        text += f", not the profile's {quality.profile_target:g}"
    return text


def reached(quality: QualityScore) -> str:
    """When the target was reached, or that it was not."""
    if quality.time_to_quality_s is None:
        return f"target {NOT_REACHED}"
    return f"reached after {seconds(quality.time_to_quality_s)}"


def time_to_quality(quality: QualityScore) -> str:
    """The time to the target with its epoch, or that it was not reached."""
    if quality.time_to_quality_s is None:
        return NOT_REACHED
    return f"{seconds(quality.time_to_quality_s)}, epoch {quality.epochs_to_quality:g}"


def factor(quality: QualityScore) -> str:
    """The factor with what it is made of, so that a reader can make it again, and what it is."""
    if quality.penalty is None or quality.achieved is None:
        return "no evaluation"
    above, below = number(quality.achieved), f"{quality.target:g}"
    if quality.better == "lower":
        above, below = below, above
    made = f"{quality.penalty:.4g} = ({above} / {below})^{quality.exponent}"
    defined = ", as the paper defines it" if quality.penalty > 1 else ""
    return f"{made}, {verdict(quality)}{defined}"


def verdict(quality: QualityScore) -> str:
    """What the factor is to a reader."""
    if quality.penalty is None or quality.penalty == 1:
        return "neither a reward nor a penalty"
    if quality.penalty > 1:
        return "a reward for quality above the target"
    return "a penalty for quality below the target"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 seed``, ``2 seeds``; ``many`` where the plural has more than an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def rules(work: WorkScore | None) -> str:
    """Whose count of operations it is."""
    if work is None:
        return "operations not known"
    if work.source != "counted":
        return f"operations declared: {work.detail}"
    return f"rules {work.rules}/{work.rules_version}"


def mfu(found: MfuScore) -> str:
    """MFU, and which ceiling it is the share of."""
    if found.value is None:
        return f"— ({found.reason})"
    return f"{percent(found.value)} of {quantity(found.ceiling_flops, 'FLOPS')} ({found.ceiling})"


def power(found: PowerScore) -> str:
    """Mean power and of what, or why there is none."""
    if found.power_w is None:
        return f"{NOT_MEASURED} ({found.reason})"
    told = f"{quantity(found.power_w, 'W')} mean ({', '.join(found.includes)})"
    if found.shared_with:
        jobs = numbers(found.shared_with)
        told += f", of sensors shared with job{'s' if len(found.shared_with) > 1 else ''} {jobs}"
    return told


def offset(seconds_off: float) -> str:
    """A difference between clocks, to the microsecond."""
    if abs(seconds_off) >= 1:
        return f"{seconds_off:.3f} s"
    return f"{seconds_off * 1e3:.3f} ms"


def clock(node: NodeScore) -> str:
    """How far a node's clock was from the controller's, or why that is not known."""
    if node.offset_s is None or node.uncertainty_s is None:
        return f"not known: {node.fault}"
    if not node.uncertainty_s:
        return "the controller's own"
    sign = "+" if node.offset_s >= 0 else ""
    return f"{sign}{offset(node.offset_s)} ± {offset(node.uncertainty_s)}"


def numbers(found: Sequence[int]) -> str:
    """Numbers in a row as ranges: ``1–4, 7``."""
    runs: list[list[int]] = []
    for each in sorted(found):
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def nodes_named(found: NodesNamed) -> str:
    """Which nodes stand out, or that none does, or why that cannot be told."""
    if found.reason is not None:
        return f"cannot tell which are slow or noisy: {found.reason}"
    if not found.named:
        return f"none of {found.places} slow or noisy beyond chance"
    told = []
    for each in found.named:
        by = percent(each.excess)
        how = f"by {by}" if each.trait == "slow" else f"times spread by {by} more than elsewhere"
        told.append(f"{', '.join(each.nodes)} {each.trait}, {how} (jobs {numbers(each.jobs)})")
    return "; ".join(told)


def twins(found: TwinsScore, quality: str) -> str:
    """How many pairs agree, what is known of the others, and whom that points to."""
    agree = [pair for pair in found.pairs if pair.verdict == "agree"]
    told = [f"{len(agree)} of {count(len(found.pairs), 'pair')} agree"]
    near = sum(pair.one_node for pair in agree)
    if near:
        told.append(f"{near} of them on one node: it is not compared with another")
    told += [twin_pair(pair, quality) for pair in found.pairs if pair.verdict != "agree"]
    if found.suspects:
        told.append(f"suspect: {', '.join(found.suspects)}")
    return "; ".join(told)


def twin_pair(pair: TwinPair, quality: str) -> str:
    """A pair that does not agree: where it was, and from when on it differs."""
    where = " and ".join(" + ".join(nodes) or "an unknown node" for nodes in pair.nodes)
    pair_of = f"models {pair.models[0] + 1} and {pair.models[1] + 1} ({where})"
    if pair.verdict == "cannot tell":
        return f"{pair_of} cannot be told: {pair.reason}"
    if pair.epoch is None:
        return f"{pair_of} differ in their trained weights, and in no evaluation"
    by = "" if pair.difference is None else f", by {abs(pair.difference):.3g} {quality}"
    return f"{pair_of} differ from epoch {number(pair.epoch)} on{by}"


def rate(samples_per_s: float | None) -> str:
    """Samples a second, with thousands as such: ``7,081 samples/s``."""
    if samples_per_s is None:
        return "—"
    if samples_per_s < 100:
        return quantity(samples_per_s, "samples/s")
    return f"{samples_per_s:,.0f} samples/s"


def data(training: TrainingScore) -> str:
    """Where the samples come from; synthetic data is marked."""
    kind = "synthetic data: not comparable with real data" if training.synthetic else "real data"
    return kind + (f"; {training.skipped:,} unreadable left out" if training.skipped else "")


def data_facts(training: TrainingScore) -> str:
    """What is known of the data: sizes, classes, which split."""
    return ", ".join(f"{name} {value}" for name, value in training.data_facts.items())


def budget(training: TrainingScore) -> str:
    """The wall time, and the phases that it went to."""
    spent = [
        f"{phase} {seconds(training.phases[phase])} ({percent(share, digits=0)})"
        for phase in PHASES
        if (share := training.phases.get(phase, 0.0) / (training.wall_s or 1.0)) > 0
    ]
    return f"{seconds(training.wall_s)}: " + ", ".join(spent)


def spread(found: Spread | None, unit: str | None) -> tuple[str, str]:
    """Mean and coefficient of variation of repeated trainings."""
    if found is None:
        return "—", "—"
    mean = quantity(found.mean, unit) if unit else number(found.mean)
    return mean, percent(found.variation, digits=2)


def mean_vflops(repeat: RepeatScore) -> str:
    """The figure that ranks, of what, and how far its parts are apart."""
    found = repeat.vflops
    if found is None:
        return f"no mean of {seeds(repeat)}"
    mean = quantity(found.mean, "VFLOPS")
    return f"{mean}, mean of {seeds(repeat)}, CV {percent(found.variation)}"


def seeds(repeat: RepeatScore) -> str:
    """How many seeds a figure is of: those that ended, of those that were planned."""
    if repeat.complete == repeat.planned:
        return count(repeat.planned, "seed")
    return f"{repeat.complete} of {repeat.planned} seeds"


def number(value: float) -> str:
    """A quality or a count of epochs: four significant digits, no more than it has."""
    return f"{value:.4g}"
