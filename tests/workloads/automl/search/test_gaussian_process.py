"""The Gaussian process: positive definite whatever the distances, and sane where it predicts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from vflops.workloads.automl.architecture import morphs, starting_networks
from vflops.workloads.automl.search.architecture_distance import distance_matrix
from vflops.workloads.automl.search.gaussian_process import (
    LENGTH_SCALES,
    MAX_FIT_POINTS,
    fit,
    kernel,
    squared_distances,
)

Array = NDArray[np.float64]


def on_a_line(points: Array, others: Array) -> Array:
    found: Array = np.abs(points[:, None] - others[None, :])
    return found


def shortest_paths(edges: Array) -> Array:
    """The metric of a graph, by Floyd and Warshall."""
    found = edges.copy()
    for through in range(len(found)):
        found = np.minimum(found, found[:, through, None] + found[None, through, :])
    return found


def least_eigenvalue(distances: Array, length: float) -> float:
    embedded = distances / np.sqrt(len(distances))
    return float(np.linalg.eigvalsh(kernel(squared_distances(embedded, embedded) / length**2))[0])


def bipartite() -> Array:
    """The distances of the graph K₃,₃, whose exp(−d) of every small scale is not definite."""
    side = np.arange(6) < 3
    return np.where(side[:, None] == side[None, :], 2.0, 1.0) - 2 * np.eye(6)


def test_the_kernel_is_positive_definite_where_that_of_the_distance_is_not() -> None:
    assert np.linalg.eigvalsh(np.exp(-bipartite() / 4))[0] < -0.01
    for length in (0.01, 0.1, 1.0, 4.0, 100.0):
        assert least_eigenvalue(bipartite(), length) > -1e-9


def test_the_kernel_is_positive_definite_on_random_graphs() -> None:
    generator = np.random.default_rng(1)
    for count in (2, 3, 10, 40, 120):
        for _ in range(6):
            edges = generator.exponential(size=(count, count)) * generator.choice([1e-3, 1, 1e3])
            edges = edges + edges.T
            np.fill_diagonal(edges, 0)
            found = shortest_paths(edges)
            twice = np.concatenate([found, found])
            doubled = np.concatenate([twice, twice], axis=1)  # every point twice
            for length in np.median(found) * np.array(LENGTH_SCALES):
                assert least_eigenvalue(found, float(length)) > -1e-9
                assert least_eigenvalue(doubled, float(length)) > -1e-9


def test_the_kernel_is_positive_definite_on_architectures() -> None:
    rng = random.Random(1)
    found = [starting_networks.small()]
    while len(found) < 80:
        drawn = morphs.sample(rng.choice(found), rng, morphs.Limits())
        assert drawn is not None
        found.append(drawn[1])
    distances = distance_matrix([*found, *found[:20]])
    for length in (0.1, 1.0, 10.0):
        assert least_eigenvalue(distances, length) > -1e-9


def test_it_follows_a_function_that_it_has_seen() -> None:
    seen, asked = np.linspace(0, 6, 25), np.linspace(0.1, 5.9, 40)
    truth = 0.6 + 0.2 * np.sin(asked)
    process = fit(on_a_line(seen, seen), list(0.6 + 0.2 * np.sin(seen)))
    mean, std = process.predict(on_a_line(asked, seen))
    assert np.abs(mean - truth).max() < 0.02  # a constant is 0.13 off on average
    assert (std < 0.05).all()
    again, _ = process.predict(on_a_line(seen, seen))
    assert np.abs(again - 0.6 - 0.2 * np.sin(seen)).max() < 0.005


def test_far_away_it_knows_only_the_mean() -> None:
    seen = np.array([0.0, 1.0, 2.0, 3.0])
    process = fit(on_a_line(seen, seen), [0.2, 0.4, 0.6, 0.8])
    mean, std = process.predict(on_a_line(np.array([1.5, 4.0, 8.0, 1e6]), seen))
    assert mean[3] == pytest.approx(0.5, abs=1e-3)
    assert std[3] == pytest.approx(np.std([0.2, 0.4, 0.6, 0.8]), rel=1e-3)
    assert std[0] < std[1] < std[2] < std[3]


def test_equal_points_are_averaged() -> None:
    seen = np.array([0.0, 0.0, 0.0, 5.0, 5.0])
    process = fit(on_a_line(seen, seen), [0.3, 0.5, 0.7, 0.9, 0.9])
    mean, std = process.predict(on_a_line(np.array([0.0, 5.0]), seen))
    assert mean == pytest.approx([0.5, 0.9], abs=0.05)
    assert np.isfinite(std).all()


def test_noise_is_told_from_a_curve() -> None:
    generator = np.random.default_rng(3)
    seen = np.linspace(0, 6, 60)
    smooth = 0.6 + 0.2 * np.sin(seen)
    quiet = fit(on_a_line(seen, seen), list(smooth))
    noisy = fit(on_a_line(seen, seen), list(smooth + generator.normal(0, 0.08, 60)))
    assert quiet.noise < noisy.noise
    mean, _ = noisy.predict(on_a_line(seen, seen))
    assert np.sqrt(np.mean((mean - smooth) ** 2)) < 0.05


def test_the_aspect_that_matters_is_found_and_few_points_support_no_fancy() -> None:
    generator = np.random.default_rng(4)
    seen, asked = generator.uniform(0, 6, (30, 3)), generator.uniform(0, 6, (60, 3))

    def truth(points: Array) -> Array:
        return 0.6 + 0.2 * np.sin(points[:, 1])  # the second aspect, and it alone

    def apart(points: Array) -> Array:
        return np.array([on_a_line(points[:, k], seen[:, k]) for k in range(3)])

    values = list(truth(seen))
    told, whole = fit(apart(seen), values), fit(apart(seen).sum(axis=0), values)
    assert told.length_scales[1] < told.length_scales[[0, 2]].min() / 3
    errors = [
        np.abs(process.predict(rows)[0] - truth(asked)).mean()
        for process, rows in ((told, apart(asked)), (whole, apart(asked).sum(axis=0)))
    ]
    assert errors[0] < errors[1] / 2
    few = fit(apart(seen)[:, :3, :3], values[:3])
    assert few.length_scales.max() / few.length_scales.min() < 8


def test_of_many_points_an_even_choice_finds_the_scales_and_all_of_them_predict() -> None:
    seen = np.linspace(0, 60, 3 * MAX_FIT_POINTS)
    process = fit(on_a_line(seen, seen), list(0.6 + 0.2 * np.sin(seen)))
    assert len(process.embedded) == len(process.weights) == 3 * MAX_FIT_POINTS
    mean, _ = process.predict(on_a_line(seen, seen))
    assert np.abs(mean - 0.6 - 0.2 * np.sin(seen)).max() < 0.02


def test_accuracies_in_per_cent_give_the_same_process() -> None:
    seen, asked = np.arange(8.0), np.array([0.5, 3.3, 11.0])
    accuracies = [0.1, 0.4, 0.3, 0.6, 0.5, 0.8, 0.7, 0.9]
    share, per_cent = (
        fit(on_a_line(seen, seen), [scale * value for value in accuracies]) for scale in (1, 100)
    )
    for a, b in zip(
        share.predict(on_a_line(asked, seen)), per_cent.predict(on_a_line(asked, seen)), strict=True
    ):
        assert 100 * a == pytest.approx(b, rel=1e-9)


def test_one_point_and_equal_accuracies_leave_room_for_doubt() -> None:
    for accuracies in ([0.4], [0.4, 0.4, 0.4]):
        seen = np.arange(float(len(accuracies)))
        process = fit(on_a_line(seen, seen), accuracies)
        mean, std = process.predict(on_a_line(np.array([0.0, 50.0]), seen))
        assert mean == pytest.approx([0.4, 0.4])
        assert std[1] > std[0]
        assert std[1] > 0.005


@pytest.mark.parametrize(
    ("distances", "accuracies"),
    [
        (np.zeros((0, 0)), []),
        (np.zeros((2, 3)), [0.1, 0.2]),
        (np.zeros((2, 2)), [0.1]),
        (np.zeros((1, 1)), [float("nan")]),
    ],
)
def test_what_is_no_history_is_refused(distances: Array, accuracies: list[float]) -> None:
    with pytest.raises(ValueError, match="distances"):
        fit(distances, accuracies)


def test_distances_to_other_points_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \(1, …, 1\)"):
        fit(np.zeros((1, 1)), [0.5]).predict(np.zeros((1, 2)))
