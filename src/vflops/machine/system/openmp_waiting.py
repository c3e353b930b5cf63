"""How OpenMP threads wait for each other: briefly busy, then asleep.

GNU's OpenMP library, which torch's CPU builds contain, reads its variables when it is loaded. So
the programs of vflops set the policy before they import torch, and the processes that they start
inherit it: ceilings and training wait in the same way.
"""

from __future__ import annotations

import os

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""The variables that determine how threads wait; the last one is of Intel's and LLVM's library."""
SPINS = 2000
"""The default of ``GOMP_SPINCOUNT``.

By the library's default a thread spins 300,000 times. If another program has taken the core of the
thread that it waits for, it then wastes its own core for milliseconds per parallel region. 2,000
iterations outlast the usual wait of a small network, so that a quiet machine is as fast as by
default (``benchmarks/openmp_waiting.py``).
"""


def set_waiting_policy() -> None:
    """Let OpenMP threads of this process and its children spin briefly, unless the user chose."""
    if not any(name in os.environ for name in VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)


def waiting_policy() -> str | None:
    """Return the variables that are set, such as ``GOMP_SPINCOUNT=2000``; None if none is."""
    chosen = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return ", ".join(chosen) or None
