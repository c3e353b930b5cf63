"""Compares searchers by the best network that they find, on tasks with a known answer.

    OMP_NUM_THREADS=1 python benchmarks/search_quality.py [--tasks development|held-out|NAME,…]
        [--searchers bayesian,evolution,random] [--candidates 30] [--seeds 10] [--workers 1]
        [--noise 0.01] [--processes 2]

A task is a formula for the accuracy of an architecture; the search sees it with noise, as in real
training. Nothing is trained. Candidates come from the same proposer that the workers use, in
ordered mode: a proposal knows results up to two rounds before. The value of a search is the true
accuracy of the network with the best measured accuracy. Regret is its difference from the best
accuracy that is possible. All searches use the same seeds; the last columns are the mean of the
differences, their standard error, and the numbers of wins and losses.

The search was tuned on the development tasks. The held-out ones are for evaluation only.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log2, sqrt
from multiprocessing import Pool
from statistics import mean, stdev

from vflops.record.formats.job import DataFacts
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.proposer import Proposer, first_network
from vflops.workloads.automl.search_events import Candidate, CandidateTrained, Turn
from vflops.workloads.automl.settings import AutomlSettings, tiny
from vflops.workloads.automl.shared_results import CandidateResult
from vflops.workloads.automl.turns import LAG, KnownResults

NOISE = 0.01
"""Standard deviation of a measured accuracy between seeds."""
ROOM = 8
"""The limit on parameters, relative to the first network."""
DATA = DataFacts(
    synthetic=True, path="", fingerprint="", train=512, validation=256, facts={"classes": 4}
)


@dataclass(frozen=True)
class Task:
    """A formula for the accuracy of every architecture."""

    name: str
    held_out: bool
    true: Callable[[Architecture], float]
    most: float
    """The best possible accuracy."""


def kernels(network: Architecture) -> int:
    """Return by how much the kernels of the main chain exceed 3, in total."""
    return sum(max(0, kernel - 3) for _, _, kernel, _ in network.signature_layers())


def octaves(network: Architecture) -> float:
    """Return the mean number of filter doublings per layer of the main chain."""
    filters = [log2(filters) for _, filters, _, _ in network.signature_layers()]
    return mean(filters)


def skips(network: Architecture, kind: str) -> int:
    """Return the number of skips of a kind."""
    return sum(skip == kind for *_, skip in network.skips())


def near(value: float, best: float, width: float) -> float:
    """Return 1 for the best value, falling to both sides."""
    return exp(-(((value - best) / width) ** 2) / 2)


def saturated(value: float, scale: float) -> float:
    """Return 0 for 0, approaching 1 for large values."""
    return 1 - exp(-value / scale)


def tasks(first: Architecture) -> tuple[Task, ...]:
    """Return all tasks for a search that starts from ``first``."""
    depth, width, size = first.depth, octaves(first), first.parameters

    def early(network: Architecture) -> float:
        return mean(kernel for _, _, kernel, _ in network.signature_layers()[:4])

    def mixed(network: Architecture) -> float:
        missing = (
            0.03 * abs(network.depth - depth - 4)
            + 0.02 * abs(skips(network, "add") - 6)
            + 0.01 * abs(kernels(network) - 10)
        )
        return max(0.0, 0.9 - missing)

    def thrift(network: Architecture) -> float:
        gained = 0.5 * saturated(network.depth - depth + kernels(network) / 4, 4)
        return 0.4 + gained - 0.1 * log2(network.parameters / size)

    def balanced(network: Architecture) -> float:
        deep, wide = network.depth - depth, octaves(network) - width
        return 0.3 + 0.6 * min(near(deep, 5, 3), near(wide, 0.5, 0.3))

    def late(network: Architecture) -> float:
        return mean(log2(filters) for _, filters, _, _ in network.signature_layers()[-3:])

    first_late = late(first)
    development = (
        ("kernels", lambda a: 0.2 + 0.7 * saturated(kernels(a), 24), 0.9),
        ("depth", lambda a: 0.3 + 0.6 * near(a.depth - depth, 7, 4), 0.9),
        ("width", lambda a: 0.3 + 0.6 * near(octaves(a) - width, 0.7, 0.35), 0.9),
        ("mix", mixed, 0.9),
        ("early kernels", lambda a: 0.2 + 0.1 * early(a), 0.9),
    )
    held_out = (
        ("skips", lambda a: 0.3 + 0.6 * saturated(skips(a, "add") - 3, 4), 0.9),
        ("concats", lambda a: 0.3 + 0.6 * near(skips(a, "concat"), 4, 2), 0.9),
        ("parameters", lambda a: 0.3 + 0.6 * saturated(a.parameters / size - 1, 3), 0.9),
        ("thrift", thrift, 0.9),
        ("balance", balanced, 0.9),
        ("late width", lambda a: 0.3 + 0.6 * saturated(late(a) - first_late, 0.7), 0.9),
        ("nothing", lambda a: int(a.digest[:8], 16) / 16**8, 1.0),
    )
    return (
        *(Task(name, False, true, most) for name, true, most in development),
        *(Task(name, True, true, most) for name, true, most in held_out),
    )


def setting(searcher: str, workers: int) -> AutomlSettings:
    """Return the profile ``tiny`` without tuning, which would change kernels."""
    own = tiny().model_dump()
    first = first_network(tiny(), DATA)
    limits = {"parameters": ROOM * first.parameters}
    changed = {"searcher": searcher, "workers": workers, "limits": limits, "tune_from": 10**6}
    return AutomlSettings.model_validate({**own, "search": {**own["search"], **changed}})


def value(
    job: tuple[str, str, int], *, candidates: int, workers: int, noise: float = NOISE
) -> float:
    """Run one search, and return the true accuracy of its best network."""
    name, searcher, seed = job
    settings = setting(searcher, workers)
    first = first_network(settings, DATA)
    task = next(item for item in tasks(first) if item.name == name)
    drawn = random.Random(f"{name} {seed}")
    found: dict[Turn, Candidate] = {}
    results: list[CandidateResult] = []
    proposer = Proposer(settings, seed, first, found.__getitem__)
    for number in range(candidates):
        turn = Turn(round=number // workers, worker=number % workers)
        known = [result for result in results if result.turn.round <= turn.round - LAG]
        candidate = proposer.propose(turn, KnownResults(tuple(known), tuple(found)))
        found[turn] = candidate
        accuracy = task.true(candidate.architecture) + drawn.gauss(0, noise)
        results.append(CandidateResult(turn, trained(candidate, min(max(accuracy, 0), 1))))
    best = max(results, key=lambda item: item.trained.accuracy if item.trained else 0)
    return task.true(found[best.turn].architecture)


def trained(candidate: Candidate, accuracy: float) -> CandidateTrained:
    """Return a made-up result."""
    return CandidateTrained(
        candidate=candidate.turn.name,
        accuracy=accuracy,
        hyper=candidate.hyper,
        epochs=1,
        reason="epochs",
        inherited=True,
    )


def against(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the mean difference of two searches with the same seeds, wins and losses."""
    apart = [a - b for a, b in zip(ours, theirs, strict=True)]
    error = stdev(apart) / sqrt(len(apart)) if len(apart) > 1 else 0.0
    won, lost = sum(item > 0 for item in apart), sum(item < 0 for item in apart)
    return f"{mean(apart):+.3f} ± {error:.3f}, {won:2} : {lost:2}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", default="development,held-out")
    parser.add_argument("--searchers", default="bayesian,evolution,random")
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--noise", type=float, default=NOISE)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    searchers, wanted = arguments.searchers.split(","), arguments.tasks.split(",")
    chosen = [
        task
        for task in tasks(first_network(tiny(), DATA))
        if {task.name, "held-out" if task.held_out else "development"} & set(wanted)
    ]
    jobs = [
        (task.name, searcher, seed)
        for task in chosen
        for seed in range(arguments.seeds)
        for searcher in searchers
    ]
    work = partial(
        value,
        candidates=arguments.candidates,
        workers=arguments.workers,
        noise=arguments.noise,
    )
    with Pool(arguments.processes) as pool:
        values = dict(zip(jobs, pool.map(work, jobs, chunksize=1), strict=True))

    main_one, *others = searchers
    print(
        f"{'value (regret)':16}"
        + "".join(f"{item:>16}" for item in searchers)
        + "".join(f"{f'{main_one} − {other}':>28}" for other in others)
    )
    columns: dict[str, list[float]] = {item: [] for item in searchers}

    def row(what: str, most: float, by_searcher: dict[str, list[float]]) -> None:
        means = {item: mean(found) for item, found in by_searcher.items()}
        print(
            f"{what:16}"
            + "".join(f"{f'{item:.3f} ({most - item:.3f})':>16}" for item in means.values())
            + "".join(f"{against(by_searcher[main_one], by_searcher[o]):>28}" for o in others)
        )

    for held_out in (False, True):
        group = [task for task in chosen if task.held_out == held_out]
        for task in group:
            found = {
                item: [values[task.name, item, seed] for seed in range(arguments.seeds)]
                for item in searchers
            }
            row(task.name, task.most, found)
            for item in searchers:
                columns[item].extend(found[item])
        if group:
            most = mean(task.most for task in group)
            row("all held out" if held_out else "all development", most, columns)
            columns = {item: [] for item in searchers}


if __name__ == "__main__":
    main()
