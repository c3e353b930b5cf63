"""The samples in and out of the bag of a job's base model."""

from __future__ import annotations

from vflops.data.sampler import Indices
from vflops.record.formats.job import BagRecord
from vflops.train.ensemble import bootstrap


def bag_indices(bag: BagRecord | None, size: int) -> Indices | None:
    """Return the indices of the samples to train on; None for all samples, each once.

    A sample appears as often as it was drawn.
    """
    return None if bag is None else bootstrap.bag(bag.bootstrap, bag.seed, bag.number, size)


def out_of_bag_indices(bag: BagRecord, size: int) -> Indices:
    """Return the indices of the samples that the model is not trained on."""
    return bootstrap.out_of_bag(bag.bootstrap, bag.seed, bag.number, size)
