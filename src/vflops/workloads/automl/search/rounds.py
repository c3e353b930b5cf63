"""How long a candidate trains: more in later rounds, less where it stops getting better.

Rounds count from 0. The published program trains for 15, 30, 45, 60 epochs and no more, with a
patience of min(6 + 2 · round, 20); a profile with another maximum scales both.
"""

from __future__ import annotations

from math import ceil

PUBLISHED_MOST = 60
PUBLISHED_EPOCHS = (15, 30, 45, 60)


def epochs(round: int, most: int = PUBLISHED_MOST) -> int:
    """The epochs that a candidate of ``round`` trains for, of ``most`` in the last rounds."""
    _check(round, most)
    published = PUBLISHED_EPOCHS[min(round, len(PUBLISHED_EPOCHS) - 1)]
    return ceil(published * most / PUBLISHED_MOST)


def patience(round: int, most: int = PUBLISHED_MOST) -> int:
    """The epochs without anything better after which a candidate of ``round`` stops."""
    _check(round, most)
    return ceil(min(6 + 2 * round, 20) * most / PUBLISHED_MOST)


def _check(round: int, most: int) -> None:
    if round < 0 or most < 1:
        raise ValueError(f"round {round} of at most {most} epochs: expected ≥ 0 and ≥ 1")
