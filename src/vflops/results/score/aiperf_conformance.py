"""AIPerf's rules: whether a search is a valid result, and how it deviates from the paper.

A search that breaks a rule is still scored, and the score lists the broken rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.score_file import AiperfVerdict, Deviation
from vflops.results.task.published_data import IMAGENET, data_fault
from vflops.units import seconds
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.image_classification.settings import ResNetSettings

MIN_DURATION_S = 3600.0
MAX_ERROR, MAX_ERROR_IN_TEXT = 0.3, 0.35
"""The error limits of the paper's table IV and of its text; a setting chooses between them."""
_ROUNDING = 1e-9
"""Tolerance of errors, because 1 − 0.7 is slightly more than 0.3 in floating point."""
_CLOCK_S = 1.0
"""The largest difference between two clocks over an hour."""
_RULES = "aiperf"
AT_LEAST_16_BITS = ("fp16", "bf16", "tf32", "fp32", "fp64")
"""Precisions of at least 16 bits, by the names of their ceilings."""
_RESNET50 = (3, 4, 6, 3)
_TUNE_FROM = 5
_PIXELS = 224
_RECIPE: dict[str, object] = {
    "optimizer": "sgd",
    "momentum": 0.9,
    "nesterov": False,
    "learning_rate": 0.1,
    "linear_scaling": False,
    "schedule": "polynomial",
}
"""The defaults of table IV: SGD with momentum and a learning rate falling linearly from 0.1."""


@dataclass(frozen=True)
class Facts:
    """The facts about a search that the rules check."""

    settings: AutomlSettings
    members: Sequence[TrainedJob]
    candidates: Sequence[CandidateHistory]
    rules: str
    durations_s: Mapping[int, float]
    """The duration of each worker that was not lost, by worker number from 1."""
    error: float | None
    ended: bool


@dataclass(frozen=True)
class ValidityRule:
    """A rule for valid results. ``broken`` returns the reason if it is not met, else None."""

    id: str
    title: str
    broken: Callable[[Facts], str | None]


def _search(facts: Facts) -> str | None:
    return "it is a replay: nothing was searched" if facts.settings.search.ledger else None


def _ended(facts: Facts) -> str | None:
    return None if facts.ended else "it has not come to its end"


def _hour(facts: Facts) -> str | None:
    """Check each worker separately: two workers in sequence do not make a longer search."""
    durations_s = facts.durations_s or {1: 0.0}
    short_s = {
        worker: duration_s
        for worker, duration_s in durations_s.items()
        if duration_s < MIN_DURATION_S - _CLOCK_S
    }
    if not short_s:
        return None
    worker, shortest_s = min(short_s.items(), key=lambda item: item[1])
    took = f"worker {worker} took {seconds(shortest_s)}"
    if len(facts.members) == 1:
        took = f"it took {seconds(shortest_s)}"
    elif len(short_s) == len(durations_s):
        took = f"no worker took longer than {seconds(max(short_s.values()))}"
    return f"{took}, and a result takes 1 hour at least"


def _precision(facts: Facts) -> str | None:
    names = {job.started.ceiling_precision for job in facts.members if job.started}
    if not names or None in names:
        return "the record does not say in which precision it computed"
    low = sorted(name for name in names if name and name not in AT_LEAST_16_BITS)
    return f"it computed in {', '.join(low)}, and 16 bits are the least" if low else None


def _error(facts: Facts) -> str | None:
    limit = min(facts.settings.search.error, MAX_ERROR_IN_TEXT)
    if facts.error is None:
        return "no model was evaluated"
    if facts.error > limit + _ROUNDING:
        return f"the best error is {facts.error:.4g}, and at most {limit:g} is valid"
    return None


def _pretrained(facts: Facts) -> str | None:
    known = {history.begun.candidate for history in facts.candidates if history.trained}
    for history in facts.candidates:
        if history.begun.inherited and history.begun.parent not in known:
            return f"{history.begun.candidate} starts from weights that this search did not train"
    return None


