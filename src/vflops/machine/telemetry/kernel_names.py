"""The kind of a kernel by its name: of vflops, CUDA libraries and inductor, and CPU operators."""

from __future__ import annotations

import re
from typing import Literal, get_args

Kind = Literal[
    "convolution",
    "matrix product",
    "element-wise",
    "pooling",
    "normalisation",
    "communication",
    "copy",
    "selection",
    "optimizer",
    "other",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Element-wise: activations, arithmetic, reductions, softmax and losses, one pass over a tensor.
Copy: moves, casts, fills or changes a tensor's layout. Selection: sorts, picks or indexes elements,
as in the proposals of a detector."""

OWN_KERNELS: dict[str, Kind] = {
    "conv1x1_forward": "convolution",
    "conv1x1_backward": "convolution",
    "stem_forward": "convolution",
    "stem_backward": "convolution",
    "channel_sums": "normalisation",
    "forward_coefficients": "normalisation",
    "backward_coefficients": "normalisation",
    "normalise": "normalisation",
    "gradient_sums": "normalisation",
    "normalise_backward": "normalisation",
    "pool_forward": "pooling",
    "forward_kernel": "pooling",  # of RoIAlign
    "backward_kernel": "pooling",
    "suppress_kernel": "selection",
    "space_to_depth": "copy",
    "sample_kernel": "element-wise",  # interpolates the pixels of a crop
    "fp8_rows_kernel": "element-wise",  # GELU, and rounding by rows
    "fp8_transpose_kernel": "copy",
    "rounded_adam_kernel": "optimizer",
    "single_pass_loss_kernel": "element-wise",
    "token_loss_kernel": "element-wise",  # a softmax over the vocabulary
}
"""The Triton kernels of vflops, by name. One that fuses several operators has the kind of the most
expensive one: a convolution, then pooling, normalisation."""


def kind_of(kernel_name: str) -> Kind:
    """Return the kind of a kernel or operator; ``other`` if its name is unknown.

    A kernel that inductor fused is named after all its operators and has the kind of the most
    expensive one: normalisation, then pooling, element-wise, selection, copy. Convolution and
    matrix product count only in templates of inductor (``triton_tem``): in a pointwise or reduction
    kernel their names refer to the bias or the cast next to a library call, which is a separate
    kernel.
    """
    if own := OWN_KERNELS.get(_NUMBER.sub("", kernel_name)):
        return own
    name = kernel_name.lower()
    if fused := _FUSED.search(name):
        return _kind_of_fused(fused["form"] or "cpp", fused["ops"])
    return _first_match(_NAMES, name)


def _kind_of_fused(form: str, ops: str) -> Kind:
    if form == "for":  # one loop over many tensors: only optimizers have it
        return "optimizer"
    if form == "tem":
        return _first_match(_TEMPLATE_OPS, ops)
    kind = _first_match(_FUSED_OPS, ops)
    if kind == "other":  # inductor itself writes only loops over elements and reductions
        return "element-wise"
    # A reduction (red, per) does more than cast, such as the gradient of a bias.
    return "element-wise" if kind == "copy" and form in ("red", "per") else kind


def _first_match(rules: tuple[tuple[Kind, re.Pattern[str]], ...], name: str) -> Kind:
    return next((kind for kind, pattern in rules if pattern.search(name)), "other")


def _rules(*rules: tuple[Kind, str]) -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern, re.VERBOSE)) for kind, pattern in rules)


_NUMBER = re.compile(r"_\d+$")  # inductor may number the kernels that it is given
# triton_poi_fused_add_relu_7, triton_tem_fused_mm_3, graph_0_cpp_fused_relu_2
_FUSED = re.compile(r"(?:triton_(?P<form>[a-z]+)_|cpp_)fused_?(?P<ops>.*)")

_NORMALISATION = "batch_?norm | layer_?norm | group_?norm | instance_?norm | rms_?norm"
_POOLING = "pool | roi_align"
# Whole words between underscores: "ge" must not match in "range".
_ELEMENT_WISE = """(?<![a-z])(?:
    add | addcmul | addcdiv | sub | rsub | mul | div | relu | leaky_relu | threshold | sigmoid
    | tanh
    | gelu | silu | hardtanh | exp | log | log1p | sqrt | rsqrt | pow | neg | abs | erf | reciprocal
    | lerp | sum | mean | max | amax | min | amin | argmax | var | var_mean | norm | where | clamp
    | clamp_min | minimum | maximum | floor | ceil | round
    | softmax | loss | cross_entropy | dropout | bernoulli | eq | ne | lt | gt | le | ge
    )(?![a-z])"""
_COPY = """(?<![a-z])(?:
    copy | clone | cat | contiguous | transpose | permute | convert_element_type | fill | zero
    | zeros | ones | full | stack | pad | constant_pad_nd | to
    )(?![a-z])"""
_SELECTION = """(?<![a-z])(?:
    sort | argsort | topk | index | index_put | index_select | index_add | index_copy | gather
    | scatter | scatter_add | nonzero | masked_select | searchsorted | cumsum | bincount | histc
    | take | nms | suppress | embedding | embedding_bag
    )(?![a-z])"""

_FUSED_OPS = _rules(
    ("normalisation", _NORMALISATION),
    ("pooling", _POOLING),
    ("element-wise", _ELEMENT_WISE),
    ("selection", _SELECTION),
    ("copy", _COPY),
    ("element-wise", "convolution | mm"),  # without other operators it is the bias, or its gradient
    ("copy", "^[0-9]*$"),  # without an operator's name: a weight or input in another layout
)
_TEMPLATE_OPS = _rules(
    ("convolution", "convolution"),
    ("matrix product", "."),  # inductor has templates only for products: mm, bmm, attention
)

# The first match counts: from specific names to vague ones.
_NAMES = _rules(
    (
        "communication",
        """nccl | rccl | c10d | gloo | all_?reduce | all_?gather | reduce_?scatter | symm_mem
        | record_param_comms""",
    ),
    ("optimizer", r"multi_tensor_apply | _foreach_ | fused_?(adam|sgd|adagrad) | ^optimizer\."),
    # Kernels that change layouts are named after the library that needs the layout.
    (
        "copy",
        """memcpy | memset | nchwtonhwc | nhwctonchw | nhwcaddpadding | converttensor | copy_kernel
        | batchedcopy""",
    ),
    (
        "normalisation",
        f"""{_NORMALISATION} | (?:^|[:_])bn_ | gammabeta | rowwisemoments | computeinternalgradients
        | compute(?:backward)?fusedparams""",
    ),
    ("pooling", _POOLING),
    # Before convolution: some attention kernels are named fprop as well.
    ("matrix product", "flash_ | fmha | sdpa | attention | cudnn::fusion"),
    (
        "convolution",
        r"""convol | conv(_transpose|_depthwise)?[123]d | fprop | dgrad | wgrad | winograd | scudnn
        | s\d+cudnn | im2col | col2im | fft2d | depthwise | thnn_conv | cudnn::cnn
        | cutlass\w*cudnn""",
    ),
    ("matrix product", "gemm | gemv | nvjet | cublas | cutlass | splitk | matmul"),
    ("matrix product", "::_?(?:add|b|baddb|addb|scaled_|int_)?mm_?$ | ::(?:add)?mv_?$ | ::dot$"),
    ("matrix product", "::_?(?:mkl_)?linear"),
    # Before element-wise: some kernels that index are loops over elements.
    (
        "selection",
        """radixsort | bitonicsort | segmentedsort | devicesort | sort(?:kv|pairs) | onesweep | topk
        | gather | scatter | (?<!with_)index(?:ing|_elementwise|_kernel|select|put|func)
        | nonzero | deviceselect | devicescan | scan_by_key | searchsorted | histogram
        | nms_kernel""",
    ),
    ("element-wise", "elementwise | reduce | softmax | loss | dropout | scalepacked"),
    ("element-wise", f"^aten::.*{_ELEMENT_WISE}"),
    ("selection", f"^(?:aten|torchvision|vflops)::.*{_SELECTION}"),
    ("copy", f"^aten::.*{_COPY} | transpose_ | fill"),
)
