"""An ensemble beside its single models, as text."""

from __future__ import annotations

import math

from vflops.results.score.figure_text import loss, number
from vflops.results.score.score_file import EnsembleScore


def single_models(ensemble: EnsembleScore) -> str:
    """Return the qualities of the single models, and whether the ensemble is better."""
    text = f"single models {number(ensemble.mean_quality)} on average"
    if ensemble.best_quality is None or ensemble.beats is None:
        return text
    verdicts = {
        "best": "the ensemble is better than each",
        "mean": "the ensemble is better than their mean, but not than the best",
        "none": "the ensemble is not better than their mean",
    }
    return f"{text}, {number(ensemble.best_quality)} at best: {verdicts[ensemble.beats]}"


def ensemble_loss(ensemble: EnsembleScore) -> str:
    """Return the loss of an ensemble beside those of its single models."""
    if ensemble.loss is None:
        return "—"
    if ensemble.mean_loss is None or not ensemble.best_quality:
        return loss(ensemble.loss)
    best, size = -math.log(ensemble.best_quality), ensemble.loss.bytes_per_token
    text = f"{number(ensemble.mean_loss)} on average, {number(best)} at best"
    text += f", perplexity {number(1 / ensemble.best_quality)} at best"
    if size:
        text += f", {number(best / math.log(2) / size)} bits per byte at best"
    return f"{loss(ensemble.loss)}; single models {text}"
