"""Checks one node, together with those on which the same command was started.

python -m vflops.launch.node_check FOLDER NODE       node NODE of the preflight in FOLDER
python -m vflops.launch.node_check RUN RANKS SLOTS   the ceilings of a run's node, for jobs of RANKS
                                                     ranks, of which the node takes SLOTS
"""

from __future__ import annotations

import sys

from vflops.interruption import run_and_end
from vflops.machine.system.openmp_waiting import set_waiting_policy

if __name__ == "__main__":
    if len(sys.argv) == 3:  # without torch: a preflight says whether torch starts
        from vflops.launch.node_check.node_probe import main
    else:
        set_waiting_policy()
        from vflops.launch.node_check.node_ceilings import main  # type: ignore[assignment]
    run_and_end(main, *sys.argv[1:])
