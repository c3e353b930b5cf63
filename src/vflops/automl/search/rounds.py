"""How long a candidate trains: more in later rounds, less where it stops getting better.

Rounds count from 0. The published program trains for 15, 30, 45, 60 epochs and no more, with a
patience of min(6 + 2 · round, 20); a profile with another maximum scales both.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

PUBLISHED_MOST = 60
PUBLISHED_EPOCHS = (15, 30, 45, 60)
FIRST_TUNED_ROUND = 4
"""Hyper-parameters are tuned from the fifth round on, as the paper has it."""


def epochs(round: int, most: int = PUBLISHED_MOST) -> int:
    """The epochs that a candidate of ``round`` trains for, of ``most`` in the last rounds."""
    _check(round, most)
    published = PUBLISHED_EPOCHS[min(round, len(PUBLISHED_EPOCHS) - 1)]
    return ceil(published * most / PUBLISHED_MOST)


def patience(round: int, most: int = PUBLISHED_MOST) -> int:
    """The epochs without anything better after which a candidate of ``round`` stops."""
    _check(round, most)
    return ceil(min(6 + 2 * round, 20) * most / PUBLISHED_MOST)


def should_stop(
    history: Sequence[float], patience: int, *, maximise: bool = False, least: float = 0.0
) -> bool:
    """Whether the last ``patience`` values of ``history`` brought nothing better than before.

    The history is a validation loss by epoch or, with ``maximise``, an accuracy. Better means by
    more than ``least``; what is not a number is not better.
    """
    if patience < 1:
        raise ValueError(f"patience is {patience}: expected 1 or more")
    best, since = float("inf"), 0
    for value in history:
        loss = -value if maximise else value
        if loss < best - least:
            best, since = loss, 0
        else:
            since += 1
    return since >= patience


def is_warm_up(round: int) -> bool:
    """Whether candidates of ``round`` count by their predicted accuracy."""
    return not is_tuned(round)


def is_tuned(round: int) -> bool:
    """Whether hyper-parameters are tuned in ``round``."""
    return round >= FIRST_TUNED_ROUND


def _check(round: int, most: int) -> None:
    if round < 0 or most < 1:
        raise ValueError(f"round {round} of at most {most} epochs: expected ≥ 0 and ≥ 1")
