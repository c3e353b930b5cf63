"""Multilayer perceptrons, embeddings, factorised and generated weights, and losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm

from tests.support.counted_models.definition import (
    VOCABULARY,
    applied,
    built,
    linear,
    real,
    tokens,
)


def variational(m: Any, x: Tensor) -> Any:
    mean, log_variance = m.encode(x).chunk(2, -1)
    code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
    return F.mse_loss(m.decode(code), x) + (mean**2 + log_variance.exp() - log_variance).mean()


def highway(m: Any, x: Tensor) -> Any:
    gate = m.gate(x).sigmoid()
    return gate * m.plain(x).relu() + (1 - gate) * x


def tied_autoencoder(m: Any, x: Tensor) -> Any:
    return F.linear(F.linear(x, m.weight).relu(), m.weight.t())


def detached_branch(m: Any, x: Tensor) -> Any:
    teacher, student = m.teacher(x).detach(), m.student(x)
    return F.mse_loss(m.predict(student), teacher)


def momentum_teacher(m: Any, x: Tensor) -> Any:
    with torch.no_grad():
        target = m.teacher(x)
    return F.mse_loss(m.student(x), target)


def auxiliary_losses(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first = m.first(x).relu()
    second = m.second(first).relu()
    return m.early(first), m.late(second), second.pow(2).mean()


def unused_output(m: Any, x: Tensor) -> Any:
    m.unused(x)
    return m.used(x)


def siamese(m: Any, left: Tensor, right: Tensor) -> Any:
    return F.cosine_similarity(m.branch(left), m.branch(right))


def triplet(m: Any, anchor: Tensor, near: Tensor, far: Tensor) -> Any:
    return F.triplet_margin_loss(m.embed(anchor), m.embed(near), m.embed(far))


def contrastive(m: Any, images: Tensor, texts: Tensor) -> Any:
    left, right = F.normalize(m.image(images)), F.normalize(m.text(texts))
    scores = left @ right.t() * m.temperature.exp()
    labels = torch.arange(scores.shape[0], device=scores.device)
    return F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)


def low_rank_update(m: Any, x: Tensor) -> Any:
    return m.base(x) + m.up(m.down(x))


def hypernetwork(m: Any, x: Tensor, condition: Tensor) -> Any:
    weight = m.generate(condition).view(-1, 4, 6)
    return torch.bmm(weight, x.unsqueeze(2)).squeeze(2)


def generated_weight(m: Any, x: Tensor) -> Any:
    return F.linear(x, m.generate(m.code).view(4, 6))


def member_products(m: Any, x: Tensor) -> Any:
    hidden = torch.einsum("bi,kij->kbj", x, m.first).relu()
    return torch.einsum("kbi,kij->bkj", hidden, m.second)


def block_diagonal(m: Any, x: Tensor) -> Any:
    blocks = x.unflatten(1, (2, 4)).transpose(0, 1)
    return torch.bmm(blocks, m.weight).transpose(0, 1).flatten(1)


def kronecker(m: Any, x: Tensor) -> Any:
    return F.linear(x, torch.kron(m.left, m.right))


def two_layer_kronecker(m: Any, x: Tensor) -> Any:
    return m.left @ x.unflatten(1, (3, 4)) @ m.right


def recommender(m: Any, numbers: Tensor, items: Tensor) -> Any:
    vectors = torch.cat([m.bottom(numbers)[:, None], m.table(items)], 1)
    products = torch.bmm(vectors, vectors.mT)
    rows, columns = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
    return m.top(products[:, rows, columns])


def factorization(m: Any, pairs: Tensor) -> Any:
    left, right = m.table(pairs).unbind(1)
    return (left * right).sum(1)


def bag(m: Any, words: Tensor) -> Any:
    return m.classify(m.bag(words))


def tied_language_model(m: Any, words: Tensor) -> Any:
    hidden = m.hidden(m.table(words)).tanh()
    return F.cross_entropy(F.linear(hidden, m.table.weight).flatten(0, 1), words.flatten())


def fourier_features(m: Any, x: Tensor) -> Any:
    angles = x @ m.frequencies
    return m.head(torch.cat([angles.sin(), angles.cos()], -1))


def einsum_many(m: Any, x: Tensor) -> Any:
    return torch.einsum("bi,bj,ijk->bk", x, x, m.weight)


def matrix_vector(m: Any, x: Tensor) -> Any:
    return m.layer(x) @ m.vector


def added_matrix_vector(m: Any, x: Tensor) -> Any:
    return torch.addmv(m.bias, m.layer(x), m.vector)


def dot_product(m: Any, x: Tensor) -> Any:
    return x.sum() * (torch.dot(m.left, m.right) + torch.vdot(m.right, m.left))


def inner_product(m: Any, x: Tensor) -> Any:
    return torch.inner(x, m.weight) + torch.tensordot(x, m.weight, dims=([1], [1]))


def chained(m: Any, x: Tensor) -> Any:
    return torch.linalg.multi_dot([x, m.first, m.second]) + torch.chain_matmul(x, m.first, m.second)


def added_batch_product(m: Any, x: Tensor) -> Any:
    return torch.addbmm(m.bias, x, m.weight.expand(x.shape[0], -1, -1))


def batch_added_product(m: Any, x: Tensor) -> Any:
    return torch.baddbmm(m.bias, x, m.weight.expand(x.shape[0], -1, -1), beta=0.5)


def outer_products(m: Any, x: Tensor) -> Any:
    return x @ torch.outer(m.left, m.right) + x @ torch.addr(m.bias, m.left, m.right)


def normal_distribution(m: Any, x: Tensor) -> Any:
    mean, scale = m.layer(x).chunk(2, -1)
    return -torch.distributions.Normal(mean, F.softplus(scale), validate_args=False).log_prob(x)


def distances(m: Any, x: Tensor) -> Any:
    return torch.cdist(m.layer(x), m.centres)


def many_distances(m: Any, x: Tensor) -> Any:
    return torch.cdist(m.layer(x), m.centres, compute_mode="use_mm_for_euclid_dist")


def batched_distances(m: Any, x: Tensor) -> Any:
    return torch.cdist(x, m.centres.expand(x.shape[0], -1, -1).contiguous())


def radial_basis(m: Any, x: Tensor) -> Any:
    squares = (x[:, None] - m.centres).square().sum(-1)
    return m.head((-squares).exp())


def covariance(m: Any, x: Tensor) -> Any:
    return torch.cov(m.layer(x).t()) + torch.corrcoef(x.t())


class Orthogonal(nn.Module):
    """A skew-symmetric matrix as a parametrization."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu(1) - x.triu(1).mT


