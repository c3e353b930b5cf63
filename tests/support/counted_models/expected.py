"""Where the counts of a model are right to differ from FlopCounterMode, and what is refused.

Every other model must have exactly the counts of FlopCounterMode.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = "FlopCounterMode counts the weight gradient as if there were no groups"
VECTORS = "FlopCounterMode has no formula for products with a vector"


@dataclass(frozen=True)
class Truth:
    """The operations of a model that FlopCounterMode miscounts."""

    forward: int
    backward: int
    reason: str


TRUTH: dict[str, Truth] = {
    "grouped": Truth(
        2 * 2 * (64 * 4 * 27 + 36 * 6 * 18), 2 * 2 * (64 * 4 * 27 + 2 * 36 * 6 * 18), GROUPS
    ),
}
"""Models that ``executed`` counts and FlopCounterMode miscounts, worked out by hand."""

TORCH_ONLY: dict[str, str] = {}
"""Models for which not even ``executed-torch`` has the counts of FlopCounterMode, and why."""

REFUSED: dict[str, str] = {
    "branch on values": "depends on the values of its data",
    "boolean index": "depends on the values of its data",
    "experts by mask": "depends on the values of its data",
    "adaptive softmax": "depends on the values of its data",
}
"""Models without a single graph, and what the error says."""

UNCOUNTED: dict[str, str] = {}
"""Operators that are listed as not counted, and why they are none of the products."""

AWAITS_CAPTURE: dict[str, str] = {
    "straight-through sign": "a custom Function cuts the gradient",
    "product with its own backward": "a custom Function cuts the gradient",
    "reentrant checkpoint": "a custom Function cuts the gradient",
    "output dataclass": "outputs in unknown objects",
    "output namespace": "outputs in unknown objects",
    "output dict subclass": "outputs in unknown objects",
    "output distribution": "outputs in unknown objects",
    "lazy convolution": "lazy modules",
    "lazy linear": "lazy modules",
    "orthogonal parametrization": ".item() in a constructor",
    "packed sequence": "constants on the CPU",
    "flex attention": "flex attention on the meta device",
}
"""Models that capture does not count yet."""

AWAITS_OPERATORS: dict[str, str] = dict.fromkeys(
    [
        "transposed grouped",
        "grouped 1-D",
        "depthwise",
        "separable",
        "dynamic filters",
        "spatial transformer",
        "inverted residual",
        "channel shuffle",
        "conv_tbc",
        "explicit convolution gradient",
        "spectral norm convolution",
        "parametrized spectral norm convolution",
        "weight norm convolution",
        "bilinear",
        "spectral norm",
        "parametrized spectral norm",
        "weight norm",
        "parametrized weight norm",
        "matrix-vector product",
        "addmv",
        "dot product",
        "addbmm",
        "outer products",
        "cdist",
        "cdist by a product",
        "cdist of many points",
        "covariance",
        "long convolution",
        "experts choose",
        "grouped product",
        "message passing",
        "scatter with maximum",
        "sparse adjacency",
        "inverse",
        "solve",
        "solve for a vector",
        "gaussian process",
        "cholesky solve",
        "whitening",
        "eigenvalues",
        "singular values",
        "singular vectors",
        "orthonormal weight",
        "log-determinant",
        "determinant",
        "matrix exponential",
        "pseudo-inverse",
        "least squares",
        "matrix norms",
        "householder reflections",
        "gradient penalty",
        "convolutional gradient penalty",
        "jacobian",
        "quantisation-aware",
        "gumbel softmax",
        "checkpoint",
        "complex linear",
        "complex convolution",
        "fourier operator",
        "fourier mixing",
        "circulant",
    ],
    "operators or entries of this file that are missing",
)
"""Models whose operators are not counted yet."""
