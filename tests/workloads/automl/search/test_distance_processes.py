"""Distances on several cores are those of one core, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vflops.launch.core_binding import BINDING
from vflops.workloads.automl import proposer_process
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits, sample
from vflops.workloads.automl.architecture.starting_networks import small
from vflops.workloads.automl.search.distance_processes import DistanceProcesses, distances_to
from vflops.workloads.automl.search.searcher import Trial
from vflops.workloads.automl.search.searchers import searcher
from vflops.workloads.automl.settings import tiny

LIMITS = Limits(parameters=500_000)


@pytest.fixture(scope="module")
def networks() -> list[Architecture]:
    """As many networks as several processes share, unevenly."""
    rng, found = random.Random(1), {}
    network = small("tiny")
    found[network.digest] = network
    while len(found) < 41:
        drawn = sample(rng.choice(list(found.values())), rng, LIMITS)
        if drawn is not None:
            found[drawn[1].digest] = drawn[1]
    return list(found.values())


@pytest.fixture(scope="module")
def processes() -> Iterator[DistanceProcesses]:
    made = DistanceProcesses(3)
    yield made
    made.close()


def test_several_processes_compute_the_distances_of_one(
    networks: list[Architecture], processes: DistanceProcesses
) -> None:
    for count in (1, 2, 4, 40):  # too few to divide, and parts of different sizes
        expected = distances_to(networks)(networks[:count])
        found = processes.distances_to(networks)(networks[:count])
        assert found.shape == (4, count, 41)
        assert np.array_equal(found, expected)


def test_a_proposal_does_not_depend_on_the_number_of_processes(
    networks: list[Architecture], processes: DistanceProcesses
) -> None:
    trials = [Trial(f"{n:05d}", own, 0.5 + own.depth / 100) for n, own in enumerate(networks)]
    one, three = (
        searcher("bayesian", distances).propose(trials, random.Random(3), LIMITS)
        for distances in (distances_to, processes.distances_to)
    )
    assert one == three


@pytest.mark.parametrize(
    ("cores", "threads", "ranks", "expected"),
    [(2, 2, 1, 1), (2, 1, 1, 1), (3, 1, 1, 2), (16, 1, 1, 4), (16, 6, 2, 2)],
)
def test_proposals_use_the_cores_that_training_leaves_idle(
    cores: int, threads: int, ranks: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposer_process, "available_cpus", lambda: cores)
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    monkeypatch.delenv(BINDING, raising=False)
    settings = tiny()
    train = settings.train.model_copy(update={"device": "cpu"})
    settings = settings.model_copy(update={"train": train})
    record = SimpleNamespace(settings=settings.model_dump(mode="json"), ranks=ranks)
    context: Any = SimpleNamespace(record=record, local_ranks=ranks, local_rank=0)
    assert proposer_process.proposer_processes(context) == expected


def test_a_search_continues_without_helpers_that_were_killed(
    networks: list[Architecture],
) -> None:
    made = DistanceProcesses(2)
    compute = made.distances_to(networks)
    expected = distances_to(networks)(networks)
    ((helper, _),) = made._helpers
    helper.kill()
    helper.join()
    assert np.array_equal(compute(networks), expected)
    assert np.array_equal(made.distances_to(networks)(networks), expected)
    assert not made._helpers
