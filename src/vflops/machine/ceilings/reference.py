"""Estimates the errors of products and convolutions relative to float64.

The estimate is fast enough for each trial, while a full float64 reference would take longer than
the computation that it checks. With a Gaussian
matrix X, E‖D·X‖² = columns·‖D‖² for every D, so ‖(C − A·B)·X‖ / ‖A·B·X‖ estimates the relative
Frobenius error of C over all its elements, and A·(B·X) takes only a few matrix-vector products
(Freivalds). For a convolution the channels are mixed in the same way, and the rest is computed tap
by tap, without the library under test. If an output contains NaN, the error is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch

from vflops.machine.ceilings.convolution_shapes import ConvolutionShape
from vflops.machine.devices import threads

_VECTORS = 8
_CHUNK_NUMBERS = 1 << 24
"""Number of elements that are converted to float64 at a time."""
_SERIAL_NUMBERS = 1 << 22


def product_error(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, generator: torch.Generator
) -> float:
    """Return the relative Frobenius error of ``out``, the result of ``a @ b``."""
    with _few_threads(a.numel() + b.numel() + out.numel()):
        vectors = _mixture(out.shape[1], generator)
        expected = _multiply_in_parts(a, _multiply_in_parts(b, vectors))
        return relative_error(_multiply_in_parts(out, vectors), expected)


def convolution_error(
    shape: ConvolutionShape,
    direction: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    gradient: torch.Tensor,
    result: torch.Tensor,
    generator: torch.Generator,
) -> float:
    """Return the relative Frobenius error of ``result``, computed in ``direction``.

    ``x`` is the input of the convolution, and ``gradient`` the gradient of its output.
    """
    with _few_threads(x.numel() + weight.numel() + gradient.numel()):
        if direction == "weight-gradient":
            mixture = _mixture(shape.channels_out, generator)
            expected = _weight_gradient(shape, x, gradient, mixture)
            actual = torch.einsum("oikl,om->ikml", result.double(), mixture)
            return relative_error(actual, expected)
        if direction == "forward":
            mixture = _mixture(shape.channels_out, generator)
            mixed = torch.einsum("oikl,om->klim", weight.double(), mixture)
            return _error_over_images(_forward, shape, x, mixed, result, mixture)
        mixture = _mixture(shape.channels_in, generator)
        mixed = torch.einsum("oikl,im->klom", weight.double(), mixture)
        return _error_over_images(_input_gradient, shape, gradient, mixed, result, mixture)


def relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return ‖result − expected‖ / ‖expected‖ in float64."""
    expected = expected.double()
    return float((result.double() - expected).norm() / expected.norm())


def _few_threads(numbers: int) -> AbstractContextManager[None]:
    """Use one thread for small operands: waking more threads takes longer than the work."""
    return threads(1 if numbers < _SERIAL_NUMBERS else None)


def _mixture(rows: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(
        rows, _VECTORS, dtype=torch.float64, device=generator.device, generator=generator
    )


def _parts(tensor: torch.Tensor, row_numbers: int) -> Iterator[torch.Tensor]:
    """Split ``tensor`` along its first dimension, so that float64 copies of the parts are small."""
    step = max(_CHUNK_NUMBERS // row_numbers, 1)
    return (tensor[start : start + step] for start in range(0, tensor.shape[0], step))


def _multiply_in_parts(matrix: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.double() @ vectors for part in _parts(matrix, matrix.shape[1])])


def _error_over_images(
    apply: Callable[[ConvolutionShape, torch.Tensor, torch.Tensor], torch.Tensor],
    shape: ConvolutionShape,
    operand: torch.Tensor,
    mixed: torch.Tensor,
    result: torch.Tensor,
    mixture: torch.Tensor,
) -> float:
    error_squared = expected_squared = 0.0
    numbers = shape.numbers
    for images, outputs in zip(_parts(operand, numbers), _parts(result, numbers), strict=True):
        expected = apply(shape, _channels_last_double(images), mixed)
        error_squared += float((_channels_last_double(outputs) @ mixture - expected).norm()) ** 2
        expected_squared += float(expected.norm()) ** 2
    return math.sqrt(error_squared / expected_squared)


def _channels_last_double(images: torch.Tensor) -> torch.Tensor:
    """Return images in float64, channels last."""
    return images.permute(0, 2, 3, 1).double()


def _taps(shape: ConvolutionShape) -> Iterator[tuple[int, int, slice, slice]]:
    """Yield every tap of the kernel with the padded rows and columns that it reads."""
    for row in range(shape.kernel):
        for column in range(shape.kernel):
            rows = slice(row, row + shape.stride * (shape.height_out - 1) + 1, shape.stride)
            columns = slice(column, column + shape.stride * (shape.width_out - 1) + 1, shape.stride)
            yield row, column, rows, columns


def _padded(shape: ConvolutionShape, rows: torch.Tensor) -> torch.Tensor:
    edge = shape.padding
    return torch.nn.functional.pad(rows, (0, 0, edge, edge, edge, edge))


def _forward(shape: ConvolutionShape, rows: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    padded = _padded(shape, rows)
    return sum(
        (padded[:, high, wide] @ mixed[row, column] for row, column, high, wide in _taps(shape)),
        start=torch.zeros((), dtype=rows.dtype, device=rows.device),
    )


def _input_gradient(
    shape: ConvolutionShape, rows: torch.Tensor, mixed: torch.Tensor
) -> torch.Tensor:
    edge = shape.padding
    padded = rows.new_zeros(
        rows.shape[0], shape.height + 2 * edge, shape.width + 2 * edge, mixed.shape[-1]
    )
    for row, column, high, wide in _taps(shape):
        padded[:, high, wide] += rows @ mixed[row, column]
    return padded[:, edge : edge + shape.height, edge : edge + shape.width]


def _weight_gradient(
    shape: ConvolutionShape, x: torch.Tensor, gradient: torch.Tensor, mixture: torch.Tensor
) -> torch.Tensor:
    """Return the gradient by input channel, kernel row, mixture and kernel column."""
    kernel = shape.kernel
    total = mixture.new_zeros(shape.channels_in, kernel, mixture.shape[1], kernel)
    numbers = shape.numbers
    for part, outer in zip(_parts(x, numbers), _parts(gradient, numbers), strict=True):
        padded = _padded(shape, _channels_last_double(part))
        mixed = (_channels_last_double(outer) @ mixture).flatten(0, 2)
        for row, column, high, wide in _taps(shape):
            total[:, row, :, column] += padded[:, high, wide].flatten(0, 2).t() @ mixed
    return total
