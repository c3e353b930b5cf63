"""AIPerf's rules as data: what makes a search a result, and where it is another than the paper's.

A search that breaks a rule is scored all the same, and says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.score_file import AiperfVerdict, Deviation
from vflops.units import seconds
from vflops.workloads.automl.candidate_history import CandidateHistory
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.image_classification.settings import ResNetSettings

LEAST_S = 3600.0
MOST_ERROR, MOST_ERROR_OF_TEXT = 0.3, 0.35
"""Of a valid result: by the paper's table IV, and by its text; a setting chooses between them."""
_ROUNDING = 1e-9
"""1 − 0.7 is a little more than 0.3."""
_CLOCK_S = 1.0
"""How far two clocks may see the same hour differently."""
_RULES = "aiperf"
SIXTEEN_BITS = ("fp16", "bf16", "tf32", "fp32", "fp64")
"""Precisions of 16 bits and more, by the names of their ceilings."""
_RESNET50 = (3, 4, 6, 3)
_IMAGENET = (1_281_167, 50_000)
"""Samples of training and of validation."""
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
"""The defaults of table IV: SGD with momentum, a rate that falls from 0.1 in a line."""


@dataclass(frozen=True)
class Facts:
    """What the rules look at."""

    settings: AutomlSettings
    members: Sequence[TrainedJob]
    candidates: Sequence[CandidateHistory]
    rules: str
    durations_s: Mapping[int, float]
    """Of each worker that did not die for good, by its number from 1."""
    error: float | None
    ended: bool


@dataclass(frozen=True)
class ValidityRule:
    """A rule that a result must meet; ``broken`` gives the reason where it does not."""

    id: str
    title: str
    broken: Callable[[Facts], str | None]


def _search(facts: Facts) -> str | None:
    return "it is a replay: nothing was searched" if facts.settings.search.ledger else None


def _ended(facts: Facts) -> str | None:
    return None if facts.ended else "it has not come to its end"


def _hour(facts: Facts) -> str | None:
    """Each worker's own: two that come one after the other are no longer search than one."""
    owns_s = facts.durations_s or {1: 0.0}
    short_s = {who: own_s for who, own_s in owns_s.items() if own_s < LEAST_S - _CLOCK_S}
    if not short_s:
        return None
    worker, least_s = min(short_s.items(), key=lambda each: each[1])
    told = f"worker {worker} took {seconds(least_s)}"
    if len(facts.members) == 1:
        told = f"it took {seconds(least_s)}"
    elif len(short_s) == len(owns_s):
        told = f"no worker took longer than {seconds(max(short_s.values()))}"
    return f"{told}, and a result takes 1 hour at least"


def _precision(facts: Facts) -> str | None:
    names = {each.started.ceiling_precision for each in facts.members if each.started}
    if not names or None in names:
        return "the record does not say in which precision it computed"
    low = sorted(name for name in names if name and name not in SIXTEEN_BITS)
    return f"it computed in {', '.join(low)}, and 16 bits are the least" if low else None


def _error(facts: Facts) -> str | None:
    limit = min(facts.settings.search.error, MOST_ERROR_OF_TEXT)
    if facts.error is None:
        return "no model was evaluated"
    if facts.error > limit + _ROUNDING:
        return f"the best error is {facts.error:.4g}, and at most {limit:g} is valid"
    return None


def _pretrained(facts: Facts) -> str | None:
    known = {each.begun.candidate for each in facts.candidates if each.trained}
    for each in facts.candidates:
        if each.begun.inherited and each.begun.parent not in known:
            return f"{each.begun.candidate} starts from weights that this search did not train"
    return None


VALIDITY: tuple[ValidityRule, ...] = (
    ValidityRule("search", "it searched", _search),
    ValidityRule("ended", "it came to its end", _ended),
    ValidityRule("hour", "at least 1 hour", _hour),
    ValidityRule("precision", "at least 16 bits", _precision),
    ValidityRule("error", "the best model's error is within the limit", _error),
    ValidityRule("pretrained", "no pretrained weights", _pretrained),
)


def _fixed(facts: Facts) -> Iterator[Deviation]:
    """From what table IV fixes, each with the setting that conforms."""
    data, network = facts.members[0].record.data, facts.settings.network
    yield _unlike("no master: workers meet in files that all of them see", None, fixed=True)
    imagenet = "--data DIR with ImageNet packed in it"
    if data.synthetic:
        yield _unlike("synthetic data in place of ImageNet", imagenet, fixed=True)
    elif (data.train, data.validation) != _IMAGENET:
        yield _unlike("other data than ImageNet", imagenet, fixed=True)
    if not _is_resnet50(network):
        start = 'network.blocks=[3,4,6,3] network.width=64 network.stem="imagenet"'
        yield _unlike("it starts from another network than ResNet-50", start, fixed=True)


def _usual(facts: Facts) -> Iterator[Deviation]:
    """From the defaults of table IV, the text of the paper and its program."""
    settings, search = facts.settings, facts.settings.search
    if _is_resnet50(settings.network) and not search.v1:
        yield _unlike(
            "it starts from ResNet-50 v1.5, 24.7 GOP a sample; the paper's v1 has 23.3",
            "search.v1=true",
        )
    if settings.size != _PIXELS:
        yield _unlike(
            f"images of {settings.size} pixels, not {_PIXELS}", f"size={_PIXELS} resize=256"
        )
    if search.inherit:
        yield _unlike("candidates start from their parents' weights", "search.inherit=false")
    if settings.ordered:
        yield _unlike("proposals wait for results in a fixed order", "search.order=free")
    if search.searcher != "bayesian":
        yield _unlike(f"its searcher is {search.searcher}", "search.searcher=bayesian")
    if search.tune_from != _TUNE_FROM:
        yield _unlike(
            f"hyper-parameters are tuned from round {search.tune_from} on",
            f"search.tune_from={_TUNE_FROM}",
        )
    if search.error > MOST_ERROR:
        yield _unlike(
            f"an error of up to {min(search.error, MOST_ERROR_OF_TEXT):g} is taken for valid, as "
            f"in the paper's text; its table has {MOST_ERROR:g}",
            f"search.error={MOST_ERROR:g}",
        )
    own = settings.train.model_dump()
    other = {name: value for name, value in _RECIPE.items() if own[name] != value}
    if other:
        told = ", ".join(f"{name} {own[name]}" for name in other)
        words = (f"train.{name}={str(value).lower()}" for name, value in other.items())
        yield _unlike(f"another recipe of training: {told}", " ".join(words))
    yield _unlike("training stops early by the accuracy, not by the loss", None)
    if facts.rules != _RULES:
        yield _unlike(f"operations are counted by the rules {facts.rules}, not {_RULES}", None)


def _unlike(what: str, conforms: str | None, *, fixed: bool = False) -> Deviation:
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
    """Whether a search is a result by AIPerf's rules, and if not why."""
    facts = Facts(settings, members, candidates, rules, durations_s, error, ended)
    broken = {rule.id: reason for rule in VALIDITY if (reason := rule.broken(facts))}
    deviations = (*_fixed(facts), *_usual(facts))
    return AiperfVerdict(valid=not broken, broken=broken, deviations=deviations)
