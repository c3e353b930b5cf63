"""Maps the operators of PyTorch (ATen) to the kinds and attributes of the operation graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vflops.counting.products import FORMULAS, operations
from vflops.record.formats.graph import Attribute, Kind

_OF_ONE_OPERAND = {"affine_grid_generator"}  # a product with a constant


_PROFILING = (
    "profiler._record_function_enter.default profiler._record_function_enter_new.default "
    "profiler._record_function_exit.default profiler._record_function_exit._RecordFunction"
)


def _kinds() -> dict[str, Kind]:
    names_by_kind: dict[Kind, str] = {
        "convolution": "convolution _convolution convolution_overrideable cudnn_convolution "
        "_slow_conv2d_forward",
        "product": "mm addmm bmm baddbmm mv addmv dot vdot linear _scaled_mm "
        + " ".join(FORMULAS.keys() - _OF_ONE_OPERAND),
        "normalization": "native_batch_norm _native_batch_norm_legit cudnn_batch_norm "
        "miopen_batch_norm _batch_norm_with_update native_layer_norm native_group_norm "
        "_fused_rms_norm",
        "activation": "relu sigmoid tanh gelu silu mish elu hardtanh hardswish hardsigmoid "
        "leaky_relu softplus _prelu_kernel threshold log_sigmoid_forward glu",
        "elementwise": "add sub rsub mul div sqrt rsqrt exp exp2 expm1 log log2 log1p pow neg abs "
        "sin cos maximum minimum clamp clamp_min clamp_max reciprocal erf lerp addcmul addcdiv "
        "sign floor ceil round frac fmod remainder atan2 square",
        "max-pool": "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d "
        "adaptive_max_pool3d",
        "average-pool": "avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d "
        "_adaptive_avg_pool3d",
        "softmax": "_softmax _log_softmax _safe_softmax",
        "loss": "nll_loss_forward nll_loss2d_forward mse_loss smooth_l1_loss huber_loss "
        "binary_cross_entropy binary_cross_entropy_with_logits kl_div soft_margin_loss",
        "reduction": "sum mean amax amin max min var var_mean std std_mean prod norm "
        "linalg_vector_norm logsumexp cumsum cumprod topk sort",
        "embedding": "embedding _embedding_bag _embedding_bag_forward_only",
        "interpolation": "upsample_nearest1d upsample_nearest2d upsample_nearest3d "
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
        "grid_sampler_2d grid_sampler_3d",
        "random": "bernoulli rand randn rand_like randn_like normal uniform native_dropout",
        "copy": "clone copy contiguous cat stack _to_copy constant_pad_nd reflection_pad1d "
        "reflection_pad2d replication_pad2d roll flip repeat index_select gather index "
        "index_put scatter scatter_add masked_fill where tril triu fill zero im2col col2im "
        "pixel_shuffle pixel_unshuffle channel_shuffle",
        "layout": "view _unsafe_view reshape _reshape_alias t transpose permute expand squeeze "
        "unsqueeze slice select split unsafe_split split_with_sizes unbind chunk unsafe_chunk "
        "detach alias as_strided diagonal narrow unfold lift_fresh view_as_real view_as_complex "
        "swapaxes movedim _conj",
        "bookkeeping": "empty empty_like empty_strided zeros zeros_like ones ones_like full "
        "full_like arange scalar_tensor new_empty new_zeros new_ones new_full eye linspace "
        "new_empty_strided is_same_size _has_same_storage_numel _efficientzerotensor " + _PROFILING,
    }
    return {name: kind for kind, names in names_by_kind.items() for name in names.split()}


KIND_OF: Mapping[str, Kind] = _kinds()

_LIGHT = frozenset(
    "acos acosh angle asin asinh atan atanh complex copysign cosh cross deg2rad "
    "conj_physical digamma dist erfc erfinv exponential geometric hypot i0 lgamma linalg_cross "
    "log10 log_normal logaddexp logaddexp2 logcumsumexp logit mvlgamma nan_to_num nextafter "
    "polar polygamma positive rad2deg real imag _neg_view resolve_conj resolve_neg "
    "rrelu_with_noise sgn sinc sinh special_entr special_erfcx special_xlog1py special_xlogy "
    "tan trunc xlogy "
    "aminmax all any argmax argmin count_nonzero cummax cummin diag_embed index_add index_copy "
    "index_fill index_reduce kthvalue masked_scatter median mode nanmedian nansum renorm "
    "scatter_reduce segment_reduce take tanh_backward sigmoid_backward threshold_backward "
    "gelu_backward silu_backward elu_backward softplus_backward hardtanh_backward "
    "hardsigmoid_backward hardswish_backward leaky_relu_backward log_sigmoid_backward glu_backward "
    "mish_backward _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward "
    "native_batch_norm_backward native_group_norm_backward embedding_dense_backward "
    "nll_loss_backward nll_loss2d_backward mse_loss_backward smooth_l1_loss_backward "
    "huber_loss_backward binary_cross_entropy_backward max_pool2d_with_indices_backward "
    "avg_pool2d_backward _adaptive_avg_pool2d_backward upsample_nearest2d_backward "
    "upsample_bilinear2d_backward slice_backward select_backward "
    "diagonal_backward _weight_norm_interface _weight_norm_interface_backward "
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper "
    "_linalg_check_errors _assert_async _unsafe_index "
    "max_unpool2d max_unpool3d replication_pad1d replication_pad3d reflection_pad3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa".split()
)
"""Operators without a kind that do few operations for each element that they read or write."""

NEEDS_DATA = frozenset(
    "_local_scalar_dense item is_nonzero nonzero masked_select bincount unique_dim "
    "_unique _unique2 unique_consecutive equal repeat_interleave".split()
)
"""Operators whose result depends on the values of tensors, which the meta device lacks."""

_ADDEND_FIRST = frozenset({"addmm", "baddbmm", "addmv", "addbmm", "addr"})


TORCH_HAS_A_FORMULA = frozenset(
    "mm addmm bmm baddbmm _scaled_mm convolution _convolution cudnn_convolution "
    "convolution_overrideable _slow_conv2d_forward convolution_backward "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward "
    "_flash_attention_forward _efficient_attention_forward _flash_attention_backward "
    "_efficient_attention_backward".split()
)
"""ATen operators that FlopCounterMode counts; operators that write in place have other names."""


def base_name(op: str) -> str:
    """Return the plain name of an operator: ``relu`` for ``aten.relu_.default``."""
    name = op.split(".")[1] if op.startswith("aten.") else op
    return name if name.startswith("__") else name.removesuffix("_")


def is_light(op: str) -> bool:
    """Whether an operator of the kind ``other`` is known to do little work."""
    namespace = op.partition(".")[0]
    return namespace in ("prims", "vflops") or (namespace == "aten" and base_name(op) in _LIGHT)


def operands(name: str, tensors: list[Any]) -> list[Any]:
    """Return the operands in the order of the graph: factors first, then the addend."""
    return [*tensors[1:], tensors[0]] if name in _ADDEND_FIRST else tensors


def attributes(
    name: str, kind: Kind, arguments: Mapping[str, Any], shapes: Sequence[Sequence[int]]
) -> dict[str, Attribute]:
    """Return the attributes of a call that conventions use, from its arguments by name."""
    if kind == "convolution":
        keys = ("stride", "padding", "dilation")
        return {
            "kernel": tuple(shapes[1][2:]),
            "groups": int(arguments["groups"]),
            "transposed": bool(arguments.get("transposed", False)),
            **{key: tuple(arguments[key]) for key in keys},
        }
    if kind in ("max-pool", "average-pool"):
        return {"kernel": _kernel(arguments, shapes)}
    if kind == "softmax":
        return {"function": name, "dim": int(arguments["dim"])}
    if kind in ("activation", "elementwise", "normalization", "reduction", "loss"):
        return {"function": name}
    return operations(name, arguments)


def flop_counter_knows(op: str) -> bool:
    """Whether torch's FlopCounterMode has a formula for an operator that contains products."""
    namespace, _, rest = op.partition(".")
    name = rest.split(".")[0]
    is_split_into_known_ones = name == "linear"
    return namespace != "aten" or is_split_into_known_ones or name in TORCH_HAS_A_FORMULA


def is_global_pool(
    name: str, arguments: Mapping[str, Any], shapes: Sequence[Sequence[int]]
) -> bool:
    """Whether a mean or an adaptive pooling reduces each channel to one number."""
    rank = len(shapes[0]) if shapes else 0
    if rank < 4:  # with three dimensions the last may be features, whose mean is not a pooling
        return False
    if name.startswith("_adaptive_avg_pool"):
        return all(size == 1 for size in arguments["output_size"])
    dims = arguments.get("dim")
    if name != "mean" or not dims:
        return False
    return {dim % rank for dim in dims} == set(range(2, rank))


def _kernel(arguments: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    if "kernel_size" in arguments:
        return tuple(arguments["kernel_size"])
    planes, pooled = shapes[0][2:], arguments["output_size"]  # adaptive: the largest window
    return tuple(-(-size // out) for size, out in zip(planes, pooled, strict=True))
