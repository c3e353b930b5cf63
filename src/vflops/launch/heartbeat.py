"""The progress of a node's ranks, in memory that they share with their agent.

A rank writes three numbers whenever it changes its phase, several times per step, and for each
batch of an evaluation. That takes about a microsecond and no system call; no file system is
involved.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from vflops.record.formats.job_events import PHASES

_VARIABLE = "VFLOPS_HEARTBEAT"
"""The variable with the path of the shared memory, which exists as long as the agent does."""
_SLOT = struct.Struct("=QQQ")
"""Of each rank: the number of beats, the index of its phase, and a bit for each earlier phase."""
START_UP = PHASES[0]


@dataclass(frozen=True)
class Beat:
    """What a rank last wrote."""

    number: int = 0
    """How many times the rank has reported progress."""
    phase: str = START_UP
    earlier: frozenset[str] = frozenset()
    """The phases that the rank has completed at least once."""


class HeartbeatBoard:
    """The memory of an agent, with one slot for each rank of its node."""

    def __init__(self, ranks: range) -> None:
        self._ranks = ranks
        self._file = os.memfd_create("vflops-heartbeat")
        os.ftruncate(self._file, len(ranks) * _SLOT.size)
        self._memory = mmap.mmap(self._file, len(ranks) * _SLOT.size)

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables by which ranks find the memory."""
        return {_VARIABLE: f"/proc/{os.getpid()}/fd/{self._file}"}

    def read(self, rank: int) -> Beat:
        """Return what a rank last wrote."""
        offset = self._ranks.index(rank) * _SLOT.size
        number, phase, earlier = _SLOT.unpack_from(self._memory, offset)
        completed = frozenset(name for bit, name in enumerate(PHASES) if earlier >> bit & 1)
        return Beat(number, PHASES[phase % len(PHASES)], completed)

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()
        os.close(self._file)


class Heartbeat:
    """A rank's part of the memory; if there is none, beats go nowhere."""

    def __init__(self, local_rank: int, environment: Mapping[str, str] = os.environ) -> None:
        self._memory: mmap.mmap | None = None
        self._offset, self._number, self._earlier = local_rank * _SLOT.size, 0, 0
        path = environment.get(_VARIABLE)
        if path is None:  # not started by an agent
            return
        try:
            self._memory = _open_memory(path)
        except (OSError, ValueError) as error:
            print(
                f"a hang of this rank will not be noticed: cannot open its heartbeat {path}: "
                f"{getattr(error, 'strerror', None) or error}",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """Let all further beats go nowhere."""
        self._memory = None

    def beat(self, phase: str, completed: str | None = None) -> None:
        """Report progress: the phase that the rank is in, and the one that it has completed."""
        if self._memory is None:
            return
        if completed is not None:
            self._earlier |= 1 << PHASES.index(completed)
        self._number += 1
        _SLOT.pack_into(
            self._memory, self._offset, self._number, PHASES.index(phase), self._earlier
        )


def _open_memory(path: str) -> mmap.mmap:
    file = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(file, 0)
    finally:
        os.close(file)
