"""One training step of a network of convolutions: its forward and backward passes, fused.

Training such a network is limited by memory bandwidth, not by arithmetic: between two convolutions
the plain modules read and write each activation about fourteen times per step. Here the convolution
before a batch normalisation computes its sums where it can, the one after it applies its scale and
the ReLU, and 1×1 convolutions of few channels compute both gradients in one pass. cuDNN computes
all other convolutions.

The gradient of a layer's output is complete once all its consumers have taken their backward
passes. The last of them (the first in the order of layers) can add the other contributions, apply
the mask of the ReLU and compute the sums that the batch normalisation needs, all in its own pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.fused_layers import IMAGE, FusedLayer, FusedLayers
from vflops.models.fused_stem import stem_weight, stem_weight_gradient

if TYPE_CHECKING:
    from vflops.models.kernels.fused_operators import Sums


@dataclass
class _Value:
    """The output of a layer: ``stored``, or ``relu(bn(y))`` until something needs it whole."""

    y: Tensor | None = None
    """What the batch normalisation reads; after the stem, what the pooling selected of it."""
    coefficients: Tensor | None = None
    """Scale, shift, mean and 1/deviation of the batch normalisation."""
    stored: Tensor | None = None
    positions: Tensor | None = None
    """Where a max-pooling found each of its results."""

    def activation(self) -> Tensor:
        """Return the activation, computed if it was not stored."""
        from vflops.models.kernels import fused_operators

        if self.stored is None:
            assert self.y is not None and self.coefficients is not None
            self.stored = fused_operators.normalise(self.y, self.coefficients)
        return self.stored

    @property
    def normalised(self) -> tuple[Tensor, Tensor]:
        """The input of the batch normalisation, and its coefficients."""
        assert self.y is not None and self.coefficients is not None
        return self.y, self.coefficients


@dataclass
class _Gradient:
    """A complete gradient, masked by the ReLU, with its sums for batch normalisations."""

    g: Tensor
    sums: Sums
    product: int = 1
    """The index of the sum with the layer's own y."""


