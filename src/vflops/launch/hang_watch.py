"""Watches the ranks of one attempt for hangs, together with the agents of its other nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import ClassVar

from vflops.errors import RunFailed, VflopsError
from vflops.launch.hang_judge import (
    PATIENCE,
    HangJudge,
    Observation,
    ProcessState,
    Silence,
)
from vflops.launch.heartbeat import Beat, HeartbeatBoard
from vflops.launch.node_group import NodeGroup
from vflops.launch.rank_failures import RankFailure
from vflops.record.files.document import Data, Document

_SHORTEST_S, _LONGEST_S = 0.5, 2.0
"""The time between two observations; with the floor of the limits, it is a sixtieth of that."""


STOPPED = "its process was stopped by a signal"
"""The reason of a process that a signal stopped."""


class RankHung(RunFailed):
    """A rank made no progress; the job may succeed on another node."""


class SilentRank(Data):
    """A rank that is silent for longer than its limit."""

    rank: int
    node: str
    silent_s: float
    limit_s: float
    phase: str
    beats: int
    stopped: bool

    @property
    def message(self) -> str:
        """How the rank failed."""
        return (
            f"hangs: no progress for {self.silent_s:.0f} s in the phase {self.phase} "
            f"(limit: {self.limit_s:.0f} s)" + (f", {STOPPED}" if self.stopped else "")
        )


class SilentRanks(Document):
    """``silent-<n>.json`` of an attempt on several nodes: all ranks of node n are silent."""

    schema_name: ClassVar[str] = "vflops.silent"

    ranks: tuple[SilentRank, ...]


class HangWatch:
    """Watches the ranks of this node."""

    def __init__(
        self, attempt: Path, group: NodeGroup, board: HeartbeatBoard, floor_s: float, node: str
    ) -> None:
        """``floor_s`` is the shortest limit, or 0 to watch nothing; ``node`` names this node."""
        self._attempt, self._group, self._board, self._node = attempt, group, board, node
        self._every_s = min(max(floor_s / 60, _SHORTEST_S), _LONGEST_S)
        self._judge = HangJudge(floor_s, self._every_s) if floor_s else None
        self._next_s = 0.0
        self._beats: dict[int, int] = {}
        self._announced = False

    def check(self, pids: Mapping[int, int]) -> Sequence[RankFailure]:
        """Return the ranks for which the job hangs, after writing their failures; else nothing.

        ``pids`` are the running processes of this node by rank.
        """
        now_s = monotonic()
        if self._judge is None or now_s < self._next_s or not pids:
            return ()
        self._next_s = now_s + self._every_s
        beats = {rank: self._board.read(rank) for rank in pids}
        seen = {
            rank: Observation(
                beat, process_state(pids[rank]) if self._is_silent(rank, beat) else "active"
            )
            for rank, beat in beats.items()
        }
        self._beats = {rank: beat.number for rank, beat in beats.items()}
        silences = self._judge.observe(now_s, seen)
        hung = self._blamed(self._described(silences))
        for failure in hung:
            with suppress(VflopsError):  # the disk may be full
                failure.write(self._attempt)
        return hung

    def _is_silent(self, rank: int, beat: Beat) -> bool:
        """Whether a rank made no progress since the last observation."""
        return self._beats.get(rank) == beat.number

    def _described(self, silences: Mapping[int, Silence]) -> list[SilentRank]:
        return [
            SilentRank(rank=rank, node=self._node, **vars(silence))
            for rank, silence in silences.items()
        ]

    def _blamed(self, silent: Sequence[SilentRank]) -> list[RankFailure]:
        """Return the failures of the ranks that the others wait for; nothing if none hangs.

        A node whose ranks wait for storage, or in a phase with a longer limit, is waited for, but
        not if ranks were stopped.
        """
        if self._group.nodes == 1:
            return blamed(silent)
        self._announce(silent)
        if not silent:
            return []
        if any(rank.stopped for rank in silent):
            return blamed(silent)
        nodes = [self._silent_ranks(node) for node in range(self._group.nodes)]
        if all(nodes):
            return blamed([rank for ranks in nodes for rank in ranks])
        if all(rank.silent_s > PATIENCE * rank.limit_s for rank in silent):
            return [_unconfirmed(found) for found in blamed(silent)]
        return []

    def _announce(self, silent: Sequence[SilentRank]) -> None:
        """Tell the other nodes whether the ranks of this one are silent."""
        own = self._attempt / f"silent-{self._group.node}.json"
        if not silent:
            if self._announced:
                own.unlink(missing_ok=True)
            self._announced = False
        elif not self._announced:
            with suppress(VflopsError):  # the disk may be full
                SilentRanks(ranks=tuple(silent)).write(own)
            self._announced = True

    def _silent_ranks(self, node: int) -> tuple[SilentRank, ...]:
        """Return the ranks of a node if they are silent; nothing once its file is deleted."""
        with suppress(VflopsError):
            return SilentRanks.read(self._attempt / f"silent-{node}.json").ranks
        return ()


def blamed(silent: Sequence[SilentRank]) -> list[RankFailure]:
    """Return the failures of the ranks that the others wait for.

    They are those that were stopped, or else the one that is behind the others. If several are
    equally far, as in a step in which they wait for each other, it is one of them.
    """
    stopped = [rank for rank in silent if rank.stopped]
    if stopped:
        return [RankFailure(rank.rank, "hung", rank.message, node=rank.node) for rank in stopped]
    fewest = min((rank.beats for rank in silent), default=0)
    behind = sorted((rank for rank in silent if rank.beats == fewest), key=lambda rank: rank.rank)
    if not behind:
        return []
    nodes = tuple(dict.fromkeys(rank.node for rank in behind))
    return [
        RankFailure(
            behind[0].rank,
            "hung",
            behind[0].message,
            node=nodes[0] if len(nodes) == 1 else "",
            one_of=tuple(rank.rank for rank in behind) if len(behind) > 1 else (),
            nodes=nodes if len(nodes) > 1 else (),
        )
    ]


def _unconfirmed(failure: RankFailure) -> RankFailure:
    """Return a failure seen on one node only: it may wait for any of the others."""
    node = f" on {failure.node}" if failure.node else ""
    message = f"{failure.message}; seen{node} only: the other nodes did not report"
    return replace(failure, message=message, node="")


def process_state(pid: int) -> ProcessState:
    """Return the state of a process, from those of its threads; ``active`` if it is not known."""
    states = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, IndexError):
                states.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    if "t" in states:
        return "traced"
    if states == {"T"}:
        return "stopped"
    return "storage" if "D" in states else "active"
