"""The samples in and out of the bag of a job's base model, and those that the job reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vflops.data import bootstrap
from vflops.data.sampler import Indices
from vflops.record.formats.job import BagRecord


def bag_indices(bag: BagRecord | None, size: int) -> Indices | None:
    """Return the indices of the samples to train on; None for all samples, each once.

    A sample appears as often as it was drawn.
    """
    return None if bag is None else bootstrap.bag(bag.bootstrap, bag.seed, bag.number, size)


def out_of_bag_indices(bag: BagRecord, size: int) -> Indices:
    """Return the indices of the samples that the model is not trained on."""
    return bootstrap.out_of_bag(bag.bootstrap, bag.seed, bag.number, size)


def evaluated_out_of_bag(bag: BagRecord, size: int) -> Indices:
    """Return the out-of-bag samples that the model is evaluated on, evenly spaced."""
    indices = out_of_bag_indices(bag, size)
    count = min(bag.out_of_bag, len(indices))
    return indices[np.arange(count) * len(indices) // count] if count else indices[:0]


def read_samples(bag: BagRecord, size: int) -> NDArray[np.bool_]:
    """Return which of ``size`` training samples a job reads: to train and to evaluate."""
    read = bootstrap.counts(bag.bootstrap, bag.seed, bag.number, size) > 0
    read[evaluated_out_of_bag(bag, size)] = True
    return read
