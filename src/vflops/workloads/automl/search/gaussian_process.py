"""Gaussian process regression of accuracies over distances; numpy alone.

exp(−d) of a metric d need not be positive definite, so the kernel is not taken of d itself. A point
x stands for its distances to the n points of the history, φ(x) = (d(x, h₁), …, d(x, hₙ)) / √n.
There may be several distances, each an aspect with a length scale ℓ of its own; their φ(x) / ℓ
stand side by side in Φ(x), and

    k(x, y) = 1 / (1 + ‖Φ(x) − Φ(y)‖²)

which is positive definite whatever d is, metric or not: 1/(1 + s) = ∫₀^∞ e^(−t) e^(−ts) dt, so k is
a mixture with positive weights of the kernels exp(−t ‖Φ(x) − Φ(y)‖²), and these, Gaussians between
points of a Euclidean space, are positive definite (Schoenberg). Where d is a metric,
‖φ(x) − φ(y)‖ ≤ d(x, y): near architectures are near here too. The mixture holds all length scales
from ℓ on, and the square needs no root, which would magnify rounding between equal points. The
length scales say which aspects the accuracies depend on: a long one, that this hardly matters.

Fitting and predicting use this one kernel. Equal points make its matrix singular; the noise, at
least the smallest of ``NOISES``, makes it regular again, and their accuracies are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, pi

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Length scales that are tried for all aspects, in medians of ‖φ(x) − φ(y)‖ of each."""
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""By these an aspect's own length scale may differ: with the last it hardly counts."""
NOISES = (1e-4, 1e-2, 1e-1, 0.5)
"""Variances of the noise that are tried, in variances of the accuracies."""
LEAST_SCALE = 0.01
"""A spread of accuracies below this counts as this: one model, or equal ones, do not make it 0."""
ENOUGH = 100
"""Points that length scales and noise are chosen by at most, evenly out of all of them."""


@dataclass(frozen=True)
class GaussianProcess:
    """What the history says of a point that was not tried."""

    embedded: Array
    """φ of the history, in length scales."""
    lengths: Array
    """A length scale for each aspect."""
    noise: float
    centre: float
    scale: float
    weights: Array
    whitening: Array
    likelihood: float
    """The logarithm of the marginal likelihood, of the points that the choice was made by."""

    def predict(self, distances: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the accuracy of points, given by their distances.

        Those are (q, n), or (aspects, q, n); a row holds a point's distances to those that the
        process was fitted to, in their order.
        """
        apart = _by_aspect(distances)
        if apart.ndim != 3 or apart.shape[::2] != (len(self.lengths), len(self.embedded)):
            raise ValueError(
                f"distances have the shape {apart.shape}: "
                f"expected ({len(self.lengths)}, …, {len(self.embedded)})"
            )
        covariance = kernel(squares(_embedded(apart, self.lengths), self.embedded))
        mean = covariance @ self.weights
        explained = np.square(covariance @ self.whitening.T).sum(axis=1)
        std = np.sqrt(np.maximum(1 - explained, 0))
        return self.centre + self.scale * mean, self.scale * std


def fit(distances: Array, accuracies: Sequence[float]) -> GaussianProcess:
    """The process of the history: ``distances`` among its points, and their accuracies.

    Distances are (n, n), or (aspects, n, n). Length scales and noise are those with the greatest
    marginal likelihood that a search of their grid finds.
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
    centre, scale = float(values.mean()), max(float(values.std()), LEAST_SCALE)
    targets = (values - centre) / scale
    some = np.unique(np.linspace(0, count - 1, min(count, ENOUGH)).round().astype(int))
    choice = _chosen(distances[:, some], targets[some])
    embedded = _embedded(distances, choice.lengths)
    _, whitening, white = _fit(kernel(squares(embedded, embedded)), choice.noise, targets)
    return GaussianProcess(
        embedded,
        choice.lengths,
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
    lengths: Array
    noise: float


def _chosen(distances: Array, targets: Array) -> _Choice:
    """The best common length scale, then for one aspect after the other its own.

    An aspect departs from the others only where that explains the accuracies better by as much as
    a normal prior over the logarithm of its factor asks for: few points support no fancy.
    """
    apart = np.array([squares(each, each) / each.shape[1] for each in distances])
    units = np.array([_median(each) for each in apart])

    def choices(shares: Array) -> Iterator[_Choice]:
        covariance = kernel(np.tensordot((shares * units) ** -2.0, apart, axes=1))
        spread = np.log2(shares)
        doubt = float(np.square(spread - np.median(spread)).sum()) / 8
        for noise in NOISES:
            likelihood, _, _ = _fit(covariance, noise, targets)
            yield _Choice(likelihood - doubt, likelihood, shares, noise)

    def best(found: Iterable[Array]) -> _Choice:
        return max((each for shares in found for each in choices(shares)), key=_posterior)

    choice = best(np.full(len(units), length) for length in LENGTHS)
    if len(units) > 1:
        for aspect in range(len(units)):
            steps = np.ones((len(FACTORS), len(units)))
            steps[:, aspect] = FACTORS
            choice = best(choice.lengths * step for step in steps)
    return replace(choice, lengths=choice.lengths * units)


def _posterior(choice: _Choice) -> float:
    return choice.posterior


def _fit(covariance: Array, noise: float, targets: Array) -> tuple[float, Array, Array]:
    """Log marginal likelihood, L⁻¹ and L⁻¹y, where K = LLᵀ."""
    root = np.linalg.cholesky(covariance + noise * np.eye(len(targets)))
    whitening = np.linalg.inv(root)
    white: Array = whitening @ targets
    half = float(white @ white) / 2 + float(np.log(np.diag(root)).sum())
    return -half - len(targets) * log(2 * pi) / 2, whitening, white


def _by_aspect(distances: Array) -> Array:
    found = np.asarray(distances, dtype=np.float64)
    return found[None] if found.ndim == 2 else found


def _embedded(distances: Array, lengths: Array) -> Array:
    """φ: the distances of every aspect in its length scales, side by side: (points, …)."""
    scaled = distances / (lengths[:, None, None] * np.sqrt(distances.shape[-1]))
    return np.concatenate(list(scaled), axis=1)


def kernel(apart: Array) -> Array:
    """The covariance of points whose embeddings are ``apart``, squared, in length scales."""
    covariance: Array = 1 / (1 + apart)
    return covariance


def squares(a: Array, b: Array) -> Array:
    """Squared Euclidean distances of the rows of ``a`` to those of ``b``."""
    both = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None, :]
    apart: Array = np.maximum(both - 2 * (a @ b.T), 0)
    return apart


def _median(apart: Array) -> float:
    """The median distance between points that differ, or 1 where none do."""
    differing = apart[apart > 1e-12]
    return float(np.sqrt(np.median(differing))) if differing.size else 1.0
