"""The distance of architectures: a metric, the textbook's edit distance, and quick about it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from vflops.workloads.automl.architecture import morphs, starting_networks
from vflops.workloads.automl.search.alignment import GAP, Alignment
from vflops.workloads.automl.search.architecture_distance import (
    Distances,
    Layer,
    aspect_distances,
    distance,
    distance_matrix,
    filters_cost,
    kernels_cost,
    layer_cost,
    skip_cost,
    skip_steps,
)


@dataclass(frozen=True)
class Net:
    """All that the distance sees of an architecture."""

    layers: tuple[Layer, ...]
    joins: tuple[tuple[int, int, str], ...] = ()

    @property
    def digest(self) -> str:
        return repr(self)

    def signature_layers(self) -> tuple[Layer, ...]:
        return self.layers

    def skips(self) -> tuple[tuple[int, int, str], ...]:
        return self.joins


def conv(filters: int, kernel: int = 3, stride: int = 1) -> Layer:
    return ("conv", filters, kernel, stride)


def any_layer(rng: random.Random) -> Layer:
    kind, filters = rng.choice(["conv", "pool"]), rng.choice([0, 1, 8, 9, 2048, 2049, 4096])
    return (kind, filters, rng.choice([1, 3, 5, 7, 31]), rng.choice([1, 2, 3]))


def any_skip(rng: random.Random) -> tuple[int, int, str]:
    start = rng.randrange(12)
    return (start, start + rng.randrange(1, 12), rng.choice(["add", "concat"]))


def any_net(rng: random.Random) -> Net:
    joins = tuple(any_skip(rng) for _ in range(rng.randrange(5)))
    return Net(tuple(any_layer(rng) for _ in range(rng.randrange(8))), joins)


def textbook(a: Sequence[Any], b: Sequence[Any], cost: Callable[[Any, Any], int]) -> int:
    """Wagner and Fischer's recurrence, a cell at a time."""
    row = [GAP * j for j in range(len(b) + 1)]
    for i, x in enumerate(a, 1):
        before, row = row, [GAP * i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + GAP, row[j - 1] + GAP, before[j - 1] + cost(x, y)))
    return row[-1]


BASE = Net((conv(8), conv(16, stride=2), conv(16), conv(32)), ((1, 2, "add"), (2, 4, "add")))


def changed(at: int, layer: Layer) -> Net:
    return replace(BASE, layers=(*BASE.layers[:at], layer, *BASE.layers[at + 1 :]))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (BASE, 0),
        (replace(BASE, layers=(*BASE.layers, conv(32))), 1),
        (replace(BASE, joins=BASE.joins[:1]), 1),
        (replace(BASE, joins=()), 2),
        (Net((), ()), 4 + 2),
        (changed(2, conv(32)), 0.25),
        (changed(2, conv(17)), 1 / 64),
        (changed(3, conv(32, kernel=5)), 12 / 64),
        (changed(3, conv(32, stride=2)), 0.25),
        (changed(3, ("pool", 32, 3, 1)), 1),
        (changed(3, conv(32 * 2**9)), 1),  # no more than one layer out, one in… and less
        (replace(BASE, joins=((1, 2, "concat"), (2, 4, "add"))), 0.5),
        (replace(BASE, joins=((2, 4, "add"), (1, 2, "add"))), 0),  # their order means nothing
        (replace(BASE, joins=((1, 2, "add"), (2, 5, "add"))), 6 / 64),
    ],
)
def test_known_distances(other: Net, expected: float) -> None:
    assert distance(BASE, other) == expected
    assert distance(other, BASE) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (BASE, [0, 0, 0, 0]),
        (replace(BASE, layers=(*BASE.layers, conv(32))), [1, 1, 1, 0]),
        (replace(BASE, joins=BASE.joins[:1]), [0, 0, 0, 1]),
        (changed(2, conv(32)), [0.25, 2, 0, 0]),
        (changed(3, conv(32, kernel=5)), [12 / 64, 0, 1, 0]),
        (changed(3, conv(32, stride=2)), [0.25, 0, 0, 0]),
        (changed(3, conv(32 * 2**9)), [1, 2, 0, 0]),
    ],
)
def test_known_distances_by_aspect(other: Net, expected: list[float]) -> None:
    assert aspect_distances(Distances([BASE]), [other])[:, 0, 0].tolist() == expected
    assert aspect_distances(Distances([other]), [BASE])[:, 0, 0].tolist() == expected


