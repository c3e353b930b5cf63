"""Efficiency: scaling over ranks, the share of a ceiling, and FLOPS per watt."""

from __future__ import annotations

from vflops.metrics.arguments import require_count, require_non_negative, require_positive


def weak_efficiency(*, base_flops: float, base_ranks: int, flops: float, ranks: int) -> float:
    """Return FLOPS per rank / FLOPS per rank of the baseline, for work that grows with the ranks.

    1 is ideal. If every rank has the same work, this is baseline time / time. Because it is
    computed from FLOPS, it is also correct for unequal work, as with bootstrap samples.
    """
    require_positive("base_flops", base_flops)
    require_count("base_ranks", base_ranks, at_least=1)
    require_non_negative("flops", flops)
    require_count("ranks", ranks, at_least=1)
    return (flops / ranks) / (base_flops / base_ranks)


def strong_efficiency(*, base_time_s: float, base_ranks: int, time_s: float, ranks: int) -> float:
    """Return rank-seconds of the baseline / those of this run, for the same work; 1 is ideal."""
    require_positive("base_time_s", base_time_s)
    require_count("base_ranks", base_ranks, at_least=1)
    require_positive("time_s", time_s)
    require_count("ranks", ranks, at_least=1)
    return (base_time_s * base_ranks) / (time_s * ranks)


def mfu(*, flops: float, ceiling_flops: float | None) -> float | None:
    """Return the model FLOPS utilisation: FLOPS / the ceiling *measured* on the same accelerators.

    None if no ceiling was measured; a data sheet is not a substitute. A value above 1, which means
    that the ceiling or the operation count is wrong, is returned unchanged.
    """
    require_non_negative("flops", flops)
    if ceiling_flops is None:
        return None
    require_positive("ceiling_flops", ceiling_flops)
    return flops / ceiling_flops


def vflops_per_watt(*, vflops: float, power_w: float | None) -> float | None:
    """Return valid FLOPS / mean power over the same time: HPC AI500 V2.0's energy metric.

    None if the power was not measured.
    """
    require_non_negative("vflops", vflops)
    if power_w is None:
        return None
    require_positive("power_w", power_w)
    return vflops / power_w
