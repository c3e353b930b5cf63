"""Functions that combine the predictions of several models; they need numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mean(predictions: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the mean over the models.

    For class probabilities this is the averaging of HPC AI500 V3.0.
    """
    # Double precision, so that the order of models does not matter.
    total = np.zeros_like(predictions[0], dtype=np.float64)
    for prediction in predictions:
        total += prediction
    return (total / len(predictions)).astype(np.float32)


def vote(predictions: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the class that most models chose for each sample, from one class per sample.

    In a tie the lowest class wins, so that the order of models does not matter.
    """
    votes = np.sort(np.stack(predictions, axis=1), axis=1)
    position = np.arange(votes.shape[1])
    is_first = np.ones(votes.shape, np.bool_)
    is_first[:, 1:] = votes[:, 1:] != votes[:, :-1]
    # Within a run of equal votes this counts up from 0, so the longest run has the maximum.
    repeated = position - np.maximum.accumulate(np.where(is_first, position, 0), axis=1)
    winner = repeated.argmax(axis=1)  # of runs of one length the first: the lowest class
    chosen: NDArray[np.float32] = votes[np.arange(len(votes)), winner]
    return chosen
