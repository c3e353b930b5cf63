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

_FASTEST_PER_S = 12_000.0
"""Images per second of ResNet-50 at 224 pixels, more than any accelerator trained when measured."""


class NeededWork(NamedTuple):
    """The work of one worker until its first candidate has trained to the end of its schedule."""

    epochs: int
    samples: int
    ops: int
    """Operations with the starting network, evaluations included."""


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
    """Return a warning if no accelerator could make the search valid in its time."""
    if not _is_published(settings):
        return []
    needed = needed_work(settings, data)
    rate = needed.samples / settings.search.duration_s / settings.train.ranks
    if rate <= _FASTEST_PER_S:
        return []
    return [
        f"{seconds(settings.search.duration_s)} is too short for a valid search: a worker trains"
        f" {needed.epochs} epochs before a candidate has reached the end of its schedule, which"
        f" takes {rate:,.0f} samples/s on each accelerator; use a longer --for or more --ranks"
    ]


def planned_rows(
    settings: AutomlSettings, data: DataFacts, ops_per_s: float | None
) -> list[list[str]]:
    """Return rows of a plan: what a valid search needs, and how long that takes.

    ``ops_per_s`` is the measured speed of a worker, if known.
    """
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
    if ops_per_s:
        time_s = needed.ops / ops_per_s
        short = f"; --for {seconds(duration_s)} is too short" if time_s > duration_s else ""
        rows.append(["", f"{time_s / 3600:,.1f} h at {quantity(ops_per_s, 'OPS')} a worker{short}"])
    return rows


def _is_published(settings: AutomlSettings) -> bool:
    """Whether the search is as long, and its images as many, as those of a paper's profile."""
    spec = workload("automl")
    return any(
        settings.train.epochs == spec.profile(name).train.epochs and settings.size == 224
        for name in PUBLISHED_PROFILES
    )
