"""One training step of the fused ResNet's trunk: its forward and backward passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.fused_stem import stem_weight, stem_weight_gradient
from vflops.models.resnet import Bottleneck, ResNet

if TYPE_CHECKING:
    from vflops.models.kernels.fused_operators import Sums


@dataclass
class _Layer:
    """A convolution with its batch normalisation, and what its backward pass needs."""

    conv: nn.Conv2d
    bn: nn.BatchNorm2d
    weight: Tensor
    """The weight in the dtype of the activations."""
    y: Tensor = field(init=False)
    """The output of the convolution."""
    coefficients: Tensor = field(init=False)
    """Scale, shift, mean and 1/deviation of the batch normalisation."""


@dataclass
class _Input:
    """The input of a layer: ``x``, or ``relu(bn(x))`` if there are ``coefficients``."""

    x: Tensor
    coefficients: Tensor | None = None

    def activation(self) -> Tensor:
        """Return the activation, computed if it was not stored."""
        from vflops.models.kernels import fused_operators

        if self.coefficients is None:
            return self.x
        self.x, self.coefficients = fused_operators.normalise(self.x, self.coefficients), None
        return self.x


@dataclass
class _Block:
    """A bottleneck block, and what its backward pass needs."""

    first: _Layer
    second: _Layer
    third: _Layer
    projection: _Layer | None
    inputs: _Input = field(init=False)
    middle: Tensor = field(init=False)
    """The input of the 3×3 convolution."""
    output: Tensor = field(init=False)


class TrunkStep:
    """One forward and backward pass of the trunk: stem, stages and the average over pixels."""

    def __init__(self, model: ResNet, dtype: torch.dtype) -> None:
        self.gradients: dict[Tensor, Tensor] = {}
        convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
        masters = [conv.weight.detach() for conv in convolutions]
        weights = [
            torch.empty_like(w, dtype=dtype, memory_format=torch.channels_last) for w in masters
        ]
        torch._foreach_copy_(weights, masters)
        cast = dict(zip(convolutions, weights, strict=True))

        def layer(conv: nn.Module, bn: nn.Module) -> _Layer:
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(bn, nn.BatchNorm2d)
            return _Layer(conv, bn, cast[conv])

        self.stem = layer(model.stem[0], model.stem[1])
        self.blocks = [
            _Block(
                layer(block.conv1, block.bn1),
                layer(block.conv2, block.bn2),
                layer(block.conv3, block.bn3),
                None if block.projection is None else layer(*_children(block.projection)),
            )
            for block in model.modules()
            if isinstance(block, Bottleneck)
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Return the features ``[batch, channels]``."""
        from vflops.models.kernels import stem_operators

        stem = self.stem
        self.images = stem_operators.space_to_depth(x, stem.weight.dtype)
        stem.y, sums = stem_operators.stem_forward(self.images, stem_weight(stem.weight))
        self._normalise(stem, sums)
        chosen, self.where = stem_operators.pool_forward(stem.y, stem.coefficients)
        inputs = _Input(chosen, stem.coefficients)
        for block in self.blocks:
            inputs = _Input(self._block_forward(block, inputs))
        return inputs.x.mean((2, 3))

    def backward(self, gradient: Tensor) -> None:
        """Compute ``gradients`` of all parameters from the gradient of the features."""
        from vflops.models.kernels import fused_operators, stem_operators

        last = self.blocks[-1]
        area = last.output.shape[2] * last.output.shape[3]
        spread = (gradient / area).to(last.output.dtype)[:, :, None, None]
        spread = spread.expand_as(last.output).contiguous(memory_format=torch.channels_last)
        g, sums = fused_operators.join_gradients(spread, None, last.output, last.third.y, None)
        for block, previous in zip(
            reversed(self.blocks), [*reversed(self.blocks[:-1]), None], strict=True
        ):
            g, sums = self._block_backward(block, previous, g, sums)
        stem = self.stem
        coefficients = self._coefficients(stem, sums)
        dw = stem_operators.stem_backward(g, self.where, stem.y, coefficients, self.images)
        self.gradients[stem.conv.weight] = stem_weight_gradient(dw, stem.conv.in_channels)

    def _block_forward(self, block: _Block, inputs: _Input) -> Tensor:
        from vflops.models.kernels import fused_operators

        block.inputs = inputs
        if block.projection is not None:
            self._convolve(block.projection, inputs)
        self._convolve(block.first, inputs)
        block.middle = fused_operators.normalise(block.first.y, block.first.coefficients)
        self._convolve(block.second, _Input(block.middle))
        self._convolve(block.third, _Input(block.second.y, block.second.coefficients))
        if block.projection is None:
            shortcut, shortcut_bn = inputs.activation(), None
        else:
            shortcut, shortcut_bn = block.projection.y, block.projection.coefficients
        block.output = fused_operators.normalise(
            block.third.y, block.third.coefficients, shortcut, shortcut_bn
        )
        return block.output

    def _block_backward(
        self, block: _Block, previous: _Block | None, g: Tensor, sums: Sums
    ) -> tuple[Tensor, Sums]:
        # g is the gradient before the block's last ReLU, sums are those of its last BN. Returns
        # the same for the previous block, or for the stem.
        from vflops.models.kernels import fused_operators

        first, second, third = block.first, block.second, block.third
        coefficients = self._coefficients(third, sums)
        inputs = _Input(second.y, second.coefficients)
        fused = _fuses(third.conv, fused_operators.BACKWARD)
        if fused:
            g_second, dw, second_sums = fused_operators.conv1x1_backward(
                g,
                third.y,
                third.coefficients,
                coefficients,
                third.weight,
                second.y,
                second.coefficients,
                own_mask=False,
                shortcut=None,
                y_before=second.y,
                mask=True,
            )
            self.gradients[third.conv.weight] = dw[:, :, None, None]
            assert second_sums is not None
        else:
            g_second = self._conv_backward(third, g, coefficients, inputs.activation(), mask=False)
            second_sums = fused_operators.gradient_sums(g_second, second.y, second.coefficients)
        coefficients = self._coefficients(second, second_sums)
        g_first = self._conv_backward(second, g_second, coefficients, block.middle, mask=not fused)
        first_sums = fused_operators.gradient_sums(g_first, first.y, first.coefficients)
        coefficients = self._coefficients(first, first_sums)
        shortcut = g if block.projection is None else self._projection_backward(block, g, sums)
        return self._first_backward(block, previous, g_first, coefficients, shortcut)

    def _first_backward(
        self,
        block: _Block,
        previous: _Block | None,
        g: Tensor,
        coefficients: Tensor,
        shortcut: Tensor,
    ) -> tuple[Tensor, Sums]:
        from vflops.models.kernels import fused_operators

        first, inputs = block.first, block.inputs
        y_before, y_other = inputs.x, None
        if previous is not None:
            y_before = previous.third.y
            y_other = None if previous.projection is None else previous.projection.y
        if previous is None or _fuses(first.conv, fused_operators.BACKWARD):
            dx, dw, sums = fused_operators.conv1x1_backward(
                g,
                first.y,
                first.coefficients,
                coefficients,
                first.weight,
                inputs.x,
                inputs.coefficients,
                own_mask=True,
                shortcut=shortcut,
                y_before=y_before,
                y_other=y_other,
                mask=True,
            )
            self.gradients[first.conv.weight] = dw[:, :, None, None]
            assert sums is not None
            return dx, sums
        dx = self._conv_backward(first, g, coefficients, inputs.x, mask=True)
        return fused_operators.join_gradients(dx, shortcut, inputs.x, y_before, y_other)

    def _projection_backward(self, block: _Block, g: Tensor, sums: Sums) -> Tensor:
        # Returns the gradient of the shortcut, for every second pixel if the stride is 2.
        from vflops.models.kernels import fused_operators

        layer, inputs = block.projection, block.inputs
        assert layer is not None
        if sums.partial.shape[1] == 2:  # the last block of the trunk, whose sums lack this product
            sums = fused_operators.gradient_sums(g, layer.y, None)
            coefficients = self._coefficients(layer, sums)
        else:
            coefficients = self._coefficients(layer, sums, product=2)
        if _fuses(layer.conv, fused_operators.BACKWARD):
            dx, dw, _ = fused_operators.conv1x1_backward(
                g,
                layer.y,
                layer.coefficients,
                coefficients,
                layer.weight,
                inputs.x,
                inputs.coefficients,
                own_mask=False,
                shortcut=None,
                y_before=None,
                mask=False,
            )
            self.gradients[layer.conv.weight] = dw[:, :, None, None]
            return dx
        dy = fused_operators.normalise_backward(
            g, layer.y, layer.coefficients, coefficients, mask=False
        )
        stride = layer.conv.stride[0]
        _, dw_library = _conv_backward(
            dy, inputs.activation(), layer.weight, stride, 0, (False, True)
        )
        assert dw_library is not None
        self.gradients[layer.conv.weight] = dw_library
        rows = dy.permute(0, 2, 3, 1).flatten(0, 2) @ layer.weight[:, :, 0, 0]
        batch, _, height, width = dy.shape
        return rows.view(batch, height, width, -1).permute(0, 3, 1, 2)

    def _convolve(self, layer: _Layer, inputs: _Input) -> None:
        from vflops.models.kernels import fused_operators

        if _fuses(layer.conv, fused_operators.FORWARD):
            layer.y, sums = fused_operators.conv1x1_forward(
                inputs.x, inputs.coefficients, layer.weight
            )
        else:
            conv = layer.conv
            layer.y = functional.conv2d(
                inputs.activation(), layer.weight, None, conv.stride, conv.padding
            )
            sums = fused_operators.channel_sums(layer.y)
        self._normalise(layer, sums)

    def _conv_backward(
        self, layer: _Layer, g: Tensor, coefficients: Tensor, x: Tensor, *, mask: bool
    ) -> Tensor:
        from vflops.models.kernels import fused_operators

        dy = fused_operators.normalise_backward(
            g, layer.y, layer.coefficients, coefficients, mask=mask
        )
        conv = layer.conv
        padding = int(conv.padding[0])
        dx, dw = _conv_backward(dy, x, layer.weight, conv.stride[0], padding, (True, True))
        assert dx is not None
        assert dw is not None
        self.gradients[conv.weight] = dw
        return dx

    def _normalise(self, layer: _Layer, sums: Sums) -> None:
        from vflops.models.kernels import fused_operators

        bn = layer.bn
        assert bn.running_mean is not None
        assert bn.running_var is not None
        layer.coefficients = fused_operators.forward_coefficients(
            sums,
            fused_operators.pixels(layer.y),
            bn.weight.detach(),
            bn.bias.detach(),
            bn.running_mean,
            bn.running_var,
            0.1 if bn.momentum is None else bn.momentum,
            bn.eps,
        )

    def _coefficients(self, layer: _Layer, sums: Sums, product: int = 1) -> Tensor:
        from vflops.models.kernels import fused_operators

        coefficients, dweight, dbias = fused_operators.backward_coefficients(
            sums,
            fused_operators.pixels(layer.y),
            layer.bn.weight.detach(),
            layer.coefficients,
            product,
        )
        self.gradients[layer.bn.weight] = dweight
        self.gradients[layer.bn.bias] = dbias
        return coefficients


def _conv_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: int,
    padding: int,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    dx, dw, _ = torch.ops.aten.convolution_backward(
        dy,
        x,
        weight,
        None,
        [stride, stride],
        [padding, padding],
        [1, 1],
        False,
        [0, 0],
        1,
        [*wanted, False],
    )
    return dx, dw


def _fuses(conv: nn.Conv2d, measured: dict[tuple[int, int], Any]) -> bool:
    shape = (conv.in_channels, conv.out_channels)
    return conv.kernel_size == (1, 1) and conv.stride == (1, 1) and shape in measured


def _children(projection: nn.Module) -> tuple[nn.Module, nn.Module]:
    conv, bn = projection.children()
    return conv, bn
