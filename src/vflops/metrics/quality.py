"""Speed weighted by the quality that training reached, and the time to reach a quality."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

from vflops.metrics.arguments import (
    require_between,
    require_count,
    require_non_negative,
    require_positive,
    require_samples,
)

# The defaults of HPC AI500 V2.0 (section 4.3), which V3.0 keeps. The public ranking of 2020 is also
# of image classification, but its figures follow from 10 and not from 5
# (docs/reference/metrics.md). So the exponent has no default and is shown with every score.
EXPONENT_IMAGE_CLASSIFICATION = 5
EXPONENT_EXTREME_WEATHER = 10
EXPONENT_LANGUAGE_MODEL = 5
"""Ours: a loss of 0.02 nats above the target costs 10 %."""

Better = Literal["higher", "lower"]
"""The direction in which a quality improves: ``higher`` for accuracy, ``lower`` for error."""
Bounds = tuple[float, float]
"""The lowest and the highest possible value of a quality; infinite where there is no limit."""

_SHARE_WORDS = frozenset(
    "acc accuracy ap auc auprc auroc dice fbeta iou jaccard map miou precision recall "
    "sensitivity specificity".split()
)
_ERROR_RATE = re.compile("((val|validation|test) )?(error|err|misclassification)( rate)?")
"""Complete names only: a squared error or a word error rate is not limited to 1."""
_TOP_K = re.compile(r"\btop ?\d")
_F_SCORE = re.compile(r"\bf ?\d")


def default_bounds(name: str) -> Bounds | None:
    """Return 0 and 1 for a quality that is a share by its name; None if its bounds are not known.

    Shares are accuracies, precision, recall, F-scores, IoU, Dice, AUC, mAP, error rates and every
    top-k measure; case and separators do not matter.
    """
    text = " ".join(re.findall(r"[a-z]+|\d+", name.lower()))
    is_share = (
        not _SHARE_WORDS.isdisjoint(text.split())
        or _TOP_K.search(text) is not None
        or _F_SCORE.search(text) is not None
        or _ERROR_RATE.fullmatch(text) is not None
    )
    return (0.0, 1.0) if is_share else None


def bounds_fault(name: str, value: float, bounds: Bounds | None) -> str | None:
    """Return what is wrong with a quality outside of its bounds; None if it lies within them."""
    if bounds is None or bounds[0] <= value <= bounds[1]:
        return None
    low, high = bounds
    if math.isinf(high):
        return f"the {name} is {value:g}, but it is at least {low:g}"
    if math.isinf(low):
        return f"the {name} is {value:g}, but it is at most {high:g}"
    return f"the {name} is {value:g}, but it lies between {low:g} and {high:g}"


def quality_factor(
    *, achieved: float, target: float, exponent: int, better: Better = "higher"
) -> float:
    """Return the factor that weights FLOPS by quality: V3.0 eq. 8 (V2.0 eq. 2).

    (achieved / target)ⁿ is 1 at the target, less below it, more above it. The papers only define
    qualities for which higher is better. For ``better="lower"``, this project inverts the ratio,
    (target / achieved)ⁿ, which keeps all three properties.
    """
    require_positive("target", target)
    require_count("exponent", exponent, at_least=1)
    _require_direction(better)
    if better == "lower":
        require_positive("achieved", achieved)
        return float((target / achieved) ** exponent)
    require_non_negative("achieved", achieved)
    return float((achieved / target) ** exponent)


def finite_quality_factor(
    *, achieved: float, target: float, exponent: int, better: Better = "higher"
) -> float | None:
    """Return ``quality_factor``; None if it is infinite, as for an error of 0."""
    if better == "lower" and achieved == 0:
        return None
    try:
        factor = quality_factor(achieved=achieved, target=target, exponent=exponent, better=better)
    except OverflowError:
        return None
    return factor if math.isfinite(factor) else None


def capped_factor(factor: float | None) -> float:
    """Return the quality factor, but at most 1: quality above the target then adds no speed.

    The papers do not cap it. The capped factor stands beside theirs. None is an infinite factor.
    """
    if factor is None:
        return 1.0
    require_non_negative("factor", factor)
    return min(factor, 1.0)


def vflops(
    *, flops: float, achieved: float, target: float, exponent: int, better: Better = "higher"
) -> float:
    """Return valid FLOPS: V3.0 eq. 7 (V2.0 eq. 1), FLOPS × ``quality_factor``."""
    require_non_negative("flops", flops)
    return flops * quality_factor(
        achieved=achieved, target=target, exponent=exponent, better=better
    )


def regulated_score(*, flops: float, error: float) -> float:
    """Return FLOPS weighted by the validation error: AIPerf eq. 3, −ln(error) × FLOPS.

    The equation is defined for errors between 0 and 1, without 0 and 1.
    """
    require_non_negative("flops", flops)
    require_between("error", error, 0, 1)
    return _regulated(flops, error)


def regulated_score_so_far(*, flops: float, error: float | None) -> float | None:
    """Return ``regulated_score`` during a search, where the error may still be 1.

    None before the first evaluation, and for an error of 0, for which eq. 3 is not defined.
    """
    require_non_negative("flops", flops)
    return None if error is None or error <= 0 else _regulated(flops, min(error, 1.0))


def time_to_quality(
    times_s: Sequence[float],
    qualities: Sequence[float],
    *,
    target: float,
    better: Better = "higher",
) -> float | None:
    """Return the time of the first evaluation that reached ``target``; None if none did.

    ``times_s`` are the seconds from the start of training to each evaluation, in rising order.
    Nothing is interpolated between two evaluations.
    """
    require_positive("target", target)
    _require_direction(better)
    if len(times_s) != len(qualities):
        raise ValueError(
            f"times_s has length {len(times_s)} and qualities {len(qualities)}: "
            "expected one quality for each time"
        )
    require_samples("qualities", qualities, at_least=0)
    _require_increasing(times_s)
    for time_s, quality in zip(times_s, qualities, strict=True):
        if quality <= target if better == "lower" else quality >= target:
            return time_s
    return None


def _regulated(flops: float, error: float) -> float:
    return -math.log(error) * flops


def _require_increasing(times_s: Sequence[float]) -> None:
    previous_s = 0.0
    for index, time_s in enumerate(times_s):
        if not previous_s < time_s < math.inf:
            raise ValueError(
                f"times_s[{index}] is {time_s!r}: expected a finite number greater than "
                f"{previous_s!r}, the time before it"
            )
        previous_s = time_s


def _require_direction(better: str) -> None:
    if better not in ("higher", "lower"):
        raise ValueError(f"better is {better!r}: expected 'higher' or 'lower'")
