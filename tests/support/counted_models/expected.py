"""Where the counts of a model are right to differ from FlopCounterMode, and what is refused.

Every other model must have exactly the counts of FlopCounterMode.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = "it counts the weight gradient as if there were no groups"
VECTORS = "it has no formula for products with a vector"
RECOMPUTED = "it counts recomputation as backward; vflops has a column for it"
INSIDE = "it has no formula for the product inside the operator"
IN_PLACE = "it has no formula for conv_tbc, nor for the in-place products of its gradients"


@dataclass(frozen=True)
class Truth:
    """The operations of a model that FlopCounterMode miscounts."""

    forward: int
    backward: int
    reason: str


STEM = 2 * 2 * 64 * 4 * 27
"""A convolution of two images of 8×8 pixels from 3 to 4 channels, without input gradient."""

TRUTH: dict[str, Truth] = {
    "grouped": Truth(STEM + 4 * 36 * 108, STEM + 2 * 4 * 36 * 108, GROUPS),
    "grouped 1-D": Truth(4 * 7 * 36, 4 * 7 * 36, GROUPS),
    "transposed grouped": Truth(STEM + 4 * 64 * 108, STEM + 2 * 4 * 64 * 108, GROUPS),
    "depthwise": Truth(STEM + 4 * 36 * 72, STEM + 2 * 4 * 36 * 72, GROUPS),
    "separable": Truth(4 * 36 * (27 + 24), 4 * 36 * (27 + 2 * 24), GROUPS),
    "dynamic filters": Truth(324 + 2 * 64 * 54, 324 + 2 * 64 * 54, GROUPS),
    "inverted residual": Truth(4 * 64 * (32 + 72 + 32), 4 * 64 * (32 + 2 * 72 + 2 * 32), GROUPS),
    "channel shuffle": Truth(4 * 64 * 16, 4 * 64 * 24, GROUPS),
    "conv_tbc": Truth(252 + 2 * 19 * 2 * 12, 252 + 2 * 2 * 19 * 2 * 12, IN_PLACE),
    "spatial transformer": Truth(18432 + 2 * 2 * 64 * 6, 32256 + 2 * 2 * 64 * 6, INSIDE),
    "spectral norm": Truth(192 + 3 * 48 + 8, 192, VECTORS),
    "parametrized spectral norm": Truth(192 + 3 * 48 + 8, 192, VECTORS),
    "spectral norm convolution": Truth(15552 + 3 * 216 + 8, 15552, VECTORS),
    "parametrized spectral norm convolution": Truth(15552 + 3 * 216 + 8, 15552, VECTORS),
    "matrix-vector product": Truth(240 + 40, 240 + 40, VECTORS),
    "addmv": Truth(240 + 40, 240 + 40, VECTORS),
    "dot product": Truth(2 * 2 * 5, 0, VECTORS),
    "householder reflections": Truth(2 * (48 + 12), 2 * 48, VECTORS),
    "outer products": Truth(2 * 144 + 36, 2 * 144 + 2 * 36, VECTORS),
    "bilinear": Truth(2 * (4 * 3 * 36 + 4 * 3 * 6), 2 * (4 * 3 * 36 + 4 * 3 * 6), INSIDE),
    "addbmm": Truth(2 * 2 * 3 * 4 * 5, 2 * 2 * 3 * 4 * 5, INSIDE),
    "cdist by a product": Truth(144 + 2 * 20 * 5, 144 + 2 * 2 * 20 * 3, INSIDE),
    "cdist of many points": Truth(2 * 2 * 840 * 5, 2 * 2 * 2 * 840 * 3, INSIDE),
    "grouped product": Truth(256 + 2 * 8 * 16 * 8, 512 + 2 * 8 * 16 * 8, INSIDE),
    "integer product": Truth(1536 + 2 * 32 * 8 * 8, 1536, INSIDE),
    "checkpoint": Truth(680, 1120, RECOMPUTED),
    "reentrant checkpoint": Truth(680, 1120, RECOMPUTED),
    "layer repeated in backward": Truth(560, 480, RECOMPUTED),
    **dict.fromkeys(
        (
            "checkpoint of a function without autograd",
            "reentrant checkpoint of a function without autograd",
        ),
        Truth(8 * (30 + 25 + 15 + 9), 8 * (30 + 2 * 15 + 2 * 9), RECOMPUTED),
    ),
}
"""Models that ``executed`` counts and FlopCounterMode miscounts, worked out by hand, and why."""

REFUSED: dict[str, str] = {
    "branch on values": "depends on the values of its data",
    "boolean index": "depends on the values of its data",
    "experts by mask": "depends on the values of its data",
    "adaptive softmax": "depends on the values of its data",
    "covariance": "depends on the values of its data",
    "least squares": "calls aten::linalg_lstsq.out, which torch cannot run without values",
    "packed sequence": "packs sequences, whose work depends on their lengths",
    "sparse adjacency": "uses sparse tensors",
    "layer in a thread": "runs its module first where capture does not see it",
    "product in a thread": "where capture does not see it, such as in another thread",
    "activations on the CPU": "saves activations on the CPU (save_on_cpu)",
    "nested tensors": "uses nested tensors, whose work depends on lengths",
    "conditional operator": "calls the operator cond of torch, whose functions capture does not",
    "flex attention": "calls flex_attention, which needs a real device",
}
"""Models without a single graph, and what the error says."""

FACTORIZATION = "a factorization; the products of its gradients are counted"

UNCOUNTED: dict[str, str] = {
    **dict.fromkeys(
        "_linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky_solve "
        "linalg_cholesky_ex linalg_inv_ex linalg_qr linalg_solve_triangular".split(),
        FACTORIZATION,
    ),
    "linalg_pinv": "a factorization, and a product that is small beside it",
    "linalg_matrix_exp": "the number of its products depends on values",
    **dict.fromkeys("_fft_c2c _fft_c2r _fft_r2c".split(), "a Fourier transform"),
    **dict.fromkeys("index_add scatter_reduce".split(), "additions"),
    **dict.fromkeys("_weight_norm_interface _cdist_forward".split(), "norms"),
    **dict.fromkeys(
        "complex diag_embed exponential fake_quantize_per_tensor_affine_cachemask tanh_backward "
        "_linalg_check_errors".split(),
        "element-wise",
    ),
}
"""Operators that are listed as not counted, and why they are none of the products."""
