"""Kinds of kernels by real names, and the shares of a real profile on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.machine.telemetry.kernels import KINDS, KernelShare, kernel_shares, kind_of

# From torch 2.11 on an H200: a small convolutional network eager, compiled and autotuned, in fp32
# and bf16, both layouts, SGD and Adam; products, attention, sorting. Cut where they run on.
SEEN = [
    tuple(line.split("\t", 1))
    for line in Path(__file__).with_name("h200_kernels.tsv").read_text().splitlines()
]


@pytest.mark.parametrize(("kind", "name"), SEEN)
def test_kernels_seen_on_an_h200(kind: str, name: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "communication": """ncclKernel_AllGather_RING_LL_Sum_int8_t c10d::allreduce_ gloo:all_reduce
            record_param_comms
            ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)""",
        "convolution": """volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1
            cudnn::winograd_nonfused::winogradForwardData4x4 implicit_convolve_sgemm
            turing_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1 aten::convolution_backward
            aten::mkldnn_convolution aten::conv2d aten::_conv_depthwise2d aten::thnn_conv2d
            mkldnn::_convolution_pointwise aten::cudnn_convolution
            triton_tem_fused_convolution_3""",
        "matrix product": """ampere_sgemm_128x64_nn nvjet_tst_128x256_64x4_2x1_v_bz_TNT
            cublasLt::splitKreduce_kernel flash_fwd_kernel fmha_cutlassF_bf16_aligned_64x64_sm80
            aten::addmm aten::mm aten::bmm aten::baddbmm aten::matmul aten::mv aten::linear
            aten::_scaled_mm aten::_scaled_dot_product_flash_attention_for_cpu aten::dot
            mkldnn::_linear_pointwise triton_tem_fused_bmm_7 triton_tem_fused_addmm_relu_t_5
            triton_tem_fused_flex_attention_0""",
        "normalisation": """aten::native_batch_norm aten::cudnn_batch_norm_backward
            aten::_native_batch_norm_legit
            aten::native_layer_norm aten::native_group_norm_backward
            triton_poi_fused__native_batch_norm_backward_relu_12 cpp_fused_native_layer_norm_0
            graph_0_cpp_fused__native_batch_norm_legit_functional_relu_1""",
        "pooling": """aten::max_pool2d_with_indices_backward aten::avg_pool2d
            aten::_adaptive_avg_pool2d cudnn::pooling_fw_4d_kernel torchvision::roi_align
            triton_poi_fused_avg_pool2d_relu_1""",
        "optimizer": """aten::_foreach_add_ aten::_fused_sgd_ aten::_fused_adamw_
            triton_for_fused_0 Optimizer.step#SGD.step""",
        "copy": """aten::copy_ aten::_to_copy aten::clone aten::cat aten::zero_ aten::contiguous
            triton_poi_fused__to_copy_0 triton_poi_fused__to_copy_convolution_4
            triton_poi_fused_cat_3 triton_poi_fused_2""",
        "element-wise": """aten::relu_ aten::threshold_backward aten::add_ aten::mul aten::sum
            aten::_log_softmax aten::nll_loss_forward aten::sqrt aten::native_dropout
            triton_poi_fused_add_relu_3 triton_poi_fused_convolution_relu_0 triton_red_fused_sum_5
            triton_per_fused__log_softmax_nll_loss_forward_9 cpp_fused_relu_threshold_backward_2
            triton_red_fused__to_copy_convolution_backward_4 triton_poi_fused_bitwise_and_2""",
        "selection": """aten::sort aten::topk aten::nonzero aten::index_select aten::index
            aten::gather aten::scatter_add_ aten::cumsum aten::histc torchvision::nms
            vflops::suppress aten::_embedding_bag_forward_only
            triton_poi_fused_gather_index_put_4""",
        "other": """aten::empty aten::as_strided aten::arange ReluBackward0 aten::view aten::detach
            my_own_kernel torch::autograd::AccumulateGrad aten::select""",
    }.items(),
)
def test_kernels_by_the_names_of_libraries(kind: str, names: str) -> None:
    assert {name: kind_of(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


def test_every_kind_is_known() -> None:
    assert {kind for kind, _ in SEEN} < set(KINDS)
    assert kind_of("") == "other"


def shares_of_a_small_network() -> tuple[list[KernelShare], float]:
    """Return the shares, and torch's sum of self times without the user's ranges."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3), nn.Flatten(), nn.Linear(32 * 13 * 13, 10)),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("all of it"):
        step()
    own_us = sum(
        event.self_cpu_time_total
        for event in profiler.key_averages()
        if not event.is_user_annotation
    )
    return kernel_shares(profiler), own_us / 1e6


def test_a_profile_on_the_cpu_counts_all_own_time_once() -> None:
    shares, own_s = shares_of_a_small_network()
    by_kind = {share.kind: share for share in shares}
    assert sum(share.time_s for share in shares) == pytest.approx(own_s)
    assert sum(share.share for share in shares) == pytest.approx(1)
    expected = {"convolution", "matrix product", "normalisation", "pooling", "element-wise"}
    assert expected | {"optimizer"} <= set(by_kind)
    assert "aten::convolution_backward" in by_kind["convolution"].top
    # A loop of plain additions on the CPU, recognised by its caller.
    assert any("add_" in name for name in by_kind["optimizer"].top)
    assert [share.time_s for share in shares] == sorted((s.time_s for s in shares), reverse=True)


def test_an_empty_profile_has_no_shares() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        pass
    assert kernel_shares(profiler) == []


@pytest.mark.gpu
def test_a_profile_on_an_accelerator_counts_kernels_and_not_the_ranges_around_them() -> None:
    import torch
    from torch.profiler import profile, record_function

    if not torch.accelerator.is_available():
        pytest.skip("no accelerator")
    a = torch.randn(512, 512, device=torch.accelerator.current_accelerator())
    with profile() as profiler, record_function("range"):
        a @ a
        torch.accelerator.synchronize()
    (only,) = kernel_shares(profiler)
    assert (only.kind, only.share) == ("matrix product", 1.0)
