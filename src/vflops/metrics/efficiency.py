"""What share of the possible was reached: over more ranks, of a ceiling, for a watt."""

from __future__ import annotations

from vflops.metrics.arguments import require_count, require_non_negative, require_positive


def weak_efficiency(*, base_flops: float, base_ranks: int, flops: float, ranks: int) -> float:
    """FLOPS a rank over the baseline's FLOPS a rank, when the work grew with the ranks.

    1 is ideal. With the same work for every rank it equals baseline time over time; being taken
    from FLOPS, it also holds where the shares differ, as bootstrap samples do.
    """
    require_positive("base_flops", base_flops)
    require_count("base_ranks", base_ranks, at_least=1)
    require_non_negative("flops", flops)
    require_count("ranks", ranks, at_least=1)
    return (flops / ranks) / (base_flops / base_ranks)


def strong_efficiency(*, base_time_s: float, base_ranks: int, time_s: float, ranks: int) -> float:
    """The baseline's rank-seconds over this run's, for the same work: 1 is ideal."""
    require_positive("base_time_s", base_time_s)
    require_count("base_ranks", base_ranks, at_least=1)
    require_positive("time_s", time_s)
    require_count("ranks", ranks, at_least=1)
    return (base_time_s * base_ranks) / (time_s * ranks)


def mfu(*, flops: float, ceiling_flops: float | None) -> float | None:
    """Model FLOPS utilisation: FLOPS over the ceiling *measured* on the same accelerators.

    None when no ceiling was measured: a data sheet is no substitute. More than 1 says that
    the ceiling or the operation count is wrong, and is returned as it is.
    """
    require_non_negative("flops", flops)
    if ceiling_flops is None:
        return None
    require_positive("ceiling_flops", ceiling_flops)
    return flops / ceiling_flops


def vflops_per_watt(*, vflops: float, power_w: float | None) -> float | None:
    """Valid FLOPS over the mean power while they were made: HPC AI500 V2.0's energy metric.

    None when the power was not measured.
    """
    require_non_negative("vflops", vflops)
    if power_w is None:
        return None
    require_positive("power_w", power_w)
    return vflops / power_w
