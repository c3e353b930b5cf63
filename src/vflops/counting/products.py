"""Multiply-accumulates of operators that contain matrix products, but not one of two operands.

Each formula has the arguments of a call by their names in torch's schema. It counts what the
operator multiplies, whatever kernel runs it, and no recomputation in fused kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from vflops.record.formats.graph import FLOP_COUNTER, OPERATIONS, Attribute

Arguments = Mapping[str, Any]
Formula = Callable[[Arguments], int]


def _added_batches(call: Arguments) -> int:
    return int(call["batch1"].numel() * call["batch2"].shape[2])


def _outer(call: Arguments) -> int:
    return int(call["vec1"].numel() * call["vec2"].numel())


def _grouped(call: Arguments) -> int:
    """Every row belongs to one group: (rows, k) · (groups, k, n), or with the groups elsewhere."""
    left, right = call["self"], call["mat2"]
    if left.dim() == 3 and right.dim() == 2:
        return int(right.numel() * left.shape[1])
    return int(left.numel() * right.shape[-1])


def _rows_times_columns(call: Arguments) -> int:
    return int(call["self"].numel() * call["mat2"].shape[-1])


def _packed_weight(call: Arguments) -> int:
    """The weight has a row for each column of the result."""
    return int(call["self"].numel() * call["mat2"].shape[0])


def _trilinear(call: Arguments) -> int:
    """Multiply three tensors in two steps, as torch does: first · second, then · third."""
    sizes = _common_sizes(call)
    absent = [set(call[f"expand{number}"]) for number in (1, 2, 3)]
    first = [d for d in sizes if d not in absent[0] & absent[1]]
    summed_first = set(call["sumdim"]) & absent[2]
    second = [d for d in sizes if d not in summed_first]
    return math.prod(sizes[d] for d in first) + math.prod(sizes[d] for d in second)


def _common_sizes(call: Arguments) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for number in (1, 2, 3):
        given = list(call[f"i{number}"].shape)
        absent = set(call[f"expand{number}"])
        for dimension in range(len(given) + len(absent)):
            size = 1 if dimension in absent else given.pop(0)
            sizes[dimension] = max(sizes.get(dimension, 1), size)
    return sizes


def _distances(call: Arguments) -> int:
    """One product of points that are extended by their norm and by a one."""
    left, right = call["x1"], call["x2"]
    return int(left[..., 0].numel() * right.shape[-2] * (left.shape[-1] + 2))


def _time_major_convolution(call: Arguments) -> int:
    """A product per position of the kernel, over the steps where it meets the sequence."""
    steps, batch, channels = call["self"].shape
    kernel, _, results = call["weight"].shape
    pad = call["pad"]
    produced = steps + 2 * pad - kernel + 1
    met = sum(max(0, min(produced, steps + pad - k) - max(0, pad - k)) for k in range(kernel))
    return int(met * batch * channels * results)


def _convolution_gradient(call: Arguments) -> int:
    pixels = call["input"] if call["transposed"] else call["grad_output"]
    return int(pixels.shape[0] * math.prod(pixels.shape[2:]) * call["weight"].numel())


def _convolution_gradients(call: Arguments) -> int:
    return _convolution_gradient(call) * sum(map(bool, call["output_mask"][:2]))


def _attention(call: Arguments) -> int:
    """Query · key, and weights · value; masked scores count, as dense kernels compute them."""
    query, key, value = call["query"], call["key"], call["value"]
    scores = query[..., 0].numel() * key.shape[-2]
    return int(scores * (query.shape[-1] + value.shape[-1]))


def _attention_gradients(call: Arguments) -> int:
    return 2 * _attention(call)


def _sampling_grid(call: Arguments) -> int:
    batch, _, *planes = call["size"]
    return int(math.prod(planes) * call["theta"].numel() // call["theta"].shape[0] * batch)


_FUSED_ATTENTION = (
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_fused_attention_overrideable"
).split()

FORMULAS: Mapping[str, Formula] = {
    "addbmm": _added_batches,
    "addr": _outer,
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
    "_scaled_grouped_mm_v2": _grouped,
    "_scaled_mm_v2": _rows_times_columns,
    "_int_mm": _rows_times_columns,
    "_weight_int8pack_mm": _packed_weight,
    "_trilinear": _trilinear,
    "_euclidean_dist": _distances,
    "conv_tbc": _time_major_convolution,
    "convolution_backward": _convolution_gradients,
    "affine_grid_generator": _sampling_grid,
    **dict.fromkeys(_FUSED_ATTENTION, _attention),
    **{f"{name}_backward": _attention_gradients for name in _FUSED_ATTENTION},
}
"""Multiply-accumulates by the name of the operator."""


def operations(name: str, call: Arguments) -> dict[str, Attribute]:
    """Return the attributes with the operations of a call; none if ``name`` has no formula."""
    formula = FORMULAS.get(name)
    if formula is None:
        return {}
    counted = 2 * formula(call)
    if name == "convolution_backward" and call["groups"] > 1 and call["output_mask"][1]:
        # FlopCounterMode counts the gradient of the weight as if there were no groups.
        excess = 2 * _convolution_gradient(call) * (call["groups"] - 1)
        return {OPERATIONS: counted, FLOP_COUNTER: counted + excess}
    if name in _RECOMPUTED:
        return {OPERATIONS: counted, FLOP_COUNTER: counted + 2 * _scores(call)}
    return {OPERATIONS: counted}


_RECOMPUTED = frozenset(f"{name}_backward" for name in _FUSED_ATTENTION[:3])
"""Gradients for which FlopCounterMode also counts that the kernel computes the scores again."""


def _scores(call: Arguments) -> int:
    query, key = call["query"], call["key"]
    return int(query.numel() * key.shape[-2])
