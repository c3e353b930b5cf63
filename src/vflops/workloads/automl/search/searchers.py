"""Searchers by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vflops.errors import unknown_name
from vflops.workloads.automl.search.bayesian import BayesianSearch
from vflops.workloads.automl.search.distance_processes import DistancesTo, distances_to
from vflops.workloads.automl.search.evolution import EvolutionarySearch, RandomSearch
from vflops.workloads.automl.search.searcher import Searcher


def searchers() -> Mapping[str, Searcher]:
    """Return all searchers by name, the default first."""
    built_in: tuple[Searcher, ...] = (BayesianSearch(), EvolutionarySearch(), RandomSearch())
    return {searcher.name: searcher for searcher in built_in}


def searcher(name: str, distances: DistancesTo = distances_to) -> Searcher:
    """Return the searcher called ``name``; raise ``UsageError`` if it is unknown.

    ``distances`` computes the distances of architectures, if the searcher uses them.
    """
    if name not in searchers():
        raise unknown_name("search", name, searchers())
    found = searchers()[name]
    return replace(found, distances=distances) if isinstance(found, BayesianSearch) else found