def skew_symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Orthogonal())
    return layer


ROWS = real(4, 6)
TEXT = tokens(2, 5)

MODELS = [
    built("linear", lambda: nn.Linear(6, 4), ROWS),
    built("linear without bias", lambda: nn.Linear(6, 4, bias=False), ROWS),
    built("linear in three dimensions", lambda: nn.Linear(6, 4), real(2, 3, 6)),
    built("perceptron", lambda: perceptron(), ROWS),
    built("frozen first layer", lambda: frozen_first(), ROWS),
    built("frozen last layer", lambda: frozen_last(), ROWS),
    built("gated", lambda: nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 2)), ROWS),
    built(
        "maxout", lambda: nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (4, 2)), Largest()), ROWS
    ),
    built("bilinear", lambda: Twice(nn.Bilinear(6, 6, 3)), ROWS),
    built("spectral norm", lambda: spectral_norm(nn.Linear(6, 4)), ROWS),
    built(
        "parametrized spectral norm", lambda: parametrizations.spectral_norm(nn.Linear(6, 4)), ROWS
    ),
    built("weight norm", lambda: weight_norm(nn.Linear(6, 4)), ROWS),
    built("parametrized weight norm", lambda: parametrizations.weight_norm(nn.Linear(6, 4)), ROWS),
    built("skew-symmetric parametrization", skew_symmetric, real(3, 4)),
    built("lazy linear", lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU()), ROWS),
    applied("variational autoencoder", variational, ROWS, encode=linear(6, 4), decode=linear(2, 6)),
    applied("highway", highway, ROWS, gate=linear(6, 6), plain=linear(6, 6)),
    applied("tied autoencoder", tied_autoencoder, ROWS, weight=(3, 6)),
    applied(
        "detached teacher",
        detached_branch,
        ROWS,
        teacher=linear(6, 4),
        student=linear(6, 4),
        predict=linear(4, 4),
    ),
    applied(
        "teacher without gradients",
        momentum_teacher,
        ROWS,
        teacher=linear(6, 4),
        student=linear(6, 4),
    ),
    applied(
        "auxiliary losses",
        auxiliary_losses,
        ROWS,
        first=linear(6, 5),
        second=linear(5, 4),
        early=linear(5, 2),
        late=linear(4, 2),
    ),
    applied("unused output", unused_output, ROWS, unused=linear(6, 3), used=linear(6, 2)),
    applied("siamese", siamese, ROWS, ROWS, branch=linear(6, 3)),
    applied("triplet", triplet, ROWS, ROWS, ROWS, embed=linear(6, 3)),
    applied(
        "contrastive",
        contrastive,
        ROWS,
        real(4, 5),
        image=linear(6, 3),
        text=linear(5, 3),
        temperature=(),
    ),
    applied(
        "low-rank update",
        low_rank_update,
        ROWS,
        base=lambda: nn.Linear(6, 4).requires_grad_(False),
        down=linear(6, 2, bias=False),
        up=linear(2, 4, bias=False),
    ),
    applied("hypernetwork", hypernetwork, ROWS, real(4, 3), generate=linear(3, 24)),
    applied("generated weight", generated_weight, ROWS, code=(3,), generate=linear(3, 24)),
    applied("ensemble by einsum", member_products, ROWS, first=(3, 6, 5), second=(3, 5, 2)),
    applied("block-diagonal", block_diagonal, real(3, 8), weight=(2, 4, 4)),
    applied("kronecker weight", kronecker, ROWS, left=(2, 3), right=(2, 2)),
    applied("kronecker factors", two_layer_kronecker, real(2, 12), left=(5, 3), right=(4, 2)),
    applied(
        "recommender",
        recommender,
        real(2, 3),
        tokens(2, 4),
        bottom=linear(3, 4),
        table=lambda: nn.Embedding(VOCABULARY, 4),
        top=linear(10, 1),
    ),
    applied(
        "matrix factorization",
        factorization,
        tokens(4, 2),
        table=lambda: nn.Embedding(VOCABULARY, 4),
    ),
    applied(
        "bag of words", bag, TEXT, bag=lambda: nn.EmbeddingBag(VOCABULARY, 4), classify=linear(4, 2)
    ),
    applied(
        "tied embedding",
        tied_language_model,
        TEXT,
        table=lambda: nn.Embedding(VOCABULARY, 6),
        hidden=linear(6, 6),
    ),
    applied("fourier features", fourier_features, ROWS, frequencies=(6, 3), head=linear(6, 2)),
    applied("einsum of three", einsum_many, ROWS, weight=(6, 6, 2)),
    applied("matrix-vector product", matrix_vector, ROWS, layer=linear(6, 5), vector=(5,)),
    applied("addmv", added_matrix_vector, ROWS, layer=linear(6, 5), vector=(5,), bias=(4,)),
    applied("dot product", dot_product, ROWS, left=(5,), right=(5,)),
    applied("inner product", inner_product, ROWS, weight=(3, 6)),
    applied("chain of matrices", chained, ROWS, first=(6, 2), second=(2, 5)),
    applied("addbmm", added_batch_product, real(2, 3, 4), weight=(4, 5), bias=(3, 5)),
    applied("baddbmm", batch_added_product, real(2, 3, 4), weight=(4, 5), bias=(2, 3, 5)),
    applied("outer products", outer_products, ROWS, left=(6,), right=(3,), bias=(6, 3)),
    applied("log-likelihood", normal_distribution, real(3, 4), layer=linear(4, 8)),
    applied("cdist", distances, ROWS, layer=linear(6, 3), centres=(5, 3)),
    applied("cdist by a product", many_distances, ROWS, layer=linear(6, 3), centres=(5, 3)),
    applied("cdist of many points", batched_distances, real(2, 30, 3), centres=(28, 3)),
    applied("radial basis", radial_basis, ROWS, centres=(3, 6), head=linear(3, 2)),
    applied("covariance", covariance, ROWS, layer=linear(6, 6)),
]


class Largest(nn.Module):
    """The largest of the last dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return x.max(-1).values


class Twice(nn.Module):
    """A module of two inputs that gets the same one twice."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x, x)


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.1), nn.Linear(8, 3)
    )


def frozen_first() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 2))


def frozen_last() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2).requires_grad_(False))
