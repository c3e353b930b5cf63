"""How the ranks of an attempt failed, and which failure caused the others.

Each failure is a file in the attempt's folder: a rank writes it if it can, and its agent otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from vflops.errors import RestartNeeded
from vflops.record.files import atomic
from vflops.record.files.regular_file import open_regular, read_regular
from vflops.record.files.strict_json import parse_json
from vflops.text import printable

NODE = "VFLOPS_NODE"
"""The variable that tells a rank the name of its node; empty on the user's own machine."""
Kind = Literal["hung", "killed", "ended", "error", "aborted", "lost-peer"]
"""``aborted``: killed by SIGABRT, with which libraries end a process, also one that lost another
rank. ``lost-peer``: the rank only lost its connection to another one."""

_ORDER: tuple[Kind, ...] = get_args(Kind)
"""A failure of an earlier kind is more likely to have caused one of a later kind."""
_LAST_LINES, _LINE_LENGTH, _TAIL_BYTES = 3, 200, 8192
_LISTED = 8
"""How many ranks or nodes a message names."""


@dataclass(frozen=True)
class RankFailure:
    """The failure of one rank."""

    rank: int
    kind: Kind
    message: str
    """The error, or what follows the name of the rank: "was killed by SIGSEGV"."""
    hint: str | None = None
    exit_code: int = 3
    node: str = ""
    last_lines: tuple[str, ...] = ()
    """The last lines of its output."""
    one_of: tuple[int, ...] = ()
    """If it is not known which rank failed: those that may have, of which ``rank`` is the first."""
    nodes: tuple[str, ...] = ()
    """The nodes of these ranks, if they are several."""
    disk_full: bool = False
    """Whether the rank could not write, because a disk or a quota is full."""

    def write(self, attempt: Path) -> None:
        """Write the file of this failure."""
        data = {
            "message": self.message,
            "cure": self.hint,
            "exit_code": self.exit_code,
            "kind": self.kind,
            "node": self.node,
            "one_of": self.one_of,
            "nodes": self.nodes,
            "disk_full": self.disk_full,
        }
        atomic.write_json(_file(attempt, self.rank), data)

    @property
    def needs_restart(self) -> bool:
        """Whether the rank ended so that all ranks of the job restart."""
        return self.kind == "error" and self.exit_code == RestartNeeded.exit_code

    @property
    def is_consequence(self) -> bool:
        """Whether the rank only lost its connection to another one."""
        return self.kind == "lost-peer"

    @property
    def may_be_consequence(self) -> bool:
        """Whether the failure of another rank may have ended this one."""
        return self.kind in ("aborted", "lost-peer")

    @property
    def may_be_the_node(self) -> bool:
        """Whether the node may be the reason, instead of an error of the rank."""
        return self.kind in ("hung", "killed", "aborted")

    @property
    def text(self) -> str:
        """The rank, its node, how it failed, and the last lines of a rank that died."""
        who = self._who
        if self.kind in ("error", "lost-peer"):
            return f"{who}: {self.message}"
        lines = self.last_lines if self.kind != "hung" else ()
        return f"{who} {self.message}" + (f"; its last lines: {' | '.join(lines)}" if lines else "")

    @property
    def _who(self) -> str:
        if not self.one_of:
            return f"rank {self.rank}" + (f" on {printable(self.node)}" if self.node else "")
        nodes = _listed(self.nodes or (self.node,))
        return f"one of ranks {_listed(self.one_of)}" + (f" ({nodes})" if nodes else "")


def _listed(values: Sequence[int | str]) -> str:
    """Return the first values as text, and how many more there are."""
    more = len(values) - _LISTED
    first = ", ".join(printable(str(value)) for value in values[:_LISTED])
    return first + (f" and {more} more" if more > 0 else "")


def restart_needed(attempt: Path) -> bool:
    """Whether a rank ended so that all ranks restart, which does not count as a failure."""
    return any(failure.needs_restart for failure, _ in _read(attempt))


def is_reported(attempt: Path, rank: int) -> bool:
    """Whether the file of a rank's failure exists."""
    return _file(attempt, rank).is_file()


def root_cause(attempt: Path) -> RankFailure | None:
    """Return the failure that caused the others; None if no failure was reported."""
    failures = sorted(_read(attempt), key=_order_of_causes)
    return failures[0][0] if failures else None


def _order_of_causes(found: tuple[RankFailure, int]) -> tuple[bool, int, int, int]:
    failure, written_ns = found
    return not failure.needs_restart, _ORDER.index(failure.kind), written_ns, failure.rank


def _read(attempt: Path) -> Iterator[tuple[RankFailure, int]]:
    """Yield the failures and the times at which they were written."""
    for path in attempt.glob("rank-*.error.json"):
        with suppress(OSError, ValueError, KeyError):
            data = parse_json(read_regular(path))
            rank = int(path.name.split(".")[0].removeprefix("rank-"))
            failure = RankFailure(
                rank=rank,
                kind=data.get("kind", "error"),
                message=str(data["message"]),
                hint=data["cure"],
                exit_code=int(data["exit_code"]),
                node=str(data.get("node", "")),
                one_of=tuple(int(other) for other in data.get("one_of", ())),
                nodes=tuple(str(node) for node in data.get("nodes", ())),
                disk_full=data.get("disk_full") is True,
                last_lines=_last_lines(attempt / f"rank-{rank}.log"),
            )
            yield failure, path.stat().st_mtime_ns


def _last_lines(log: Path) -> tuple[str, ...]:
    try:
        with open_regular(log) as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    spoken = [printable(line.strip())[:_LINE_LENGTH] for line in lines if line.strip()]
    return tuple(spoken[-_LAST_LINES:])


def _file(attempt: Path, rank: int) -> Path:
    return attempt / f"rank-{rank}.error.json"
