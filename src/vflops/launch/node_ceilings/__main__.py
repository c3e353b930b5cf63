"""Starts the measurement of a node: ``python -m vflops.launch.node_ceilings RUN RANKS SLOTS``."""

from __future__ import annotations

import sys

from vflops.interruption import run_and_end
from vflops.machine.system.openmp_waiting import set_waiting_policy

if __name__ == "__main__":
    set_waiting_policy()
    from vflops.launch.node_ceilings.node_program import main  # imports torch

    run_and_end(main, *sys.argv[1:4])
