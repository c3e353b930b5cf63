"""Interleaves queues, so that a search that runs out of time has tried every kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def interleave(*queues: Iterable[T]) -> Iterator[T]:
    """Yield the first entry of each queue, then the second entry of each queue, and so on."""
    waiting = [iter(queue) for queue in queues]
    while waiting:
        remaining = []
        for queue in waiting:
            for entry in queue:
                yield entry
                remaining.append(queue)
                break
        waiting = remaining
