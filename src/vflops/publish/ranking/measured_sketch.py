"""Sketches of what a run measured, by which copies are recognised even if parts were changed.

No two runs measure the same durations to the microsecond, or the same rows of sensor readings.
Losses, qualities and weights are not used: deterministic training gives the same ones anywhere.
A sketch holds the smallest hashes of a set, so that two sketches overlap about as much as the sets.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterator
from itertools import islice, pairwise

from vflops.record.folder import History
from vflops.record.formats.node import telemetry_files
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents

SKETCH_SIZE = 32
TOKEN_LENGTH = 12
"""The length of a hash in hexadecimal digits."""
_MIN_SHARED, _MIN_SHARE = 4, 0.25
"""Two sketches are similar if they share this many hashes, and this share of the smaller one."""
_MIN_MICROSECONDS, _MAX_SECONDS = 10_000, 1e9
_MAX_FILES, _MAX_ROWS = 64, 1000
"""How many telemetry files, and how many rows of each, are read."""
_MIN_READINGS = 2
"""How many precise readings make a row that no other run has."""


def event_sketch(history: History) -> str:
    """Return a sketch of the durations in the events of all jobs."""
    logs = (log for job, logs in history.jobs.items() if job for log in logs)
    return _sketch({text.encode() for log in logs for text in _durations(log.events)})


def telemetry_sketch(contents: Contents) -> str:
    """Return a sketch of the sensor readings of all jobs, whatever their times."""
    folder = contents.folder
    files = (
        file
        for job in contents.history.jobs
        if job
        for attempt in folder.logged_attempts(job)
        for file in telemetry_files(attempt)
    )
    rows: set[bytes] = set()
    for file in islice(files, _MAX_FILES):
        telemetry = contents.telemetry(file)
        width, table = len(telemetry.header.series), telemetry.table
        for start in range(0, min(len(table), _MAX_ROWS * width), max(width, 1)):
            row = table[start : start + width]
            if sum(map(_is_precise, row)) >= _MIN_READINGS:
                rows.add(row.tobytes())
    return _sketch(rows)


def are_similar(one: str, other: str) -> bool:
    """Whether two sketches overlap so much that one run is a copy of the other."""
    a, b = tokens(one), tokens(other)
    return len(a & b) >= max(_MIN_SHARED, _MIN_SHARE * min(len(a), len(b)))


def tokens(sketch: str) -> set[str]:
    """Return the hashes of a sketch."""
    return {sketch[i : i + TOKEN_LENGTH] for i in range(0, len(sketch), TOKEN_LENGTH)}


def _sketch(items: set[bytes]) -> str:
    hashes = (hashlib.blake2b(item, digest_size=TOKEN_LENGTH // 2).hexdigest() for item in items)
    return "".join(heapq.nsmallest(SKETCH_SIZE, hashes))


def _durations(events: tuple[Event, ...]) -> Iterator[str]:
    """Yield the measured durations of one log, with what was measured."""
    for before, event in pairwise(events):
        yield from _precise(event.kind, event.time_s - before.time_s)
    for event in events:
        phases = event.data.get("phases")
        for name, value in (phases if isinstance(phases, dict) else {}).items():
            yield from _precise(f"phase {name}", value)
        for name, value in event.data.items():
            if name.endswith("_s"):
                yield from _precise(f"{event.kind} {name}", value)


def _precise(name: str, value: object) -> Iterator[str]:
    """Yield a duration, unless it is too short or too round to be unlike all others."""
    if isinstance(value, float) and abs(value) < _MAX_SECONDS:
        microseconds = round(value * 1e6)
        if microseconds >= _MIN_MICROSECONDS and microseconds % 1000:
            yield f"{name} {microseconds}"


def _is_precise(reading: float) -> bool:
    """Whether a reading has so many digits that another run hardly has the same."""
    if not math.isfinite(reading):
        return False
    return bool(round(reading * 100, 4) % 1) or (reading >= 1e6 and reading % 1000 > 0)
