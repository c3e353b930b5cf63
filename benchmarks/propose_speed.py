"""How long a search takes to propose one candidate, with many trained models in its history.

    OMP_NUM_THREADS=1 python benchmarks/propose_speed.py [--models N] [--rounds R] [--profile P]
                                                         [--processes 1 2 4]

The history is a random search from ResNet-50 (or from a profile's small network) with made-up
accuracies. Every figure is processor time on one core, including the first proposal of a new
process, since nothing is kept between proposals. The target is 5 s for 500 models. The last rows
are elapsed times of the bayesian search with one and more processes, whose proposals must be equal.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from statistics import median
from typing import TypeVar

from vflops.units import seconds
from vflops.workloads.automl.architecture import starting_networks
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits, sample
from vflops.workloads.automl.search import gaussian_process
from vflops.workloads.automl.search.architecture_distance import distance_matrix
from vflops.workloads.automl.search.distance_processes import DistanceProcesses
from vflops.workloads.automl.search.searcher import Trial
from vflops.workloads.automl.search.searchers import searcher, searchers

T = TypeVar("T")
TARGET_S = 5.0
SEED = 1


def history(start: Architecture, models: int, limits: Limits) -> list[Trial]:
    """Return trials: repeated morphs of the start, with accuracies that grow with depth."""
    rng = random.Random(SEED)
    found = {start.digest: start}
    while len(found) < models:
        drawn = sample(rng.choice(list(found.values())), rng, limits)
        if drawn is not None:
            found[drawn[1].digest] = drawn[1]
    accuracy = [0.5 + 0.01 * (item.depth - start.depth) for item in found.values()]
    return [
        Trial(f"{index:05d}", item, known + rng.gauss(0, 0.01))
        for index, (item, known) in enumerate(zip(found.values(), accuracy, strict=True))
    ]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    started_s = time.process_time()
    return work(), time.process_time() - started_s


def row(what: str, taken_s: list[float]) -> None:
    print(f"{what:34} {seconds(median(taken_s)):>9} {seconds(max(taken_s)):>9}")


def parallel_proposals(trials: list[Trial], limits: Limits, rounds: int, count: int) -> list[str]:
    """Print how long proposals take with this many processes, and return their digests."""
    processes = DistanceProcesses(count)
    search = searcher("bayesian", processes.distances_to)
    search.propose(trials, random.Random(0), limits)  # starts the processes
    digests, taken_s = [], []
    for seed in range(rounds):
        began_s = time.monotonic()
        proposal = search.propose(trials, random.Random(seed), limits)
        taken_s.append(time.monotonic() - began_s)
        digests.append(proposal.architecture.digest)
    processes.close()
    row(f"elapsed, bayesian, {count} processes", taken_s)
    return digests


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", choices=["tiny", "laptop"])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    start = (
        starting_networks.small(arguments.profile)
        if arguments.profile
        else starting_networks.resnet50()
    )
    limits = Limits(parameters=4 * start.parameters)
    trials = history(start, arguments.models, limits)
    layers = [len(trial.architecture.signature_layers()) for trial in trials]
    print(f"{len(trials)} models of {min(layers)} to {max(layers)} layers on the main chain")

    print(f"{'seconds of one core':34} {'median':>9} {'most':>9}")
    found = [
        timed(lambda: distance_matrix([trial.architecture for trial in trials]))
        for _ in range(arguments.rounds)
    ]
    row("distances among the models", [taken_s for _, taken_s in found])
    accuracies = [trial.accuracy for trial in trials]
    fits = [
        timed(lambda: gaussian_process.fit(found[0][0], accuracies))
        for _ in range(arguments.rounds)
    ]
    row("Gaussian process", [taken_s for _, taken_s in fits])
    slowest_s = 0.0
    for name, method in searchers().items():
        proposals = [
            timed(lambda: method.propose(trials, random.Random(seed), limits))  # noqa: B023
            for seed in range(arguments.rounds)
        ]
        tried = max(proposal.why.tried for proposal, _ in proposals)
        taken_s = [item for _, item in proposals]
        row(f"a proposal, {name} ({tried} tried)", taken_s)
        slowest_s = max(slowest_s, *taken_s)
    proposals_by_count = {
        count: parallel_proposals(trials, limits, arguments.rounds, count)
        for count in arguments.processes
    }
    assert len({tuple(digests) for digests in proposals_by_count.values()}) == 1
    met = "met" if slowest_s < TARGET_S else "missed"
    print(f"target: under {seconds(TARGET_S)}: {met}")


if __name__ == "__main__":
    main()
