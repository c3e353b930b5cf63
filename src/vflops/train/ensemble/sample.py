"""The samples of a job's base model, drawn where they are used."""

from __future__ import annotations

from vflops.data.sampler import Indices
from vflops.record.formats.job import BagRecord
from vflops.train.ensemble import bootstrap


def bag_indices(bag: BagRecord | None, size: int) -> Indices | None:
    """Return the samples to train on, each as often as it was drawn; None for all, each once."""
    return None if bag is None else bootstrap.bag(bag.bootstrap, bag.seed, bag.number, size)


def out_of_bag_indices(bag: BagRecord, size: int) -> Indices:
    """Return the samples that the model was not trained on."""
    return bootstrap.out_of_bag(bag.bootstrap, bag.seed, bag.number, size)
