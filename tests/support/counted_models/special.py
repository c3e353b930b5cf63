"""Experts, graphs, linear algebra, complex and sparse numbers, and unusual gradients."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.support.counted_models.definition import (
    VOCABULARY,
    applied,
    built,
    conv,
    linear,
    real,
    tokens,
)

# Experts


def all_experts(m: Any, x: Tensor) -> Any:
    weights = m.gate(x).softmax(-1)
    return torch.einsum("be,ebj->bj", weights, torch.einsum("bi,eij->ebj", x, m.experts))


def gathered_experts(m: Any, x: Tensor) -> Any:
    """The two best experts of each row, by gathering their weights."""
    weights, chosen = m.gate(x).softmax(-1).topk(2)
    outputs = torch.einsum("bi,bkij->bkj", x, m.experts[chosen])
    return (weights[..., None] * outputs).sum(1)


def soft_experts(m: Any, x: Tensor) -> Any:
    scores = torch.einsum("bnd,eds->bnes", x, m.slots)
    entering = torch.einsum("bnd,bnes->besd", x, scores.softmax(1))
    outputs = torch.einsum("besd,edf->besf", entering, m.experts)
    return torch.einsum("besf,bnes->bnf", outputs, scores.flatten(2).softmax(-1).view_as(scores))


def experts_choose(m: Any, x: Tensor) -> Any:
    weights, rows = m.gate(x).softmax(-1).t().topk(2)
    outputs = torch.bmm(x[rows], m.experts) * weights[..., None]
    return (
        torch.zeros_like(outputs[0, :1])
        .expand(x.shape[0], -1)
        .index_add(0, rows.flatten(), outputs.flatten(0, 1))
    )


def masked_experts(m: Any, x: Tensor) -> Any:
    chosen = m.gate(x).argmax(-1)
    result = torch.zeros_like(x)
    for number in range(2):
        rows = chosen == number
        result[rows] = x[rows] @ m.experts[number]
    return result


def grouped_experts(m: Any, x: Tensor) -> Any:
    ends = torch.tensor([2, 6, 8], dtype=torch.int32, device=x.device)
    hidden = torch._grouped_mm(x.bfloat16(), m.experts.bfloat16(), offs=ends)
    return m.out(hidden.float())


# Graphs


def graph_convolution(m: Any, x: Tensor, edges: Tensor) -> Any:
    degrees = edges.sum(-1, keepdim=True).abs() + 1
    return m.second((edges / degrees) @ m.first((edges / degrees) @ x).relu())


def graph_attention(m: Any, x: Tensor, edges: Tensor) -> Any:
    x = m.mix(x)
    scores = F.leaky_relu(m.left(x) + m.right(x).mT)
    return scores.masked_fill(edges < 0, -1e9).softmax(-1) @ x


def message_passing(m: Any, x: Tensor, pairs: Tensor) -> Any:
    sources, targets = pairs.unbind(1)
    messages = m.message(torch.cat([x[sources], x[targets]], -1)).relu()
    return m.update(torch.zeros_like(x).index_add(0, targets, messages))


def scatter_reduce(m: Any, x: Tensor, pairs: Tensor) -> Any:
    sources, targets = pairs.unbind(1)
    index = targets[:, None].expand(-1, x.shape[1])
    sums = torch.zeros_like(x).scatter_reduce(0, index, m.message(x)[sources], "amax")
    return m.update(sums)


def sparse_adjacency(m: Any, x: Tensor) -> Any:
    places = torch.tensor([[0, 1, 2], [1, 2, 3]], device=x.device)
    edges = torch.sparse_coo_tensor(places, torch.ones(3, device=x.device), (4, 4))
    return torch.sparse.mm(edges, m.layer(x))


# Linear algebra


def inverse(m: Any, x: Tensor) -> Any:
    return x @ torch.linalg.inv(m.weight @ m.weight.t() + 4 * torch.eye(6, device=x.device))


def solved(m: Any, x: Tensor) -> Any:
    return torch.linalg.solve(m.weight + 9 * torch.eye(6, device=x.device), x.t())


def solved_vector(m: Any, x: Tensor) -> Any:
    return torch.linalg.solve(m.weight + 9 * torch.eye(6, device=x.device), x)


def gaussian_process(m: Any, x: Tensor) -> Any:
    points = m.embed(x)
    covariance = points @ points.t() + 3 * torch.eye(x.shape[0], device=x.device)
    lower = torch.linalg.cholesky(covariance)
    whitened = torch.linalg.solve_triangular(lower, x[:, :1], upper=False)
    return whitened.square().sum() + lower.diagonal().log().sum()


def cholesky_solved(m: Any, x: Tensor) -> Any:
    points = m.embed(x)
    lower = torch.linalg.cholesky(points @ points.t() + 3 * torch.eye(4, device=x.device))
    return torch.cholesky_solve(x, lower)


def whitening(m: Any, x: Tensor) -> Any:
    points = m.embed(x)
    values, vectors = torch.linalg.eigh(points.t() @ points)
    return points @ vectors @ (values.abs() + 1).rsqrt().diag() @ vectors.t()


def eigenvalues(m: Any, x: Tensor) -> Any:
    return torch.linalg.eigvalsh(m.embed(x).t() @ m.embed(x))


def singular_values(m: Any, x: Tensor) -> Any:
    return torch.linalg.svdvals(m.embed(x))


def singular_vectors(m: Any, x: Tensor) -> Any:
    left, values, right = torch.linalg.svd(m.embed(x), full_matrices=False)
    return (left * values.log1p()) @ right


def orthonormal(m: Any, x: Tensor) -> Any:
    return x @ torch.linalg.qr(m.weight).Q


def log_determinant(m: Any, x: Tensor) -> Any:
    return F.linear(x, m.weight).sum() - torch.linalg.slogdet(m.weight).logabsdet


def determinant(m: Any, x: Tensor) -> Any:
    return x.sum() * torch.linalg.det(m.weight)


def rotation(m: Any, x: Tensor) -> Any:
    return x @ torch.linalg.matrix_exp(m.weight - m.weight.t())


def matrix_power(m: Any, x: Tensor) -> Any:
    return x @ torch.linalg.matrix_power(m.weight, 5)


def pseudo_inverse(m: Any, x: Tensor) -> Any:
    return x @ torch.linalg.pinv(m.weight)


def least_squares(m: Any, x: Tensor) -> Any:
    return torch.linalg.lstsq(m.weight, x).solution


def newton_schulz(m: Any, x: Tensor) -> Any:
    weight = m.weight / m.weight.norm()
    for _ in range(3):
        square = weight @ weight.t()
        weight = 2 * weight - 1.5 * square @ weight + 0.5 * square @ square @ weight
    return x @ weight


def norms(m: Any, x: Tensor) -> Any:
    return x.sum() * (torch.linalg.norm(m.weight) + torch.linalg.matrix_norm(m.weight, 2))


def householder(m: Any, x: Tensor) -> Any:
    for vector in m.vectors.unbind(0):
        x = x - 2 * (x @ vector)[:, None] * vector / (vector @ vector)
    return x


# Flows, diffusion and solvers


def coupling(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    left, right = x.chunk(2, -1)
    scale, shift = m.net(left).chunk(2, -1)
    return torch.cat([left, right * scale.exp() + shift], -1), scale.sum()


def denoising(m: Any, x: Tensor, time: Tensor) -> Any:
    frequencies = torch.arange(2, device=x.device).exp()
    angles = time.float()[:, None] * frequencies
    features = m.time(torch.cat([angles.sin(), angles.cos()], -1))
    noise = torch.randn_like(x)
    hidden = F.silu(m.enter(x + noise) + features[:, :, None, None])
    return F.mse_loss(m.leave(hidden), noise)


def runge_kutta(m: Any, x: Tensor) -> Any:
    for _ in range(2):
        slope = m.field(x).tanh()
        x = x + m.field(x + slope / 2).tanh()
    return x


def capsules(m: Any, x: Tensor) -> Any:
    votes = torch.einsum("bid,iodk->biok", x, m.weight)
    logits = votes.new_zeros(votes.shape[:3])
    for _ in range(2):
        outputs = torch.einsum("bio,biok->bok", logits.softmax(2), votes)
        logits = logits + torch.einsum("biok,bok->bio", votes, outputs)
    return outputs


# Gradients inside the model


def gradient_penalty(m: Any, x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    scores = F.linear(F.linear(x, m.first).tanh(), m.second)
    (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
    return scores.mean() + slope.square().sum()


def convolutional_penalty(m: Any, x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    scores = F.conv2d(F.conv2d(x, m.first).tanh(), m.second)
    (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
    return scores.mean() + slope.square().sum()


def inner_steps(m: Any, x: Tensor) -> Any:
    """One step of gradient descent in the forward pass, as in meta-learning."""
    loss = F.linear(x, m.weight).square().mean()
    (slope,) = torch.autograd.grad(loss, m.weight, create_graph=True)
    return F.linear(x, m.weight - 0.1 * slope)


def functional_jacobian(m: Any, x: Tensor) -> Any:
    return torch.func.vmap(torch.func.jacrev(lambda row: F.linear(row, m.weight).tanh()))(x)


def vectorised(m: Any, x: Tensor) -> Any:
    return torch.vmap(lambda weight: F.linear(x, weight), out_dims=1)(m.weight)


class StraightThroughSign(torch.autograd.Function):
    """The sign, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.where(x > 0, 1.0, -1.0) * x.abs().mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class ProductFunction(torch.autograd.Function):
    """A linear layer with its own backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return (x @ weight).relu()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class Reversed(torch.autograd.Function):
    """The identity, with the gradient reversed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


