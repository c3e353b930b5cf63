"""The memory that torch allocates while a function runs."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import profile


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the peak of the memory that torch allocates during ``work``."""
    with profile(profile_memory=True) as profiled:
        kept = work()
    del kept
    assert profiled.profiler is not None
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = peak = 0
    for _, size in changes:
        held += size
        peak = max(peak, held)
    return peak
