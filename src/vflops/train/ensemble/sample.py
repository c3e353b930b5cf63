"""The samples of a job's base model, made where they are used."""

from __future__ import annotations

from vflops.data.sampler import Indices
from vflops.record.formats.job import BagRecord
from vflops.train.ensemble import bootstrap


def drawn(bag: BagRecord | None, size: int) -> Indices | None:
    """What the model learns from, a sample as often as it was drawn; None: all, each once."""
    return None if bag is None else bootstrap.bag(bag.bootstrap, bag.seed, bag.number, size)


def outside(bag: BagRecord, size: int) -> Indices:
    """What the model has not learned from."""
    return bootstrap.out_of_bag(bag.bootstrap, bag.seed, bag.number, size)