def call(function: Any, *arguments: Tensor) -> Any:
    """Apply a custom function, whose ``apply`` torch does not annotate."""
    return function.apply(*arguments)


def signed(m: Any, x: Tensor) -> Any:
    return m.second(call(StraightThroughSign, m.first(x)))


def binary_weights(m: Any, x: Tensor) -> Any:
    hidden = F.linear(x, call(StraightThroughSign, m.weight))
    return m.second(hidden)


def own_product(m: Any, x: Tensor) -> Any:
    return call(ProductFunction, m.first(x), m.weight)


def adversarial(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    features = m.features(x).relu()
    return m.classes(features), m.domain(call(Reversed, features))


def detach_trick(m: Any, x: Tensor) -> Any:
    hidden = m.first(x)
    return m.second(hidden + (hidden.round() - hidden).detach())


def vector_quantised(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    code = m.encode(x)
    nearest = m.codebook[(code[:, None] - m.codebook).square().sum(-1).argmin(-1)]
    through = code + (nearest - code).detach()
    return m.decode(through), F.mse_loss(nearest, code.detach())


def fake_quantised(m: Any, x: Tensor) -> Any:
    weight = torch.fake_quantize_per_tensor_affine(m.weight, 0.1, 0, -128, 127)
    return m.second(F.linear(torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255), weight))


def gumbel(m: Any, x: Tensor) -> Any:
    return m.second(F.gumbel_softmax(m.first(x), hard=True))


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 5))


