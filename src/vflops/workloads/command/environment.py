"""Environment variables of a command, and the file with its sample indices."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from vflops.data.bag import bag_indices
from vflops.data.sampler import Indices
from vflops.errors import Interrupted, RunFailed
from vflops.launch.core_binding import BINDING
from vflops.machine.system.cpu_share import OMP, cpu_threads
from vflops.record.files import atomic
from vflops.record.files.document import read_json
from vflops.train.context import JobContext
from vflops.workloads.command.script_predictions import FILE
from vflops.workloads.command.settings import CommandSettings

INDICES = "VFLOPS_INDICES"
"""The variable with the path of the indices."""
_LOOPBACK = "127.0.0.1"
_TIMEOUT_S = 120.0
"""How long a rank waits for a file that the first rank writes."""


def environment(context: JobContext, settings: CommandSettings) -> Mapping[str, str]:
    """Return the environment of the command on this rank; the first rank writes shared files."""
    record = context.record
    job = context.attempt.parent.resolve()
    indices, rendezvous = job / "indices.npy", context.attempt / "meeting.json"
    atomic.make_folder(context.checkpoints)
    if context.rank == 0:
        write_indices(indices, bag_indices(record.bag, record.data.train), record.data.train)
        atomic.write_json(rendezvous, {"host": _LOOPBACK, "port": _free_port()})
    else:
        _wait_for(rendezvous, context)
    address = read_json(rendezvous)
    variables = {
        "VFLOPS_SEED": record.seed,
        "VFLOPS_JOB": record.job,
        "VFLOPS_RANK": context.rank,
        "VFLOPS_RANKS": record.ranks,
        "VFLOPS_LOCAL_RANK": context.local_rank,
        "VFLOPS_EPOCHS": settings.train.epochs,
        "VFLOPS_BATCH": settings.train.batch,
        "VFLOPS_DATA": record.data.path,
        "VFLOPS_TARGET": record.goal.target,
        INDICES: indices,
        "VFLOPS_CHECKPOINT": context.checkpoints.resolve(),
        "RANK": context.rank,
        "WORLD_SIZE": record.ranks,
        "LOCAL_RANK": context.local_rank,
        "MASTER_ADDR": address["host"],
        "MASTER_PORT": address["port"],
        OMP: threads_per_rank(context),
    }
    if record.bag is not None:
        variables["VFLOPS_PREDICTIONS"] = context.attempt.resolve() / FILE
    defaults = {"PYTHONUNBUFFERED": "1"}  # output arrives line by line
    return {**defaults, **os.environ, **{name: str(value) for name, value in variables.items()}}


def threads_per_rank(context: JobContext) -> int:
    """Return the number of CPU threads that the command should use on this rank."""
    ranks = context.local_ranks or context.record.ranks
    return cpu_threads(ranks, bound=BINDING in os.environ).count


def write_indices(path: Path, bag: Indices | None, samples: int) -> None:
    """Write the indices of the bag, or of all samples, as a ``.npy`` file without pickle."""
    if not path.is_file():
        buffer = io.BytesIO()
        indices = np.arange(samples, dtype=np.int64) if bag is None else bag
        np.save(buffer, indices, allow_pickle=False)
        atomic.write_bytes(path, buffer.getbuffer())


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _wait_for(path: Path, context: JobContext) -> None:
    end_s = time.monotonic() + _TIMEOUT_S
    while not path.is_file():
        if context.stop.signal:
            raise Interrupted(f"stopped by {context.stop.signal} before the command was started")
        if time.monotonic() > end_s:
            raise RunFailed(f"{path} did not appear within {_TIMEOUT_S:g} s on rank {context.rank}")
        time.sleep(0.05)
