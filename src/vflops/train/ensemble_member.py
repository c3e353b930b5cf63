"""What a base model of an ensemble leaves when its training is over: the clock has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vflops.record.formats.job import BagRecord, OutOfBag, Predicted
from vflops.train.ensemble.predictions import keep, kept_files
from vflops.train.ensemble.sample import outside
from vflops.train.evaluation import Kept

if TYPE_CHECKING:
    from vflops.train.engine import Engine


def conclude_member(engine: Engine, bag: BagRecord) -> None:
    """Judge the model by samples that it has not learned from, and keep what it predicts."""
    _out_of_bag(engine, bag)
    _predictions(engine)


def _out_of_bag(engine: Engine, bag: BagRecord) -> None:
    indices = outside(bag, engine.context.record.data.train)
    if not bag.out_of_bag or not len(indices):
        return
    most = min(bag.out_of_bag, len(indices))
    chosen = indices[np.arange(most) * len(indices) // most]  # spread over all of them
    outcome = engine.state.evaluate(engine.evaluation("train", chosen))
    found = OutOfBag(quality=outcome.quality, evaluated=most, available=len(indices))
    engine.context.tell("out-of-bag", found)


def _predictions(engine: Engine) -> None:
    kept = Kept()
    evaluation = engine.evaluation("validation")
    outcome = engine.state.evaluate(lambda predict: evaluation(predict, kept))
    place = engine.context.attempt
    if kept.samples:
        places, predictions, *truth = kept.arrays()
        keep(place, engine.plan.rank, places, predictions, truth)
    engine.plan.barrier()  # all files are there
    if engine.plan.leads:
        files = kept_files(place)
        engine.context.tell("predictions", Predicted(samples=outcome.evaluated, files=files))
