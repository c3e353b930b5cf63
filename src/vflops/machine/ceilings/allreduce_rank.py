r"""The program that runs the all-reduce ranks: imports torch once, then forks the ranks.

    python -m vflops.machine.ceilings.allreduce_rank \
        PARENT BACKEND RANKS FOLDER SECONDS SEED [MODE PRECISION]

With a mode and a precision, it measures averages as training computes them. Rank 0 writes the
results to ``FOLDER/result.jsonl``; if a rank fails, that is also written there. Forking after the
import keeps the start fast for any number of ranks; it is safe because neither threads nor an
accelerator are used before.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.interruption import run_and_end

if TYPE_CHECKING:
    from vflops.machine.ceilings.allreduce_steps import Rank

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Start the ranks and return the exit code: 0 if all of them succeeded."""
    parent, backend, ranks, folder, seconds, seed, *averaging = arguments
    end_s = time.monotonic() + float(seconds)
    _die_with(int(parent))  # before the import, which takes a while

    from vflops.machine.ceilings import allreduce_steps

    make: Callable[..., Rank] = allreduce_steps.Rank
    if averaging:
        from vflops.machine.ceilings.allreduce_modes import ModeRank, PowerSgdRank

        mode, precision = averaging
        make = PowerSgdRank if precision == "powersgd" else partial(ModeRank, mode, precision)
    leader = os.getpid()
    children: dict[int, int] = {}
    for rank in range(int(ranks)):
        child = os.fork()
        if child == 0:
            _die_with(leader)
            run_and_end(_run, make, rank, int(ranks), backend, Path(folder), end_s, int(seed))
        children[child] = rank
    return _watch(children, Path(folder))


def _watch(children: dict[int, int], folder: Path) -> int:
    """Wait for all ranks; if one fails, kill the others."""
    while children:
        child, status = os.wait()
        rank = children.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            _append(folder, {"failed": f"rank {rank} ended with {how}"})
            for other in children:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _run(
    make: Callable[..., Rank],
    rank: int,
    ranks: int,
    backend: str,
    folder: Path,
    end_s: float,
    seed: int,
) -> int:
    try:
        results = make(rank, ranks, backend, folder, end_s, seed).measure()
        if rank == 0:
            for line in results:
                _append(folder, line)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _append(folder: Path, line: dict[str, object]) -> None:
    with (folder / "result.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when ``parent`` ends for any reason (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


if __name__ == "__main__":
    run_and_end(main, sys.argv[1:])
