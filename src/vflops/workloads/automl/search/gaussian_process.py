"""Gaussian process regression of accuracies over distances; numpy only.

exp(−d) of a metric d need not be positive definite, so the kernel does not use d itself. A point
x is represented by its distances to the n points of the history,
φ(x) = (d(x, h₁), …, d(x, hₙ)) / √n. There may be several distances, one per aspect, each with its
length scale ℓ; their φ(x) / ℓ are concatenated to Φ(x), and

    k(x, y) = 1 / (1 + ‖Φ(x) − Φ(y)‖²)

which is positive definite whatever d is, metric or not: 1/(1 + s) = ∫₀^∞ e^(−t) e^(−ts) dt, so k is
a mixture with positive weights of the kernels exp(−t ‖Φ(x) − Φ(y)‖²), and these, Gaussians between
points of a Euclidean space, are positive definite (Schoenberg). Where d is a metric,
‖φ(x) − φ(y)‖ ≤ d(x, y): similar architectures stay close. The mixture contains all length
scales from ℓ on, and the square needs no root, which would amplify rounding between equal points.
The length scales show which aspects the accuracies depend on: a long one hardly matters.

Fitting and prediction use the same kernel. Equal points make its matrix singular. The noise, at
least the smallest of ``NOISES``, makes it invertible, and equal points get their mean accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, pi

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTH_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Length scales to try for all aspects, in units of each aspect's median ‖φ(x) − φ(y)‖."""
SCALE_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""Factors to try for the length scale of one aspect; with the last the aspect hardly counts."""
NOISES = (1e-4, 1e-2, 1e-1, 0.5)
"""Noise variances to try, in units of the variance of the accuracies."""
MIN_SCALE = 0.01
"""The minimum standard deviation of accuracies, used for a single model or equal accuracies."""
MAX_FIT_POINTS = 100
"""The maximum number of points, evenly sampled, used to choose length scales and noise."""


@dataclass(frozen=True)
class GaussianProcess:
    """A fitted process, which predicts the accuracy of new points."""

    embedded: Array
    """φ of the history, in units of the length scales."""
    length_scales: Array
    """One length scale per aspect."""
    noise: float
    centre: float
    scale: float
    weights: Array
    whitening: Array
    likelihood: float
    """The log marginal likelihood of the points that the length scales were chosen by."""

    def predict(self, distances: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the accuracy of points, given their distances.

        The shape is (q, n) or (aspects, q, n); a row contains a point's distances to the points
        that the process was fitted to, in their order.
        """
        distances = _by_aspect(distances)
        expected = (len(self.length_scales), len(self.embedded))
        if distances.ndim != 3 or distances.shape[::2] != expected:
            raise ValueError(
                f"distances have the shape {distances.shape}: "
                f"expected ({len(self.length_scales)}, …, {len(self.embedded)})"
            )
        covariance = kernel(squared_distances(_embed(distances, self.length_scales), self.embedded))
        mean = covariance @ self.weights
        explained = np.square(covariance @ self.whitening.T).sum(axis=1)
        std = np.sqrt(np.maximum(1 - explained, 0))
        return self.centre + self.scale * mean, self.scale * std


def fit(distances: Array, accuracies: Sequence[float]) -> GaussianProcess:
    """Fit a process to the ``distances`` among the points of the history and their accuracies.

    Distances are (n, n) or (aspects, n, n). Length scales and noise are chosen from a grid by the
    greatest marginal likelihood.
    """
    distances = _by_aspect(distances)
    values = np.asarray(accuracies, dtype=np.float64)
    count = len(values)
    if count == 0 or distances.shape[1:] != (count, count):
        raise ValueError(
            f"distances have the shape {distances.shape}: expected (…, {count}, {count}), "
            "one row and column for each accuracy, and at least one"
        )
    if not (np.isfinite(distances).all() and np.isfinite(values).all()):
        raise ValueError("distances and accuracies must be finite numbers")
    centre, scale = float(values.mean()), max(float(values.std()), MIN_SCALE)
    targets = (values - centre) / scale
    sample = np.unique(np.linspace(0, count - 1, min(count, MAX_FIT_POINTS)).round().astype(int))
    choice = _choose_scales(distances[:, sample], targets[sample])
    embedded = _embed(distances, choice.length_scales)
    _, whitening, white = _fit(kernel(squared_distances(embedded, embedded)), choice.noise, targets)
    return GaussianProcess(
        embedded,
        choice.length_scales,
        choice.noise,
        centre,
        scale,
        whitening.T @ white,
        whitening,
        choice.likelihood,
    )


