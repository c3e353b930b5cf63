"""Several ranks of MindSpore on CPUs, and means over them.

Ranks find each other through a scheduler, a process that the first rank starts.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from vflops.python_start import SAFE_PATH
from vflops.train.backends.array_backend import Recipe

Shape = tuple[int, ...]

_SCHEDULER = """
from vflops.launch.parent_death import die_with
die_with({parent})
import mindspore
from mindspore.communication import init
mindspore.set_device("CPU")
init()
"""


def name_rank(recipe: Recipe) -> None:
    """Set the variables by which ranks find each other; start the scheduler on the first rank.

    The scheduler ends with the first rank; ranks end without leaving it (see ``run_and_end``).
    """
    host, port = recipe.addresses[0].rsplit(":", 1)
    os.environ |= {
        "MS_ROLE": "MS_WORKER",
        "MS_NODE_ID": str(recipe.rank),
        "MS_WORKER_NUM": str(recipe.ranks),
        "MS_SCHED_HOST": socket.gethostbyname(host),
        "MS_SCHED_PORT": port,
    }
    if recipe.rank == 0:
        subprocess.Popen(
            [sys.executable, SAFE_PATH, "-c", _SCHEDULER.format(parent=os.getpid())],
            env={**os.environ, "MS_ROLE": "MS_SCHED"},
            stdin=subprocess.DEVNULL,
        )


def join_ranks(ms: Any) -> None:
    """Wait until all ranks have found each other."""
    from mindspore.communication import init

    init()


def mean_over_ranks(ms: Any, shapes: tuple[Shape, ...], ranks: int) -> Callable[..., Any]:
    """Return a function of tensors of these shapes to their means, for the compiler.

    They are sent as one vector: kernels of separate messages could run in another order on another
    rank.
    """
    join: Any = ms.ops.Concat(0)
    all_reduce: Any = ms.ops.AllReduce() if ranks > 1 else None  # it needs the other ranks
    ends = tuple(accumulate(math.prod(shape) for shape in shapes))
    starts = (0, *ends[:-1])
    count = len(shapes)

    def mean(values: Any) -> Any:
        vector = all_reduce(join(tuple([value.reshape((-1,)) for value in values]))) / ranks
        return tuple(
            [vector[starts[index] : ends[index]].reshape(shapes[index]) for index in range(count)]
        )

    return mean
