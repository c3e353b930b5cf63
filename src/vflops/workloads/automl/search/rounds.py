"""How long a candidate trains: longer in later rounds, with early stopping.

Rounds count from 0. The published program trains for 15, 30, 45 and from then on 60 epochs, with a
patience of min(6 + 2 · round, 20). A profile with another maximum scales both.
"""

from __future__ import annotations

from math import ceil

PUBLISHED_MAX_EPOCHS = 60
PUBLISHED_EPOCHS = (15, 30, 45, 60)


def epochs(round: int, max_epochs: int = PUBLISHED_MAX_EPOCHS) -> int:
    """Return the epochs of a candidate in ``round``; from round 3 on, ``max_epochs``."""
    _check_arguments(round, max_epochs)
    published = PUBLISHED_EPOCHS[min(round, len(PUBLISHED_EPOCHS) - 1)]
    return ceil(published * max_epochs / PUBLISHED_MAX_EPOCHS)


def patience(round: int, max_epochs: int = PUBLISHED_MAX_EPOCHS) -> int:
    """Return the epochs without improvement after which a candidate in ``round`` stops."""
    _check_arguments(round, max_epochs)
    return ceil(min(6 + 2 * round, 20) * max_epochs / PUBLISHED_MAX_EPOCHS)


def patience_evaluations(round: int, max_epochs: int, evaluate_every: int) -> int:
    """Return the patience in evaluations, one every ``evaluate_every`` epochs."""
    return ceil(patience(round, max_epochs) / evaluate_every)


def _check_arguments(round: int, max_epochs: int) -> None:
    if round < 0 or max_epochs < 1:
        raise ValueError(f"round {round}, max_epochs {max_epochs}: expected at least 0 and 1")