@dataclass
class TrunkStep:
    """One forward and backward pass of a trunk, ended by the mean over pixels.

    In evaluation it is only a forward pass, and batch normalisations use their running statistics.
    """

    trunk: FusedLayers
    dtype: torch.dtype
    evaluates: bool = False
    gradients: dict[Tensor, Tensor] = field(default_factory=dict, init=False)
    _values: dict[int, _Value] = field(default_factory=dict, init=False)
    _contributions: dict[int, list[Tensor]] = field(default_factory=dict, init=False)
    """Gradients of outputs, from the consumers so far; a smaller one is for every second pixel."""
    _complete: dict[int, _Gradient] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        convolutions = [layer.conv for layer in self.trunk.layers if layer.conv is not None]
        masters = [conv.weight.detach() for conv in convolutions]
        weights = [
            torch.empty_like(w, dtype=self.dtype, memory_format=torch.channels_last)
            for w in masters
        ]
        torch._foreach_copy_(weights, masters)
        self._weights = dict(zip(convolutions, weights, strict=True))
        self._running = _running_coefficients(self.trunk.norms) if self.evaluates else {}

    def forward(self, x: Tensor) -> Tensor:
        """Return the features ``[batch, channels]``."""
        for part in range(len(self.trunk.parts)):
            self.forward_part(part, x)
        return self.features()

    def backward(self, gradient: Tensor) -> None:
        """Compute ``gradients`` of all parameters from the gradient of the features."""
        self.begin_backward(gradient)
        for part in reversed(range(len(self.trunk.parts))):
            self.backward_part(part)

    def forward_part(self, part: int, x: Tensor) -> None:
        """Compute the layers of a part, after those of the parts before it; x are the images."""
        layers = self.trunk.parts[part]
        if part == 0 and self.trunk.pooled_stem:
            self._stem_forward(x)
            layers = layers[2:]
        elif part == 0:
            image = x.to(self.dtype).contiguous(memory_format=torch.channels_last)
            self._values[IMAGE] = _Value(stored=image)
        for layer in layers:
            self._values[layer.id] = self._layer_forward(layer)

    def features(self) -> Tensor:
        """Return the features ``[batch, channels]`` after all parts."""
        return self._values[self.trunk.layers[-1].id].activation().mean((2, 3))

    def begin_backward(self, gradient: Tensor) -> None:
        """Start the backward pass with the gradient of the features."""
        last = self.trunk.layers[-1].id
        output = self._values[last].activation()
        area = output.shape[2] * output.shape[3]
        spread = (gradient / area).to(output.dtype)[:, :, None, None].expand_as(output)
        self._contribute(last, spread.contiguous(memory_format=torch.channels_last))

    def backward_part(self, part: int) -> None:
        """Compute the ``gradients`` of a part's parameters, after those of the parts behind it."""
        layers, pooled_stem = self.trunk.parts[part], part == 0 and self.trunk.pooled_stem
        for layer in reversed(layers[2:] if pooled_stem else layers):
            self._layer_backward(layer)
            del self._values[layer.id]
        if pooled_stem:
            self._stem_backward()
        if part == 0:
            self._values.clear()

    def _layer_forward(self, layer: FusedLayer) -> _Value:
        inputs = [self._values[source] for source in layer.inputs]
        match layer.kind:
            case "conv":
                return self._convolve(layer, inputs[0])
            case "norm":
                x = inputs[0].activation()
                return _Value(x, self._normalise(layer, x))
            case "add":
                return self._add(layer)
            case "concat":
                return _Value(stored=torch.cat([value.activation() for value in inputs], 1))
        pooled, positions = functional.max_pool2d(
            inputs[0].activation(),
            layer.kernel,
            layer.stride,
            layer.kernel // 2,
            return_indices=True,
        )
        return _Value(stored=pooled, positions=positions)

    def _convolve(self, layer: FusedLayer, inputs: _Value) -> _Value:
        from vflops.models.kernels import fused_operators

        conv, weight = self._conv(layer)
        sums = None
        if inputs.stored is None and _fuses(conv, fused_operators.FORWARD, inputs.normalised[0]):
            y, sums = fused_operators.conv1x1_forward(*inputs.normalised, weight)
        elif _fuses(conv, fused_operators.FORWARD, inputs.activation()):
            y, sums = fused_operators.conv1x1_forward(inputs.activation(), None, weight)
        else:
            y = functional.conv2d(inputs.activation(), weight, None, conv.stride, conv.padding)
        return _Value(y, self._normalise(layer, y, sums))

    def _add(self, layer: FusedLayer) -> _Value:
        from vflops.models.kernels import fused_operators

        first, second = self._addends(layer)
        shortcut: tuple[Tensor, Tensor | None] = (
            self._values[second].normalised
            if self.trunk.by_id[second].is_normalised
            else (self._values[second].activation(), None)
        )
        return _Value(stored=fused_operators.normalise(*self._values[first].normalised, *shortcut))

    def _addends(self, layer: FusedLayer) -> tuple[int, int]:
        """Return the inputs of an ``add``, beginning with one that ends with a normalisation."""
        first, second = layer.inputs
        return (first, second) if self.trunk.by_id[first].is_normalised else (second, first)

    def _layer_backward(self, layer: FusedLayer) -> None:
        match layer.kind:
            case "conv":
                self._convolution_backward(layer)
            case "norm":
                dx = self._normalise_backward(layer, *self._normalised_gradient(layer))
                self._contribute(layer.inputs[0], dx)
            case "add":
                self._add_backward(layer)
            case "concat":
                self._concat_backward(layer)
            case "max-pool":
                self._pool_backward(layer)

    def _add_backward(self, layer: FusedLayer) -> None:
        first, second = self._addends(layer)
        complete = self._complete.pop(layer.id, None)
        if complete is None:
            complete = self._join(layer)
        g, sums = complete.g, complete.sums
        self._complete[first] = _Gradient(g, sums)
        if self.trunk.by_id[second].is_normalised:
            self._complete[second] = _Gradient(g, sums, product=2)
        else:
            self._contribute(second, g)

    def _join(self, layer: FusedLayer) -> _Gradient:
        """Return the complete gradient of an ``add`` from the contributions of its consumers."""
        from vflops.models.kernels import fused_operators

        output, (y, y_other) = self._output(layer.id), self._sum_with(layer)
        assert y is not None
        parts = self._contributions.pop(layer.id)
        parts.sort(key=lambda part: part.shape != output.shape)  # whole ones first
        if len(parts) > 2 or parts[0].shape != output.shape:
            parts = [_sum(parts, output)]
        shortcut = parts[1] if len(parts) > 1 else None
        return _Gradient(*fused_operators.join_gradients(parts[0], shortcut, output, y, y_other))

    def _sum_with(self, layer: FusedLayer) -> tuple[Tensor | None, Tensor | None]:
        """Return the tensors whose products with a layer's gradient its normalisations need."""
        if layer.kind != "add":
            return self._values[layer.id].y, None
        first, second = self._addends(layer)
        other = self._values[second].y if self.trunk.by_id[second].is_normalised else None
        return self._values[first].y, other

    def _concat_backward(self, layer: FusedLayer) -> None:
        sizes = [self._output(source).shape[1] for source in layer.inputs]
        for source, part in zip(layer.inputs, self._total(layer.id).split(sizes, 1), strict=True):
            self._contribute(source, part.contiguous(memory_format=torch.channels_last))

    def _pool_backward(self, layer: FusedLayer) -> None:
        pad, positions = layer.kernel // 2, self._values[layer.id].positions
        dx = torch.ops.aten.max_pool2d_with_indices_backward(
            self._total(layer.id),
            self._output(layer.inputs[0]),
            [layer.kernel] * 2,
            [layer.stride] * 2,
            [pad, pad],
            [1, 1],
            False,
            positions,
        )
        self._contribute(layer.inputs[0], dx)

    def _convolution_backward(self, layer: FusedLayer) -> None:
        from vflops.models.kernels import fused_operators

        conv, weight = self._conv(layer)
        g, coefficients, masked = self._normalised_gradient(layer)
        source = layer.inputs[0]
        if source != IMAGE and _fuses(conv, fused_operators.BACKWARD, g):
            self._fused_backward(layer, g, coefficients, masked)
            return
        dy = self._normalise_backward(layer, g, coefficients, masked)
        x = self._output(source)
        halves = _halves(conv, x)
        wanted = (source != IMAGE and not halves, True)
        dx, dw = _conv_backward(dy, x, weight, conv.stride[0], int(conv.padding[0]), wanted)
        assert dw is not None
        self.gradients[conv.weight] = dw
        if halves:  # the gradient of every second pixel; that of the others is 0
            rows = dy.permute(0, 2, 3, 1).flatten(0, 2) @ weight[:, :, 0, 0]
            batch, _, height, width = dy.shape
            dx = rows.view(batch, height, width, -1).permute(0, 3, 1, 2)
        if dx is not None:
            self._contribute(source, dx)

    def _fused_backward(
        self, layer: FusedLayer, g: Tensor, coefficients: Tensor, masked: bool
    ) -> None:
        """Compute both gradients of a 1×1 convolution in one pass.

        If no other consumer of its input is left, the pass also completes the input's gradient.
        """
        from vflops.models.kernels import fused_operators

        conv, weight = self._conv(layer)
        y, bn = self._values[layer.id].normalised
        source = layer.inputs[0]
        inputs, producer = self._values[source], self.trunk.by_id[source]
        reads_y = inputs.coefficients is not None  # x is relu(bn(y)), which the kernel computes
        x = inputs.normalised[0] if reads_y else inputs.activation()
        completes = self.trunk.consumers[source][0] is layer
        sums_with = self._sum_with(producer) if completes else (None, None)
        shortcut = self._shortcut(source, x) if completes else None
        dx, dw, sums = fused_operators.conv1x1_backward(
            g,
            y,
            bn,
            coefficients,
            weight,
            x,
            inputs.coefficients,
            own_mask=not masked,
            shortcut=shortcut,
            y_before=sums_with[0],
            y_other=sums_with[1],
            mask=sums_with[0] is not None,
        )
        self.gradients[conv.weight] = dw[:, :, None, None]
        if sums is not None:
            self._complete[source] = _Gradient(dx, sums)
        else:
            self._contribute(source, dx)

    def _shortcut(self, source: int, x: Tensor) -> Tensor | None:
        """Return the sum of the other contributions to an output's gradient, if there are any."""
        contributions = self._contributions.pop(source, [])
        if len(contributions) > 1:
            return _sum(contributions, x)
        return contributions[0] if contributions else None

    def _normalised_gradient(self, layer: FusedLayer) -> tuple[Tensor, Tensor, bool]:
        """Return the gradient of a layer's output, the coefficients of its normalisation's backward
        pass, and whether the ReLU's mask has been applied."""
        from vflops.models.kernels import fused_operators

        complete = self._complete.pop(layer.id, None)
        if complete is not None:
            return complete.g, self._coefficients(layer, complete), True
        g = self._total(layer.id)
        sums = fused_operators.gradient_sums(g, *self._values[layer.id].normalised)
        return g, self._coefficients(layer, _Gradient(g, sums)), False

    def _normalise_backward(
        self, layer: FusedLayer, g: Tensor, coefficients: Tensor, masked: bool
    ) -> Tensor:
        from vflops.models.kernels import fused_operators

        y, bn = self._values[layer.id].normalised
        return fused_operators.normalise_backward(g, y, bn, coefficients, mask=not masked)

    def _stem_forward(self, x: Tensor) -> None:
        from vflops.models.kernels import stem_operators

        stem, pool = self.trunk.layers[:2]
        _, weight = self._conv(stem)
        self._images = stem_operators.space_to_depth(x, self.dtype)
        y, sums = stem_operators.stem_forward(self._images, stem_weight(weight))
        coefficients = self._normalise(stem, y, sums)
        chosen, positions = stem_operators.pool_forward(y, coefficients)
        self._values[stem.id] = _Value(y, coefficients)
        self._values[pool.id] = _Value(chosen, coefficients, positions=positions)

    def _stem_backward(self) -> None:
        from vflops.models.kernels import fused_operators, stem_operators

        stem, pool = self.trunk.layers[:2]
        conv, _ = self._conv(stem)
        pooled = self._values[pool.id]
        complete = self._complete.pop(pool.id, None)
        if complete is None:
            g, output = self._total(pool.id), pooled.activation()
            complete = _Gradient(
                *fused_operators.join_gradients(g, None, output, pooled.normalised[0], None)
            )
        coefficients = self._coefficients(stem, complete)
        y, _ = self._values[stem.id].normalised
        assert pooled.positions is not None
        dw = stem_operators.stem_backward(
            complete.g, pooled.positions, y, coefficients, self._images
        )
        self.gradients[conv.weight] = stem_weight_gradient(dw, conv.in_channels)

    def _conv(self, layer: FusedLayer) -> tuple[nn.Conv2d, Tensor]:
        """Return a layer's convolution and its weight in the dtype of the activations."""
        assert layer.conv is not None
        return layer.conv, self._weights[layer.conv]

    def _output(self, id: int) -> Tensor:
        return self._values[id].activation()

    def _contribute(self, id: int, gradient: Tensor) -> None:
        self._contributions.setdefault(id, []).append(gradient)

    def _total(self, id: int) -> Tensor:
        """Return the gradient of an output: the sum of all contributions."""
        contributions = self._contributions.pop(id)
        value = self._values[id]
        like = value.y if value.y is not None else value.activation()
        return _sum(contributions, like)

    def _normalise(self, layer: FusedLayer, y: Tensor, sums: Sums | None = None) -> Tensor:
        """Return the coefficients of a layer's batch normalisation of y.

        ``sums`` are those of y and y², if the convolution has computed them.
        """
        from vflops.models.kernels import fused_operators

        bn = layer.bn
        assert bn is not None and bn.running_mean is not None and bn.running_var is not None
        if self.evaluates:
            return self._running[bn]
        return fused_operators.forward_coefficients(
            sums or fused_operators.channel_sums(y),
            fused_operators.pixels(y),
            bn.weight.detach(),
            bn.bias.detach(),
            bn.running_mean,
            bn.running_var,
            0.1 if bn.momentum is None else bn.momentum,
            bn.eps,
        )

    def _coefficients(self, layer: FusedLayer, gradient: _Gradient) -> Tensor:
        from vflops.models.kernels import fused_operators

        bn = layer.bn
        assert bn is not None
        y, forward = self._values[layer.id].normalised
        coefficients, dweight, dbias = fused_operators.backward_coefficients(
            gradient.sums, fused_operators.pixels(y), bn.weight.detach(), forward, gradient.product
        )
        self.gradients[bn.weight] = dweight
        self.gradients[bn.bias] = dbias
        return coefficients