@dataclass(frozen=True)
class _Choice:
    """Length scales and noise, and how well they explain the accuracies."""

    posterior: float
    likelihood: float
    length_scales: Array
    noise: float


def _choose_scales(distances: Array, targets: Array) -> _Choice:
    """Choose the best common length scale, then one for each aspect in turn.

    A normal prior over the logarithm of the factor keeps an aspect's scale near the others unless
    another one explains the accuracies clearly better, which a few points cannot show.
    """
    squared = np.array(
        [squared_distances(aspect, aspect) / aspect.shape[1] for aspect in distances]
    )
    units = np.array([_median(aspect) for aspect in squared])

    def choices(shares: Array) -> Iterator[_Choice]:
        covariance = kernel(np.tensordot((shares * units) ** -2.0, squared, axes=1))
        spread = np.log2(shares)
        penalty = float(np.square(spread - np.median(spread)).sum()) / 8
        for noise in NOISES:
            likelihood, _, _ = _fit(covariance, noise, targets)
            yield _Choice(likelihood - penalty, likelihood, shares, noise)

    def best(options: Iterable[Array]) -> _Choice:
        return max((choice for shares in options for choice in choices(shares)), key=_posterior)

    choice = best(np.full(len(units), length) for length in LENGTH_SCALES)
    if len(units) > 1:
        for aspect in range(len(units)):
            steps = np.ones((len(SCALE_FACTORS), len(units)))
            steps[:, aspect] = SCALE_FACTORS
            choice = best(choice.length_scales * step for step in steps)
    return replace(choice, length_scales=choice.length_scales * units)


def _posterior(choice: _Choice) -> float:
    return choice.posterior


def _fit(covariance: Array, noise: float, targets: Array) -> tuple[float, Array, Array]:
    """Return the log marginal likelihood, L⁻¹ and L⁻¹y, where K = LLᵀ."""
    root = np.linalg.cholesky(covariance + noise * np.eye(len(targets)))
    whitening = np.linalg.inv(root)
    white: Array = whitening @ targets
    half = float(white @ white) / 2 + float(np.log(np.diag(root)).sum())
    return -half - len(targets) * log(2 * pi) / 2, whitening, white


def _by_aspect(distances: Array) -> Array:
    array = np.asarray(distances, dtype=np.float64)
    return array[None] if array.ndim == 2 else array


def _embed(distances: Array, length_scales: Array) -> Array:
    """Return Φ: the distances of all aspects in units of their length scales, concatenated."""
    scaled = distances / (length_scales[:, None, None] * np.sqrt(distances.shape[-1]))
    return np.concatenate(list(scaled), axis=1)


def kernel(squared: Array) -> Array:
    """Return the covariance of points whose embeddings have these squared distances."""
    covariance: Array = 1 / (1 + squared)
    return covariance


def squared_distances(a: Array, b: Array) -> Array:
    """Return the squared Euclidean distances of the rows of ``a`` to those of ``b``."""
    norms = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None, :]
    squared: Array = np.maximum(norms - 2 * (a @ b.T), 0)
    return squared


def _median(squared: Array) -> float:
    """Return the median distance between points that differ, or 1 if none do."""
    differing = squared[squared > 1e-12]
    return float(np.sqrt(np.median(differing))) if differing.size else 1.0