def checkpointed(m: Any, x: Tensor) -> Any:
    return m.last(checkpoint(m.block, m.first(x), use_reentrant=False))


def checkpointed_reentrant(m: Any, x: Tensor) -> Any:
    return m.last(checkpoint(m.block, m.first(x), use_reentrant=True))


def checkpointed_function(m: Any, x: Tensor, reentrant: bool) -> Any:
    def block(hidden: Tensor) -> Tensor:
        with torch.no_grad():
            scale: Tensor = (hidden @ m.mix).mean()
        product: Tensor = call(ProductFunction, hidden, m.weight)
        return product * scale

    return m.last(checkpoint(block, m.first(x), use_reentrant=reentrant))


class SyntheticGradient(torch.autograd.Function):
    """Computes a gradient with a layer that only the backward pass calls."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, m: Any) -> Tensor:
        ctx.m = m
        ctx.save_for_backward(x)
        result: Tensor = m.same(x)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.m.synthetic(*ctx.saved_tensors) + ctx.m.same(gradient), None


def synthetic_gradient(m: Any, x: Tensor) -> Any:
    return m.last(SyntheticGradient.apply(m.first(x), m))  # type: ignore[no-untyped-call]


class RepeatedLayer(SyntheticGradient):
    """Runs its layer again in the backward pass, without gradients."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.m.same(*ctx.saved_tensors), None