def test_filters_that_differ_by_a_hair_still_differ() -> None:
    # 16 · log2(2049 / 2048) rounds to 0
    assert distance(Net((conv(2048),)), Net((conv(2049),))) == 1 / 64


def test_a_layer_put_in_early_does_not_move_every_skip_that_follows() -> None:
    layers = tuple(conv(8) for _ in range(40))
    joins = tuple((start, start + 2, "add") for start in range(1, 36, 2))
    moved = tuple((start + 1, end + 1, kind) for start, end, kind in joins)
    assert distance(Net(layers, joins), Net((conv(8), *layers), moved)) == 1 + 6 / 64


def test_skips_are_told_by_steps() -> None:
    net = replace(BASE, joins=((4, 9, "add"), (1, 3, "add"), (4, 5, "concat")))
    assert skip_steps(net) == ((1, 2, "add"), (3, 1, "concat"), (0, 5, "add"))


@pytest.mark.parametrize(
    ("cost", "draw"),
    [
        (layer_cost, any_layer),
        (skip_cost, any_skip),
        (filters_cost, lambda rng: rng.randrange(200)),
        (kernels_cost, lambda rng: rng.randrange(1, 32)),
    ],
)
def test_costs_are_metrics_of_at_most_two_gaps(
    cost: Callable[[Any, Any], int], draw: Callable[[random.Random], Any]
) -> None:
    rng = random.Random(1)
    symbols = list(dict.fromkeys(draw(rng) for _ in range(45)))
    table = {(x, y): cost(x, y) for x, y in product(symbols, symbols)}
    for x, y in table:
        assert (table[x, y] == 0) == (x == y)
        assert table[x, y] == table[y, x] <= 2 * GAP
    for x, y, z in product(symbols, symbols, symbols):
        assert table[x, z] <= table[x, y] + table[y, z]


def test_it_is_a_metric_on_random_nets() -> None:
    rng = random.Random(2)
    nets = list(dict.fromkeys(any_net(rng) for _ in range(160)))
    found = distance_matrix(nets)
    assert (found == found.T).all()
    alike = [[skip_steps(a) == skip_steps(b) and a.layers == b.layers for b in nets] for a in nets]
    assert ((found == 0) == np.array(alike)).all()
    for through in range(len(nets)):  # exact: the figures are sixty-fourths
        assert (found <= found[:, through, None] + found[None, through, :]).all()


def test_it_is_the_textbooks_distance() -> None:
    rng = random.Random(3)
    nets = [any_net(rng) for _ in range(80)]
    distances = Distances(nets)
    for a in nets[:40]:  # in no order, so tables of the call before are kept for odd beginnings
        expected = [
            textbook(a.layers, b.layers, layer_cost)
            + textbook(skip_steps(a), skip_steps(b), skip_cost)
            for b in nets
        ]
        assert (distances.total(a) * GAP).tolist() == expected


def test_very_long_chains_do_not_overflow() -> None:
    long = tuple(conv(8, kernel=1 + 2 * (index % 3)) for index in range(600))
    found = Alignment([long, long[:300], ()], layer_cost).distances(long)
    assert found.tolist() == [0, 300 * GAP, 600 * GAP]


def test_it_is_a_metric_on_morphs_of_a_network() -> None:
    rng = random.Random(4)
    found = [starting_networks.small("laptop", (3, 32, 32), 10)]
    while len(found) < 60:
        drawn = morphs.sample(rng.choice(found), rng, morphs.Limits())
        assert drawn is not None
        found.append(drawn[1])
    table = distance_matrix(found)
    assert (table == table.T).all()
    assert (np.diag(table) == 0).all()
    for through in range(len(found)):
        assert (table <= table[:, through, None] + table[None, through, :]).all()
    assert table.max() > 3
