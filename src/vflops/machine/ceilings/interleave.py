"""Taking turns between queues, so that a search that runs out of time has tried every kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def interleave(*queues: Iterable[T]) -> Iterator[T]:
    """Yield the first of every queue, then the second of every queue that has one, and so on."""
    waiting = [iter(queue) for queue in queues]
    while waiting:
        going_on = []
        for queue in waiting:
            for entry in queue:
                yield entry
                going_on.append(queue)
                break
        waiting = going_on
