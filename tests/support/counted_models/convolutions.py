"""Convolutional networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn import grad
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from tests.support.counted_models.definition import applied, built, conv, linear, real


def residual_block(m: Any, x: Tensor) -> Any:
    x = m.stem(x)
    return torch.relu(x + m.second(m.norm(m.first(x)).relu()))


def inception(m: Any, x: Tensor) -> Any:
    return torch.cat([m.one(x), m.three(m.reduce(x)), m.pooled(F.max_pool2d(x, 3, 1, 1))], 1)


def dense_block(m: Any, x: Tensor) -> Any:
    x = torch.cat([x, m.first(x)], 1)
    return torch.cat([x, m.second(x)], 1)


def squeeze_excite(m: Any, x: Tensor) -> Any:
    x = m.stem(x)
    gate = m.expand(m.squeeze(x.mean((2, 3))).relu()).sigmoid()
    return x * gate[:, :, None, None]


def unet(m: Any, x: Tensor) -> Any:
    fine = m.down(x).relu()
    coarse = m.bottom(F.max_pool2d(fine, 2)).relu()
    return m.head(torch.cat([fine, m.up(coarse)], 1))


def segmentation(m: Any, x: Tensor) -> Any:
    features = m.encode(x).relu()
    return F.interpolate(m.classify(features), size=x.shape[2:], mode="bilinear")


def as_matrix_product(m: Any, x: Tensor) -> Any:
    columns = F.unfold(x, 3, padding=1)
    return (m.weight.flatten(1) @ columns).unflatten(2, tuple(x.shape[2:]))


def folded(m: Any, x: Tensor) -> Any:
    return F.fold(m.mix(F.unfold(x, 2, stride=2).mT).mT, tuple(x.shape[2:]), 2, stride=2)


def dynamic_filter(m: Any, x: Tensor) -> Any:
    """A kernel per sample, as one convolution with a group per sample."""
    kernels = m.generate(x.mean((2, 3))).view(-1, x.shape[1], 3, 3)
    together = x.flatten(0, 1)[None]
    return F.conv2d(together, kernels, padding=1, groups=x.shape[0])


def standardised(m: Any, x: Tensor) -> Any:
    weight = m.weight - m.weight.mean((1, 2, 3), keepdim=True)
    return F.conv2d(m.stem(x), weight / (weight.std() + 1e-5), padding=1)


def warped(m: Any, x: Tensor) -> Any:
    grid = torch.tanh(m.offsets(x)).permute(0, 2, 3, 1)
    return m.head(F.grid_sample(m.stem(x), grid, align_corners=False))


def spatial_transformer(m: Any, x: Tensor) -> Any:
    angles = m.locate(x.flatten(1)).view(-1, 2, 3)
    grid = F.affine_grid(angles, list(x.shape), align_corners=False)
    return m.head(F.grid_sample(x, grid, align_corners=False))


def inverted_residual(m: Any, x: Tensor) -> Any:
    return x + m.project(F.relu6(m.depthwise(F.relu6(m.expand(x)))))


def shuffled(m: Any, x: Tensor) -> Any:
    return m.second(F.channel_shuffle(m.first(x), 2))


def causal(m: Any, x: Tensor) -> Any:
    for layer, dilation in ((m.first, 1), (m.second, 2)):
        x = x + layer(F.pad(x, (2 * dilation, 0))).tanh()
    return x


def correlation(m: Any, x: Tensor) -> Any:
    left, right = m.features(x).flatten(2), m.features(x.flip(3)).flatten(2)
    return m.head((left.mT @ right).unflatten(2, tuple(x.shape[2:])).movedim(1, 1))


def time_major(m: Any, x: Tensor) -> Any:
    return F.conv_tbc(m.layer(x).transpose(0, 1).contiguous(), m.weight, m.bias, pad=1)


def dilated_pyramid(m: Any, x: Tensor) -> Any:
    x = m.stem(x)
    return sum((layer(x) for layer in (m.near, m.far)), m.point(x))


def gradient_of_a_convolution(m: Any, x: Tensor) -> Any:
    """An explicit call: the gradient of the input, as networks that invert others use it."""
    y = m.stem(x)
    return grad.conv2d_input(list(y.shape), m.weight, y, padding=1)


def detector(m: Any, x: Tensor) -> dict[str, Tensor]:
    fine = m.stem(x).relu()
    coarse = m.down(fine).relu()
    levels = [m.lateral(coarse), fine + F.interpolate(coarse, scale_factor=2)]
    return {
        "boxes": torch.cat([m.boxes(level).flatten(2) for level in levels], 2),
        "classes": torch.cat([m.classes(level).flatten(2) for level in levels], 2),
    }


IMAGE = real(2, 3, 8, 8)
PLANES = real(2, 4, 8, 8)

MODELS = [
    built("conv1d", lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.Conv1d(4, 5, 2)), real(2, 3, 9)),
    built("conv2d strided", lambda: nn.Conv2d(3, 5, 3, stride=2, padding=1), IMAGE),
    built("conv2d dilated", lambda: nn.Conv2d(3, 5, 3, dilation=2), IMAGE),
    built("conv2d asymmetric", lambda: nn.Conv2d(3, 5, (1, 5), padding=(0, 2)), IMAGE),
    built("conv2d same", lambda: nn.Conv2d(3, 5, 4, padding="same", bias=False), IMAGE),
    built("conv2d circular", lambda: nn.Conv2d(3, 5, 3, 1, 1, padding_mode="circular"), IMAGE),
    built("conv2d reflect", lambda: nn.Conv2d(3, 5, 3, 1, 1, padding_mode="reflect"), IMAGE),
    built("conv2d without a batch dimension", lambda: Unbatched(), real(2, 8, 8)),
    built("conv3d", lambda: nn.Sequential(nn.Conv3d(2, 3, 3), nn.ReLU()), real(2, 2, 5, 6, 7)),
    built("conv3d two layers", lambda: volumes(), real(2, 2, 6, 6, 6)),
    built("transposed 1-D", lambda: nn.ConvTranspose1d(3, 4, 4, stride=2), real(2, 3, 6)),
    built("transposed 2-D", lambda: generator(), real(2, 6, 1, 1)),
    built("transposed 3-D", lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), real(2, 2, 3, 3, 3)),
    built("transposed dilated", lambda: transposed_dilated(), IMAGE),
    built("transposed grouped", lambda: stemmed(nn.ConvTranspose2d(4, 6, 3, groups=2)), IMAGE),
    built("grouped", lambda: stemmed(nn.Conv2d(4, 6, 3, groups=2)), IMAGE),
    built("grouped 1-D", lambda: nn.Conv1d(4, 6, 3, groups=2), real(2, 4, 9)),
    built("grouped frozen", lambda: stemmed(frozen(nn.Conv2d(4, 6, 3, groups=2))), IMAGE),
    built("depthwise", lambda: stemmed(nn.Conv2d(4, 8, 3, groups=4)), IMAGE),
    built("separable", lambda: separable(), IMAGE),
    applied(
        "residual block",
        residual_block,
        IMAGE,
        stem=conv(3, 4, 3),
        first=conv(4, 4, 3),
        second=conv(4, 4, 3),
        norm=lambda: nn.BatchNorm2d(4),
    ),
    applied(
        "inception",
        inception,
        IMAGE,
        one=conv(3, 2, 1),
        reduce=conv(3, 2, 1),
        three=conv(2, 4, 3),
        pooled=conv(3, 2, 1),
    ),
    applied("dense block", dense_block, IMAGE, first=conv(3, 2, 3), second=conv(5, 2, 3)),
    applied(
        "squeeze and excite",
        squeeze_excite,
        IMAGE,
        stem=conv(3, 4, 3),
        squeeze=linear(4, 2),
        expand=linear(2, 4),
    ),
    applied(
        "u-net",
        unet,
        IMAGE,
        down=conv(3, 4, 3),
        bottom=conv(4, 6, 3),
        head=conv(8, 2, 1),
        up=lambda: nn.ConvTranspose2d(6, 4, 2, stride=2),
    ),
    applied(
        "segmentation",
        segmentation,
        IMAGE,
        encode=conv(3, 4, 3, stride=2),
        classify=conv(4, 5, 1),
    ),
    applied("convolution as a product", as_matrix_product, IMAGE, weight=(5, 3, 3, 3)),
    applied("patches folded back", folded, IMAGE, mix=linear(12, 12)),
    applied("dynamic filters", dynamic_filter, IMAGE, generate=linear(3, 27)),
    applied("weight standardisation", standardised, IMAGE, stem=conv(3, 4, 1), weight=(6, 4, 3, 3)),
    applied(
        "grid sampling",
        warped,
        IMAGE,
        stem=conv(3, 4, 3),
        offsets=conv(3, 2, 3),
        head=conv(4, 2, 1),
    ),
    applied(
        "spatial transformer", spatial_transformer, IMAGE, locate=linear(192, 6), head=conv(3, 2, 3)
    ),
    applied(
        "inverted residual",
        inverted_residual,
        PLANES,
        expand=conv(4, 8, 1),
        depthwise=conv(8, 8, 3, groups=8),
        project=conv(8, 4, 1),
    ),
    applied(
        "channel shuffle",
        shuffled,
        PLANES,
        first=conv(4, 4, 1, groups=2),
        second=conv(4, 4, 1, groups=2),
    ),
    applied(
        "causal dilated",
        causal,
        real(2, 4, 9),
        first=lambda: nn.Conv1d(4, 4, 3),
        second=lambda: nn.Conv1d(4, 4, 3, dilation=2),
    ),
    applied("correlation volume", correlation, IMAGE, features=conv(3, 4, 3), head=conv(64, 2, 1)),
    applied("conv_tbc", time_major, real(2, 7, 3), layer=linear(3, 3), weight=(3, 3, 4), bias=(4,)),
    applied(
        "dilated pyramid",
        dilated_pyramid,
        IMAGE,
        stem=conv(3, 4, 3),
        point=conv(4, 4, 1),
        near=conv(4, 4, 3),
        far=lambda: nn.Conv2d(4, 4, 3, padding=3, dilation=3),
    ),
    applied(
        "detector",
        detector,
        IMAGE,
        stem=conv(3, 4, 3),
        down=conv(4, 4, 3, stride=2),
        lateral=conv(4, 4, 1),
        boxes=conv(4, 4, 3),
        classes=conv(4, 2, 3),
    ),
    applied(
        "explicit convolution gradient",
        gradient_of_a_convolution,
        IMAGE,
        stem=conv(3, 4, 3),
        weight=(4, 4, 3, 3),
    ),
    built(
        "sub-pixel upsampling",
        lambda: nn.Sequential(nn.Conv2d(3, 12, 3), nn.PixelShuffle(2)),
        IMAGE,
    ),
    built("spectral norm convolution", lambda: spectral_norm(nn.Conv2d(3, 4, 3)), IMAGE),
    built(
        "parametrized spectral norm convolution",
        lambda: parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)),
        IMAGE,
    ),
    built("weight norm convolution", lambda: weight_norm(nn.Conv2d(3, 4, 3)), IMAGE),
    built("normalizations", lambda: normalizations(), IMAGE),
    built("poolings", lambda: poolings(), IMAGE),
    built("lazy convolution", lambda: nn.LazyConv2d(4, 3), IMAGE),
]


class Unbatched(nn.Module):
    """A convolution of one image at a time, without a batch dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.conv(image[None]) for image in x])


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def stemmed(module: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), module)


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.MaxPool3d(2), nn.Conv3d(4, 2, (1, 2, 3)))


def generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(6, 4, 4),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1),
        nn.Tanh(),
    )


def transposed_dilated() -> nn.Module:
    return nn.ConvTranspose2d(3, 4, 3, stride=2, dilation=2, output_padding=1)


def separable() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 8, 1))


def normalizations() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1), nn.InstanceNorm2d(4),
        nn.Conv2d(4, 4, 1), nn.LayerNorm((4, 6, 6)), nn.LocalResponseNorm(2),
    )  # fmt: skip


def poolings() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.LPPool2d(2, 2), nn.Conv2d(4, 4, 3, padding=1),
        nn.AvgPool2d(2), nn.Conv2d(4, 4, 1), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip
