"""How long a search must last to become valid: until a candidate has trained to the end.

A valid result by AIPerf has an error of at most 0.3. While its learning rate is high, ResNet-50
does not get there: in the profile ``aiperf`` the rate falls to 0 over 60 epochs, of which the first
round trains 15, the second 30 and the third 45.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from vflops.config.profiles import PUBLISHED_PROFILES
from vflops.record.formats.job import DataFacts
from vflops.units import quantity, seconds
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.proposer import first_network
from vflops.workloads.automl.search import rounds
from vflops.workloads.automl.search_events import RULES
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.registry import workload


class NeededWork(NamedTuple):
    """The work of one worker until its first candidate has trained to the end of its schedule."""

    epochs: int
    samples: int
    ops: int
    """Operations with the starting network, evaluations included."""


class KnownSpeed(NamedTuple):
    """The operations per second of a worker."""

    ops_per_s: float
    source: str
    """The run in which it was measured."""
    is_ceiling: bool = False
    """Whether it is what its accelerators can do at most, and not the speed of a search."""


def needed_work(settings: AutomlSettings, data: DataFacts) -> NeededWork:
    """Return the work of the rounds up to the first one with a whole schedule."""
    train = settings.train
    epochs = 0
    for number in count():
        own = rounds.epochs(number, train.epochs)
        epochs += own
        if own >= min(train.schedule_epochs or own, train.epochs):
            break
    evaluated = epochs // train.evaluate_every * data.validation
    per_sample = architecture_cost.ops(first_network(settings, data), RULES)
    samples = epochs * data.train
    ops = samples * per_sample.total + evaluated * per_sample.forward
    return NeededWork(epochs, samples, ops)


def remarks(settings: AutomlSettings, data: DataFacts) -> list[str]:
    """Return the warning of a run, which knows no measured speed."""
    return warnings(settings, data, None)


def warnings(settings: AutomlSettings, data: DataFacts, ops_per_s: float | None) -> list[str]:
    """Return a warning unless a measured speed says that the search can become valid in its time.

    ``ops_per_s`` is the measured speed of a worker, if known.
    """
    if not _is_published(settings):
        return []
    needed = needed_work(settings, data)
    duration_s = settings.search.duration_s
    rate = needed.samples / duration_s / settings.train.ranks
    need = (
        f"a worker trains {needed.epochs} epochs ({quantity(needed.ops, 'OP')}) before a candidate"
        " has reached the end of its schedule"
    )
    if ops_per_s is None:
        return [
            f"{seconds(duration_s)} may be too short for a valid search: {need}, which takes"
            f" {rate:,.0f} samples/s on each accelerator; no measured speed is known here:"
            " vflops plan automl --like RUN compares with an earlier search"
        ]
    time_s = needed.ops / ops_per_s
    if time_s <= duration_s:
        return []
    return [
        f"{seconds(duration_s)} is too short for a valid search: {need}, which takes"
        f" {time_s / 3600:,.1f} h at the measured {quantity(ops_per_s, 'OPS')} of a worker; use a"
        " longer --for or more --ranks"
    ]


def planned_rows(
    settings: AutomlSettings, data: DataFacts, speed: KnownSpeed | None
) -> list[list[str]]:
    """Return rows of a plan: what a valid search needs, and how long that takes."""
    if not _is_published(settings):
        return []
    needed = needed_work(settings, data)
    duration_s = settings.search.duration_s
    rate = needed.samples / duration_s / settings.train.ranks
    rows = [
        [
            "valid after",
            f"about {needed.epochs} epochs of a worker, {quantity(needed.ops, 'OP')}: until a"
            " candidate has trained to the end of its schedule",
        ],
        ["needed speed", f"{rate:,.0f} samples/s per rank to get there in {seconds(duration_s)}"],
    ]
    return [*rows, ["time until valid", _time_until_valid(needed, speed)]]


def _time_until_valid(needed: NeededWork, speed: KnownSpeed | None) -> str:
    if speed is None:
        return (
            "not known: no run here has measured a speed or a ceiling; a short search does, and"
            " --like RUN names a search elsewhere"
        )
    time = f"{needed.ops / speed.ops_per_s / 3600:,.1f} h"
    each = f"{quantity(speed.ops_per_s, 'OPS')} a worker"
    if speed.is_ceiling:
        return f"at least {time}: the ceilings of {speed.source} allow {each}"
    return f"{time} at {each}, as measured in {speed.source}"


def _is_published(settings: AutomlSettings) -> bool:
    """Whether the search is as long, and its images as many, as those of a paper's profile."""
    spec = workload("automl")
    return any(
        settings.train.epochs == spec.profile(name).train.epochs and settings.size == 224
        for name in PUBLISHED_PROFILES
    )
