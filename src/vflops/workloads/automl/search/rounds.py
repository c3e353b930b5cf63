"""How long a candidate trains: longer in later rounds, with early stopping.

Rounds count from 0. The published program trains for 15, 30, 45, 60 epochs and no more, with a
patience of min(6 + 2 · round, 20); a profile with another maximum scales both.
"""

from __future__ import annotations

from math import ceil

PUBLISHED_MOST = 60
PUBLISHED_EPOCHS = (15, 30, 45, 60)


def epochs(round: int, most: int = PUBLISHED_MOST) -> int:
    """Return the epochs of a candidate in ``round``; later rounds train ``most`` epochs."""
    _check(round, most)
    published = PUBLISHED_EPOCHS[min(round, len(PUBLISHED_EPOCHS) - 1)]
    return ceil(published * most / PUBLISHED_MOST)


def patience(round: int, most: int = PUBLISHED_MOST) -> int:
    """Return the epochs without improvement after which a candidate in ``round`` stops."""
    _check(round, most)
    return ceil(min(6 + 2 * round, 20) * most / PUBLISHED_MOST)


def _check(round: int, most: int) -> None:
    if round < 0 or most < 1:
        raise ValueError(f"round {round} of at most {most} epochs: expected ≥ 0 and ≥ 1")