VALIDITY: tuple[ValidityRule, ...] = (
    ValidityRule("search", "it is a search", _search),
    ValidityRule("ended", "it finished", _ended),
    ValidityRule("hour", "at least 1 hour", _hour),
    ValidityRule("precision", "at least 16 bits", _precision),
    ValidityRule("error", "the best model's error is within the limit", _error),
    ValidityRule("pretrained", "no pretrained weights", _pretrained),
)


def _requirement_deviations(facts: Facts) -> Iterator[Deviation]:
    """Yield the deviations from requirements of table IV, with the settings that conform."""
    data, network = facts.members[0].record.data, facts.settings.network
    yield _deviation("no master: workers meet in files that all of them see", None, fixed=True)
    imagenet = "--data DIR with ImageNet packed in it"
    if data.synthetic:
        yield _deviation("synthetic data in place of ImageNet", imagenet, fixed=True)
    elif fault := data_fault(data, IMAGENET):
        yield _deviation(f"other data than ImageNet: {fault}", imagenet, fixed=True)
    if not _is_resnet50(network):
        start = 'network.blocks=[3,4,6,3] network.width=64 network.stem="imagenet"'
        yield _deviation("it starts from another network than ResNet-50", start, fixed=True)


def _default_deviations(facts: Facts) -> Iterator[Deviation]:
    """Yield the deviations from the defaults of table IV, of the paper's text and its program."""
    settings, search = facts.settings, facts.settings.search
    if _is_resnet50(settings.network) and not search.v1:
        yield _deviation(
            "it starts from ResNet-50 v1.5, 24.7 GOP a sample; the paper's v1 has 23.3",
            "search.v1=true",
        )
    if settings.size != _PIXELS:
        yield _deviation(
            f"images of {settings.size} pixels, not {_PIXELS}", f"size={_PIXELS} resize=256"
        )
    if search.inherit:
        yield _deviation("candidates start from their parents' weights", "search.inherit=false")
    if settings.ordered:
        yield _deviation("proposals wait for results in a fixed order", "search.order=free")
    if search.searcher != "bayesian":
        yield _deviation(f"its searcher is {search.searcher}", "search.searcher=bayesian")
    if search.tune_from != _TUNE_FROM:
        yield _deviation(
            f"hyper-parameters are tuned from round {search.tune_from} on",
            f"search.tune_from={_TUNE_FROM}",
        )
    if search.error > MAX_ERROR:
        yield _deviation(
            f"an error of up to {min(search.error, MAX_ERROR_IN_TEXT):g} is taken for valid, as "
            f"in the paper's text; its table has {MAX_ERROR:g}",
            f"search.error={MAX_ERROR:g}",
        )
    train = settings.train.model_dump()
    different = {name: value for name, value in _RECIPE.items() if train[name] != value}
    if different:
        used = ", ".join(f"{name} {train[name]}" for name in different)
        assignments = (f"train.{name}={str(value).lower()}" for name, value in different.items())
        yield _deviation(f"another recipe of training: {used}", " ".join(assignments))
    yield _deviation("training stops early by the accuracy, not by the loss", None)
    if facts.rules != _RULES:
        yield _deviation(f"operations are counted by the rules {facts.rules}, not {_RULES}", None)


def _deviation(what: str, conforms: str | None, *, fixed: bool = False) -> Deviation:
    return Deviation(what=what, conforms=conforms, fixed=fixed)


def _is_resnet50(network: ResNetSettings) -> bool:
    return (network.blocks, network.width, network.stem) == (_RESNET50, 64, "imagenet")


def verdict(
    settings: AutomlSettings,
    members: Sequence[TrainedJob],
    candidates: Sequence[CandidateHistory],
    *,
    rules: str,
    durations_s: Mapping[int, float],
    error: float | None,
    ended: bool,
) -> AiperfVerdict:
    """Return whether a search is a valid result by AIPerf's rules, and why not otherwise."""
    facts = Facts(settings, members, candidates, rules, durations_s, error, ended)
    broken = {rule.id: reason for rule in VALIDITY if (reason := rule.broken(facts))}
    deviations = (*_requirement_deviations(facts), *_default_deviations(facts))
    return AiperfVerdict(valid=not broken, broken=broken, deviations=deviations)