def repeated_layer(m: Any, x: Tensor) -> Any:
    return m.last(RepeatedLayer.apply(m.first(x), m))  # type: ignore[no-untyped-call]


def with_parameter_hooks() -> nn.Module:
    first, second = nn.Linear(6, 5), nn.Linear(5, 3)
    constant = torch.randn(5, 5)

    def precondition(weight: Tensor) -> None:
        assert weight.grad is not None
        weight.grad = weight.grad @ constant

    first.weight.register_hook(lambda gradient: constant @ gradient)
    second.weight.register_post_accumulate_grad_hook(precondition)
    return nn.Sequential(first, second)


def transposed_in_place(m: Any, x: Tensor) -> Any:
    constant = torch.ones(5, 4, device=x.device)
    product = constant @ torch.ones(4, 2, device=x.device)
    constant.t_()
    return m.first(x) * product.sum()


def product_of_constants(m: Any, x: Tensor) -> Any:
    constant = torch.from_numpy(np.ones((6, 6), np.float32))
    return m.layer(x @ (constant @ constant))


# Numbers that are not float32


def integer_convolution(m: Any, x: Tensor) -> Any:
    weight = torch.ones(4, 3, 3, 3, dtype=torch.long, device=x.device)
    return m.layer(x) * F.conv2d((x * 10).long(), weight).sum()


