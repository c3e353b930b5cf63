"""Packing of any kind of data: shard tasks, the policy for bad samples, and resuming.

The source alone determines which samples belong to a shard. One worker writes a whole shard, a
finished shard is never written again, and the bytes do not depend on the number of workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from vflops.data.packed_index import shard_name
from vflops.data.process_pool import OnProgress, Reporter, run_all
from vflops.data.workspace import ShardPart, Workspace
from vflops.errors import UsageError

Policy = Literal["fail", "skip"]
"""What to do with a sample that cannot be used: stop and name it, or leave it out."""


@dataclass(frozen=True)
class ShardTask(ABC):
    """The samples of one shard, and how to write them."""

    split: str
    number: int

    @property
    def shard(self) -> str:
        """The file name of the shard."""
        return shard_name(self.split, self.number)

    @property
    @abstractmethod
    def samples(self) -> int:
        """Number of samples to read for the shard."""


TaskType = TypeVar("TaskType", bound=ShardTask)
PartType = TypeVar("PartType", bound=ShardPart)
ResultType = TypeVar("ResultType")


def make_shards(
    make_shard: Callable[[tuple[TaskType, Workspace], Reporter], PartType],
    tasks: Sequence[TaskType],
    workspace: Workspace,
    *,
    workers: int,
    on_progress: OnProgress,
) -> list[PartType]:
    """Write all shards with ``workers`` processes and return their parts in order."""
    return run_all(
        make_shard,
        [(task, workspace) for task in tasks],
        workers=workers,
        total=sum(task.samples for task in tasks),
        on_progress=on_progress,
        done="shards are packed",
    )


def group_by_split(
    splits: Iterable[str], tasks: Sequence[ShardTask], results: Sequence[ResultType]
) -> dict[str, list[ResultType]]:
    """Return the results of the tasks by split, in the given order of splits."""
    groups: dict[str, list[ResultType]] = {name: [] for name in splits}
    for task, result in zip(tasks, results, strict=True):
        groups[task.split].append(result)
    return groups


def check_omissions(path: Path, omitted: Sequence[str], samples: str, policy: Policy) -> None:
    """Raise ``UsageError`` if samples are missing from ``path`` although ``policy`` is ``fail``.

    ``omitted`` has one text per sample that was left out: its name and the reason.
    """
    if omitted and policy == "fail":
        raise UsageError(
            f"{path} was packed without {len(omitted)} of its {samples}, which cannot be used; "
            f"the first is {omitted[0]}",
            hint="repair them and pack into another folder, or accept the gaps: --policy skip",
        )