def _running_coefficients(norms: Sequence[nn.BatchNorm2d]) -> dict[nn.BatchNorm2d, Tensor]:
    """Return scale and shift ``[2, channels]`` of batch normalisations in evaluation."""
    variances = torch._foreach_add([_buffer(n.running_var) for n in norms], [n.eps for n in norms])
    scales = torch._foreach_div([n.weight.detach() for n in norms], torch._foreach_sqrt(variances))
    shifts = torch._foreach_mul([_buffer(n.running_mean) for n in norms], scales)
    shifts = torch._foreach_sub([n.bias.detach() for n in norms], shifts)
    pairs = zip(scales, shifts, strict=True)
    return {norm: torch.stack(pair) for norm, pair in zip(norms, pairs, strict=True)}


def _buffer(statistics: Tensor | None) -> Tensor:
    assert statistics is not None
    return statistics


def _sum(contributions: list[Tensor], like: Tensor) -> Tensor:
    """Return the sum of gradients of the shape of ``like``, or of every second pixel of it."""
    whole = [part for part in contributions if part.shape == like.shape]
    halves = [part for part in contributions if part.shape != like.shape]
    total = sum(whole[1:], whole[0]) if whole else torch.zeros_like(like)
    if halves:
        if len(whole) == 1:
            total = total.clone()  # others may still read it
        total[:, :, ::2, ::2] += sum(halves[1:], halves[0])
    return total


def _conv_backward(
    dy: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int, wanted: tuple[bool, bool]
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


def _halves(conv: nn.Conv2d, x: Tensor) -> bool:
    """Whether a convolution reads every second pixel of ``x``, and no others."""
    even = (x.shape[2] % 2, x.shape[3] % 2) == (0, 0)
    return conv.kernel_size == (1, 1) and conv.stride == (2, 2) and even


def _fuses(conv: nn.Conv2d, measured: dict[tuple[int, int], Any], x: Tensor) -> bool:
    """Whether there is a kernel for a convolution of the pixels of ``x``."""
    from vflops.models.kernels import fused_operators

    tile = measured.get((conv.in_channels, conv.out_channels))
    if tile is None or (conv.kernel_size, conv.stride) != ((1, 1), (1, 1)):
        return False
    return fused_operators.pixels(x) % int(tile.rows) == 0
