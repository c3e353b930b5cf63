"""The quality of an ensemble of language models, recomputed from what its models stored."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.support.train_runs import evaluations, planned, run_job
from vflops.extensions import import_object
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Predicted
from vflops.train.ensemble.aggregation import evaluate_ensemble
from vflops.train.ensemble.predictions import KeptPredictions
from vflops.workloads.contract.registry import workload
from vflops.workloads.language_model.quality import TokenMeter, next_token_probability

SMALL = (
    "bagging.models=2",
    "synthetic.train=8192",
    "synthetic.validation=8192",
    "network.layers=1",
    "network.width=16",
    "train.epochs=1",
    "train.warmup_epochs=0",
)
ROUNDING = 2.0**-23
"""Combined probabilities are stored in fp32: each is off by at most a factor of 1 ± 2⁻²⁴, and so is
their geometric mean."""


def geometric_mean(probabilities: NDArray[np.float64]) -> float:
    return math.exp(float(np.log(probabilities).mean()))


def stored(folder: RunFolder, job: int) -> NDArray[np.float64]:
    """Return the probabilities of true tokens that a model stored after its training."""
    log = folder.history().jobs[job][-1]
    (written,) = (event.payload(Predicted) for event in log.events if event.kind == "predictions")
    kept = KeptPredictions.open(folder.logged_attempts(job)[-1], written.files)
    return kept.rows(0, len(kept)).astype(np.float64)


def test_an_ensemble_has_the_mean_probabilities_of_its_models(tmp_path: Path) -> None:
    folder = planned(tmp_path, *SMALL, workload="language-model")
    alone = [evaluations(run_job(folder, job))[-1].quality for job in (1, 2)]
    records = [JobRecord.read(folder.job_file(job)) for job in (1, 2)]
    found = evaluate_ensemble(folder, folder.history(), records)
    assert found is not None and found.jobs == (1, 2)
    first, second = (stored(folder, job) for job in (1, 2))
    assert [geometric_mean(first), geometric_mean(second)] == pytest.approx(alone, rel=1e-12)
    assert alone[0] != alone[1]  # each trained with its own bag of windows
    expected = geometric_mean((first + second) / 2)
    assert [size.quality for size in found.sizes] == pytest.approx(
        [alone[0], expected], rel=ROUNDING
    )
    # The logarithm of a mean is at least the mean of the logarithms.
    assert found.sizes[-1].quality >= math.sqrt(alone[0] * alone[1]) * (1 - ROUNDING)


def test_models_that_know_different_tokens_are_better_together() -> None:
    first, second = (
        np.array([[[p], [1 - p]]], dtype=np.float32)  # one sample of two tokens
        for p in (0.9, 0.1)
    )
    combined = import_object(workload("language-model").combine)([first, second])
    qualities = []
    for probabilities in (first, second, combined):
        meter = TokenMeter(torch.device("cpu"))
        meter.update(torch.from_numpy(probabilities), (), torch.ones(1, dtype=torch.bool))
        qualities.append(next_token_probability([meter.summary()]))
    assert qualities == pytest.approx([0.3, 0.3, 0.5], rel=ROUNDING)
