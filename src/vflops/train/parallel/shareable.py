"""Whether ranks can share a model in the mode that is asked for; found out before they start."""

from __future__ import annotations

from vflops.config.training import TrainSettings
from vflops.flops.capture import on_meta
from vflops.train.parallel.cut import cut
from vflops.train.parallel.pairs import check_pairs
from vflops.workloads.workload import Workload


def check_shareable(workload: Workload, name: str, settings: TrainSettings) -> None:
    """Refuse a model with fewer layers than stages, or channels that ranks cannot divide."""
    parallel, ranks = settings.parallel, settings.ranks
    if parallel.cuts_layers:
        cut(workload, settings, name)
    elif parallel.inner == "model":
        check_pairs(on_meta(workload.model, name), ranks // settings.shares, name)