class IntegerGradients(ProductFunction):
    """Computes its gradients with integers."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, scaled = (t.mul(99).int() for t in (*ctx.saved_tensors, gradient))
        return (scaled @ weight.t()).float(), (x.t() @ scaled).float()


def integer_gradients(m: Any, x: Tensor) -> Any:
    return call(IntegerGradients, m.first(x), m.weight)


def complex_linear(m: Any, x: Tensor) -> Any:
    product = x.to(torch.complex64) @ torch.complex(m.real, m.imaginary)
    return product.abs()


def complex_convolution(m: Any, x: Tensor) -> Any:
    return F.conv2d(x.to(torch.complex64), torch.complex(m.real, m.imaginary)).abs()


def spectral_layer(m: Any, x: Tensor) -> Any:
    """A Fourier neural operator: products of a few frequencies."""
    spectrum = torch.fft.rfft2(x)[:, :, :3, :3]
    mixed = torch.einsum("bixy,ioxy->boxy", spectrum, torch.complex(m.real, m.imaginary))
    return torch.fft.irfft2(mixed, s=x.shape[2:])


def fourier_mixing(m: Any, x: Tensor) -> Any:
    return m.layer(torch.fft.fft2(x).real)


def circulant(m: Any, x: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(m.row), n=x.shape[-1])


def half_precision(m: Any, x: Tensor) -> Any:
    return F.linear(x.bfloat16(), m.weight.bfloat16()).float()


def autocast(m: Any, x: Tensor) -> Any:
    with torch.autocast(x.device.type if x.device.type != "meta" else "cpu", torch.bfloat16):
        return m.second(m.first(x).relu()).float()


def integer_product(m: Any, x: Tensor) -> Any:
    products = torch._int_mm(x.to(torch.int8), torch.ones(8, 8, dtype=torch.int8, device=x.device))
    return m.layer(products.float())


# Outputs


@dataclass
class Prediction:
    """An output that torch does not know."""

    scores: Tensor
    features: Tensor


class Named(dict[str, Any]):
    """A dict subclass, as the outputs of language-model libraries are."""


def as_dataclass(m: Any, x: Tensor) -> Prediction:
    hidden = m.first(x)
    return Prediction(m.second(hidden.relu()), hidden)


def as_namespace(m: Any, x: Tensor) -> SimpleNamespace:
    return SimpleNamespace(scores=m.second(m.first(x)))


def as_dict_subclass(m: Any, x: Tensor) -> Named:
    return Named(scores=m.second(m.first(x)))


def as_distribution(m: Any, x: Tensor) -> Any:
    return torch.distributions.Categorical(logits=m.second(m.first(x)), validate_args=False)


def as_nested(m: Any, x: Tensor) -> dict[str, Any]:
    hidden = m.first(x)
    return {"all": [hidden, (m.second(hidden),)], "none": None, "number": 3}


def as_deque(m: Any, x: Tensor) -> dict[str, Any]:
    hidden = m.first(x)
    return {"scores": m.second(hidden), "last": deque([hidden.relu() @ hidden.t()], maxlen=1)}


def as_view_and_iterator(m: Any, x: Tensor) -> Any:
    hidden = m.first(x)
    return {"scores": m.second(hidden)}.values(), iter([hidden @ hidden.t()])


def of_dataclass(m: Any, inputs: Prediction) -> Any:
    return m.layer(inputs.scores @ inputs.features.t() @ inputs.features)


def as_argmax(m: Any, x: Tensor) -> Any:
    return m.second(m.first(x)).argmax(-1)


def branching(m: Any, x: Tensor) -> Any:
    return m.first(x) if x.sum() > 0 else m.second(x)


def boolean_index(m: Any, x: Tensor) -> Any:
    return m.first(x)[x[:, 0] > 0]


def written_buffer(m: Any, x: Tensor) -> Any:
    buffer = x.new_zeros(x.shape[0], 4)
    buffer[:, :2] = m.first(x)
    buffer[:, 2:] = m.second(x)
    return buffer.relu_()


def cached_keys(m: Any, x: Tensor) -> Any:
    cache = torch.zeros(x.shape[0], 3, 4, device=x.device)
    for _ in range(3):
        cache = torch.cat([cache[:, 1:], m.first(x)[:, None]], 1)
    return m.second(cache.flatten(1))


def adaptive_softmax(m: Any, x: Tensor, labels: Tensor) -> Any:
    return m.head(x, labels).loss


def conditional_time(m: Any, x: Tensor) -> Any:
    for _ in range(x.shape[0]):
        x = m.first(x).tanh()
    return x


ROWS = real(4, 6)
SQUARE = real(2, 5, 5)
FIRST_SECOND = {"first": linear(6, 5), "second": linear(5, 3)}

MODELS = [
    applied("all experts", all_experts, ROWS, gate=linear(6, 3), experts=(3, 6, 2)),
    applied("experts by gathering", gathered_experts, ROWS, gate=linear(6, 3), experts=(3, 6, 2)),
    applied("soft experts", soft_experts, real(2, 5, 4), slots=(3, 4, 2), experts=(3, 4, 4)),
    applied("experts choose", experts_choose, ROWS, gate=linear(6, 3), experts=(3, 6, 2)),
    applied("experts by mask", masked_experts, ROWS, gate=linear(6, 2), experts=(2, 6, 6)),
    applied("grouped product", grouped_experts, real(8, 16), experts=(3, 16, 8), out=linear(8, 2)),
    applied(
        "graph convolution",
        graph_convolution,
        real(2, 5, 3),
        SQUARE,
        first=linear(3, 4),
        second=linear(4, 2),
    ),
    applied(
        "graph attention",
        graph_attention,
        real(2, 5, 3),
        SQUARE,
        mix=linear(3, 4),
        left=linear(4, 1),
        right=linear(4, 1),
    ),
    applied(
        "message passing",
        message_passing,
        real(VOCABULARY, 3),
        tokens(VOCABULARY, 2),
        message=linear(6, 3),
        update=linear(3, 2),
    ),
    applied(
        "scatter with maximum",
        scatter_reduce,
        real(VOCABULARY, 3),
        tokens(VOCABULARY, 2),
        message=linear(3, 3),
        update=linear(3, 2),
    ),
    applied("sparse adjacency", sparse_adjacency, ROWS, layer=linear(6, 3)),
    applied("inverse", inverse, ROWS, weight=(6, 6)),
    applied("solve", solved, ROWS, weight=(6, 6)),
    applied("solve for a vector", solved_vector, real(6), weight=(6, 6)),
    applied("gaussian process", gaussian_process, ROWS, embed=linear(6, 3)),
    applied("cholesky solve", cholesky_solved, ROWS, embed=linear(6, 3)),
    applied("whitening", whitening, ROWS, embed=linear(6, 3)),
    applied("eigenvalues", eigenvalues, ROWS, embed=linear(6, 3)),
    applied("singular values", singular_values, ROWS, embed=linear(6, 3)),
    applied("singular vectors", singular_vectors, ROWS, embed=linear(6, 3)),
    applied("orthonormal weight", orthonormal, ROWS, weight=(6, 3)),
    applied("log-determinant", log_determinant, ROWS, weight=(6, 6)),
    applied("determinant", determinant, ROWS, weight=(6, 6)),
    applied("matrix exponential", rotation, ROWS, weight=(6, 6)),
    applied("matrix power", matrix_power, ROWS, weight=(6, 6)),
    applied("pseudo-inverse", pseudo_inverse, ROWS, weight=(3, 6)),
    applied("least squares", least_squares, ROWS, weight=(4, 3)),
    applied("newton-schulz", newton_schulz, ROWS, weight=(6, 6)),
    applied("matrix norms", norms, ROWS, weight=(6, 4)),
    applied("householder reflections", householder, ROWS, vectors=(2, 6)),
    built("orthogonal parametrization", lambda: parametrizations.orthogonal(nn.Linear(6, 6)), ROWS),
    applied("coupling flow", coupling, ROWS, net=linear(3, 6)),
    applied(
        "denoising step",
        denoising,
        real(2, 3, 6, 6),
        lambda: torch.randint(9, (2,)),
        time=linear(4, 4),
        enter=conv(3, 4, 3),
        leave=conv(4, 3, 3),
    ),
    applied("runge-kutta", runge_kutta, ROWS, field=linear(6, 6)),
    applied("capsules", capsules, real(2, 3, 4), weight=(3, 2, 4, 5)),
    applied("gradient penalty", gradient_penalty, ROWS, first=(5, 6), second=(1, 5)),
    applied(
        "convolutional gradient penalty",
        convolutional_penalty,
        real(2, 3, 6, 6),
        first=(4, 3, 3, 3),
        second=(2, 4, 3, 3),
    ),
    applied("inner gradient step", inner_steps, ROWS, weight=(3, 6)),
    applied("jacobian", functional_jacobian, ROWS, weight=(3, 6)),
    applied("vmap", vectorised, ROWS, weight=(2, 3, 6)),
    applied("straight-through sign", signed, ROWS, **FIRST_SECOND),
    applied("binary weights", binary_weights, ROWS, weight=(5, 6), second=linear(5, 3)),
    applied("product with its own backward", own_product, ROWS, first=linear(6, 5), weight=(5, 3)),
    applied(
        "gradient reversal",
        adversarial,
        ROWS,
        features=linear(6, 5),
        classes=linear(5, 3),
        domain=linear(5, 2),
    ),
    applied("straight-through by detach", detach_trick, ROWS, **FIRST_SECOND),
    applied(
        "vector quantised",
        vector_quantised,
        ROWS,
        encode=linear(6, 3),
        codebook=(4, 3),
        decode=linear(3, 6),
    ),
    applied("quantisation-aware", fake_quantised, ROWS, weight=(5, 6), second=linear(5, 3)),
    applied("gumbel softmax", gumbel, ROWS, **FIRST_SECOND),
    applied(
        "checkpoint", checkpointed, ROWS, first=linear(6, 5), block=two_layers, last=linear(5, 3)
    ),
    applied(
        "reentrant checkpoint",
        checkpointed_reentrant,
        ROWS,
        first=linear(6, 5),
        block=two_layers,
        last=linear(5, 3),
    ),
    *(
        applied(
            f"{name} of a function without autograd",
            partial(checkpointed_function, reentrant=reentrant),
            ROWS,
            first=linear(6, 5),
            mix=(5, 5),
            weight=(5, 3),
            last=linear(3, 3),
        )
        for name, reentrant in (("checkpoint", False), ("reentrant checkpoint", True))
    ),
    *(
        applied(
            name,
            forward,
            ROWS,
            first=linear(6, 5),
            same=linear(5, 5, bias=False),
            synthetic=linear(5, 5, bias=False),
            last=linear(5, 3),
        )
        for name, forward in (
            ("synthetic gradient", synthetic_gradient),
            ("layer repeated in backward", repeated_layer),
        )
    ),
    built("hooks of parameters", with_parameter_hooks, ROWS),
    applied("transposed in place", transposed_in_place, ROWS, first=linear(6, 5)),
    applied("product of constants", product_of_constants, ROWS, layer=linear(6, 3)),
    applied("integer convolution", integer_convolution, real(2, 3, 8, 8), layer=conv(3, 4, 3)),
    applied("integer gradients", integer_gradients, ROWS, first=linear(6, 5), weight=(5, 3)),
    applied("complex linear", complex_linear, ROWS, real=(6, 3), imaginary=(6, 3)),
    applied(
        "complex convolution",
        complex_convolution,
        real(2, 3, 6, 6),
        real=(4, 3, 3, 3),
        imaginary=(4, 3, 3, 3),
    ),
    applied(
        "fourier operator",
        spectral_layer,
        real(2, 3, 6, 6),
        real=(3, 4, 3, 3),
        imaginary=(3, 4, 3, 3),
    ),
    applied("fourier mixing", fourier_mixing, ROWS, layer=linear(6, 6)),
    applied("circulant", circulant, ROWS, row=(6,)),
    applied("half precision", half_precision, ROWS, weight=(5, 6)),
    applied("autocast", autocast, ROWS, **FIRST_SECOND),
    applied("integer product", integer_product, real(32, 8), layer=linear(8, 3)),
    applied("output dataclass", as_dataclass, ROWS, **FIRST_SECOND),
    applied("output namespace", as_namespace, ROWS, **FIRST_SECOND),
    applied("output dict subclass", as_dict_subclass, ROWS, **FIRST_SECOND),
    applied("output distribution", as_distribution, ROWS, **FIRST_SECOND),
    applied("output nested", as_nested, ROWS, **FIRST_SECOND),
    applied("output deque", as_deque, ROWS, **FIRST_SECOND),
    applied("output view and iterator", as_view_and_iterator, ROWS, **FIRST_SECOND),
    applied(
        "input dataclass",
        of_dataclass,
        lambda: Prediction(torch.randn(4, 6), torch.randn(4, 6)),
        layer=linear(6, 3),
    ),
    applied(
        "input with a gradient",
        lambda m, x: m.layer(x),
        lambda: torch.randn(4, 6, requires_grad=True),
        layer=linear(6, 3),
    ),
    applied("output argmax", as_argmax, ROWS, **FIRST_SECOND),
    applied("branch on values", branching, ROWS, first=linear(6, 3), second=linear(6, 3)),
    applied("boolean index", boolean_index, ROWS, first=linear(6, 3)),
    applied("written buffer", written_buffer, ROWS, first=linear(6, 2), second=linear(6, 2)),
    applied("cached keys", cached_keys, ROWS, first=linear(6, 4), second=linear(12, 2)),
    applied(
        "adaptive softmax",
        adaptive_softmax,
        ROWS,
        lambda: torch.randint(9, (4,)),
        head=lambda: nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 6]),
    ),
    applied("loop over the batch", conditional_time, ROWS, first=linear(6, 6)),
]
