"""AIPerf's rules as data: what makes a search a result, and where it is another than the paper's.

A search that breaks a rule is scored all the same, and says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vflops.automl.story import Story
from vflops.score.record import AiperfVerdict, Deviation
from vflops.score.trained import Trained
from vflops.units import seconds
from vflops.workloads.automl.settings import AutomlSettings

LEAST_S = 3600.0
_CLOCK_S = 1.0
"""How far two clocks may see the same hour differently."""
_RULES = "aiperf"
_PRECISIONS = ("fp16", "bf16", "tf32", "fp32", "fp64")
"""Those of 16 bits and more."""
_RESNET50 = (3, 4, 6, 3)
_IMAGENET = (1_281_167, 50_000)
"""Samples of training and of validation."""
_TUNE_FROM = 5


@dataclass(frozen=True)
class Facts:
    """What the rules look at."""

    settings: AutomlSettings
    members: Sequence[Trained]
    candidates: Sequence[Story]
    rules: str
    duration_s: float
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
    if facts.duration_s >= LEAST_S - _CLOCK_S:
        return None
    return f"it took {seconds(facts.duration_s)}, and a result takes 1 hour at least"


def _precision(facts: Facts) -> str | None:
    names = {each.started.ceiling_precision for each in facts.members if each.started}
    if not names or None in names:
        return "the record does not say in which precision it computed"
    low = sorted(name for name in names if name and name not in _PRECISIONS)
    return f"it computed in {', '.join(low)}, and 16 bits are the least" if low else None


def _error(facts: Facts) -> str | None:
    limit = facts.settings.search.error
    if facts.error is None:
        return "no model was evaluated"
    if facts.error > limit:
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


def _deviations(facts: Facts) -> Iterator[tuple[str, str | None]]:
    """From the fixed part of table IV, each with the setting that conforms."""
    settings, data = facts.settings, facts.members[0].record.data
    network, search = settings.network, settings.search
    yield "no master: workers meet in files that all of them see", None
    if search.inherit:
        yield "candidates start from their parents' weights", "search.inherit=false"
    if data.synthetic:
        yield "synthetic data in place of ImageNet", "--data DIR with ImageNet packed in it"
    elif (data.train, data.validation) != _IMAGENET:
        yield "other data than ImageNet", "--data DIR with ImageNet packed in it"
    if (network.blocks, network.width, network.stem) != (_RESNET50, 64, "imagenet"):
        start = 'network.blocks=[3,4,6,3] network.width=64 network.stem="imagenet"'
        yield "it starts from a smaller network than ResNet-50", start
    if search.searcher != "bayesian":
        yield f"its searcher is {search.searcher}", "search.searcher=bayesian"
    if search.tune_from != _TUNE_FROM:
        yield (
            f"hyper-parameters are tuned from round {search.tune_from} on",
            f"search.tune_from={_TUNE_FROM}",
        )
    if facts.rules != _RULES:
        yield f"operations are counted by the rules {facts.rules}, not {_RULES}", None


def verdict(
    settings: AutomlSettings,
    members: Sequence[Trained],
    candidates: Sequence[Story],
    *,
    rules: str,
    duration_s: float,
    error: float | None,
    ended: bool,
) -> AiperfVerdict:
    """Whether a search is a result by AIPerf's rules, and if not why."""
    facts = Facts(settings, members, candidates, rules, duration_s, error, ended)
    reasons = tuple(reason for rule in VALIDITY if (reason := rule.broken(facts)))
    return AiperfVerdict(
        valid=not reasons,
        reasons=reasons,
        deviations=tuple(Deviation(what=a, conforms=b) for a, b in _deviations(facts)),
    )
