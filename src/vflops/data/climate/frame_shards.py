"""Shards of packed frames made from years: one by one, each from one file, by any process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from vflops.data.climate.box_rows import Order
from vflops.data.climate.frame_encoding import FrameFile, Storing, refuse_overflow
from vflops.data.climate.frame_index import LeftOut, Part
from vflops.data.climate.frame_source import FrameSource, Unreadable
from vflops.data.climate.scan import FrameMoments, Gatherer
from vflops.data.climate.year_split import YearSplit
from vflops.data.climate.years import ClimateYears
from vflops.data.packed import digest, shard_name
from vflops.data.process_pool import Reporter
from vflops.data.workspace import Workspace
from vflops.errors import UsageError

Policy = Literal["fail", "skip"]
"""At a frame or box that cannot be used: stop and name it, or leave it out."""


@dataclass(frozen=True)
class ShardTask:
    """The frames of one shard, and how to make it."""

    split: str
    number: int
    year: int
    source: FrameSource
    file_identity: tuple[int, int, Order | None]
    """Size, time, and the order of its boxes."""
    start: int
    stop: int
    how: Storing
    policy: Policy

    @property
    def shard(self) -> str:
        """The shard's file name."""
        return shard_name(self.split, self.number)

    def source_digest(self) -> str:
        """Of all that the shard's bytes follow from, and how its boxes were read."""
        how = [self.how.layout, self.how.offset.tolist(), self.how.scale.tolist()]
        name = self.source.path.name
        return digest([name, self.file_identity, self.start, self.stop, how])


def plan(folder: ClimateYears, split: YearSplit, how: Storing, policy: Policy) -> list[ShardTask]:
    """The shards in order: frames of one year each, about 1 GB, cut where HDF5's chunks end."""
    tasks = []
    for name, years in split.by_name.items():
        number = 0
        for year in map(folder.year, years):
            same = year.bytes, year.time_ns, year.order
            for start, stop in year.source.ranges(how.frames_a_shard):
                about = name, number, year.year, year.source, same, start, stop, how, policy
                tasks.append(ShardTask(*about))
                number += 1
    return tasks


def make_shard(job: tuple[ShardTask, Workspace], report: Reporter) -> Part:
    """Make one shard, unless it is there already, whole and from the same file."""
    task, workspace = job
    source_digest = task.source_digest()
    part = workspace.kept(Part, task.shard, source_digest)
    if part is not None and not (part.left_out and task.policy == "fail"):
        report(task.stop - task.start)
        return part
    bad: dict[int, str] = {}
    while True:  # again without the frames that turned out bad: they are few or the file is
        before = len(bad)
        shard = FrameFile(workspace.path / task.shard, task.how)
        try:
            gathered = _fill(shard, task, bad, report if not bad else _no_report)
            if gathered is not None:
                bad = gathered.bad | bad  # what is known is why: such frames were not read again
            if task.policy == "fail" and bad:
                frame, reason = next(iter(bad.items()))
                raise _bad_frame(task.source.path, frame, reason)
            if gathered is not None and len(bad) == before:
                part = _part(shard, task, gathered, bad, source_digest)
                part.write(workspace.part_file(task.shard))
                return part
        finally:
            shard.abandon()  # what is closed has its name already


def _no_report(count: int = 1) -> None:
    """Frames that are read again were counted."""


def _fill(
    shard: FrameFile, task: ShardTask, bad: dict[int, str], report: Reporter
) -> FrameMoments | None:
    """Write all frames that are not known as bad; None where some could not be read."""
    gatherer = Gatherer(task.source, task.start, task.stop)
    frames = [frame for frame in range(task.start, task.stop) if frame not in bad]
    places = {frame: place for place, frame in enumerate(frames)}
    for start, stop in _runs(frames):
        try:
            for piece in task.source.pieces(start, stop):
                for frame, fields in enumerate(piece.fields, piece.frame):
                    gatherer.add(frame, piece.row, fields)
                    stored = task.how.stored(fields)
                    refuse_overflow(stored, fields, f"{task.source.path}: frame {frame}")
                    shard.put(places[frame], piece.row, stored)
                if piece.row + piece.fields.shape[2] == task.source.height:
                    report(len(piece.fields))
        except Unreadable as error:
            if task.policy == "fail":
                raise
            bad |= dict.fromkeys(error.frames, f"cannot be read: {error.reason}")
            return None
    return gatherer.done()


def _runs(frames: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in order as ranges without gaps."""
    if not frames:
        return []
    cuts = [i for i in range(1, len(frames)) if frames[i] != frames[i - 1] + 1]
    ends = [0, *cuts, len(frames)]
    return [(frames[a], frames[b - 1] + 1) for a, b in pairwise(ends)]


def _part(
    shard: FrameFile,
    task: ShardTask,
    gathered: FrameMoments,
    bad: dict[int, str],
    source_digest: str,
) -> Part:
    keep = [place for place, frame in enumerate(gathered.frames) if frame not in bad]
    name = task.source.path.name
    return Part(
        source_digest=source_digest,
        shard=shard.close(len(keep)),
        frames=tuple(gathered.frames[place] for place in keep),
        mean=tuple(tuple(gathered.moments.mean[place].tolist()) for place in keep),
        squares=tuple(tuple(gathered.moments.squares[place].tolist()) for place in keep),
        left_out=tuple(LeftOut(file=name, frame=frame, reason=bad[frame]) for frame in sorted(bad)),
    )


def _bad_frame(path: Path, frame: int, reason: str) -> UsageError:
    return UsageError(
        f"cannot use {path}: frame {frame}: {reason}",
        hint="get the file again and give the same command, or leave such frames out with "
        f"--policy skip; all of them: vflops data check {path.parent}",
    )
