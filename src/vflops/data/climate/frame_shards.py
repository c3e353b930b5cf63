"""Write the shards of packed frames, each from the file of one year."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from vflops.data.climate.box_rows import Order
from vflops.data.climate.frame_encoding import FrameEncoding, FrameShardFile, check_overflow
from vflops.data.climate.frame_index import FramePart, LeftOut
from vflops.data.climate.frame_source import FrameSource, Unreadable
from vflops.data.climate.scan import FrameMoments, MomentsCollector
from vflops.data.climate.year_split import YearSplit
from vflops.data.climate.years import ClimateYears
from vflops.data.packed_index import digest
from vflops.data.packing import Policy, ShardTask
from vflops.data.process_pool import Reporter
from vflops.data.workspace import Workspace
from vflops.errors import UsageError


@dataclass(frozen=True)
class FrameShardTask(ShardTask):
    """The frames of one shard, and how to write them."""

    year: int
    source: FrameSource
    file_identity: tuple[int, int, Order | None]
    """Size, time, and the order of box columns."""
    start: int
    stop: int
    encoding: FrameEncoding
    policy: Policy

    @property
    def samples(self) -> int:
        """Number of frames to read."""
        return self.stop - self.start

    def source_digest(self) -> str:
        """Return a digest of everything that determines the shard's bytes and boxes."""
        stored = self.encoding
        encoding = [stored.layout, stored.offset.tolist(), stored.scale.tolist()]
        name = self.source.path.name
        return digest([name, self.file_identity, self.start, self.stop, encoding])


def plan(
    folder: ClimateYears, split: YearSplit, encoding: FrameEncoding, policy: Policy
) -> list[FrameShardTask]:
    """Return the shards to write, in order: about 1 GB of one year, aligned with HDF5 chunks."""
    tasks = []
    for name, years in split.by_name.items():
        number = 0
        for year in map(folder.year, years):
            identity = year.bytes, year.time_ns, year.order
            for start, stop in year.source.ranges(encoding.frames_per_shard):
                tasks.append(
                    FrameShardTask(
                        split=name,
                        number=number,
                        year=year.year,
                        source=year.source,
                        file_identity=identity,
                        start=start,
                        stop=stop,
                        encoding=encoding,
                        policy=policy,
                    )
                )
                number += 1
    return tasks


def make_shard(job: tuple[FrameShardTask, Workspace], report: Reporter) -> FramePart:
    """Write one shard, unless it is complete and from the same file."""
    task, workspace = job
    source_digest = task.source_digest()
    part = workspace.finished_part(FramePart, task.shard, source_digest)
    if part is not None and not (part.left_out and task.policy == "fail"):
        report(task.samples)
        return part
    bad: dict[int, str] = {}
    while True:  # repeat without the bad frames, which are usually few
        bad_before = len(bad)
        shard = FrameShardFile(workspace.path / task.shard, task.encoding)
        try:
            collected = _fill(shard, task, bad, report if not bad else _no_report)
            if collected is not None:
                bad = collected.bad | bad  # keep the first reason: those frames were not reread
            if task.policy == "fail" and bad:
                frame, reason = next(iter(bad.items()))
                raise _bad_frame(task.source.path, frame, reason)
            if collected is not None and len(bad) == bad_before:
                part = _part(shard, task, collected, bad, source_digest)
                workspace.add_part(part)
                return part
        finally:
            shard.abandon()  # has no effect on a closed shard


def _no_report(count: int = 1) -> None:
    """Report nothing: frames that are read again were counted the first time."""


def _fill(
    shard: FrameShardFile, task: FrameShardTask, bad: dict[int, str], report: Reporter
) -> FrameMoments | None:
    """Write all frames that are not in ``bad``; return None if some could not be read."""
    collector = MomentsCollector(task.source, task.start, task.stop)
    frames = [frame for frame in range(task.start, task.stop) if frame not in bad]
    position = {frame: i for i, frame in enumerate(frames)}
    for start, stop in _ranges(frames):
        try:
            for piece in task.source.pieces(start, stop):
                for frame, fields in enumerate(piece.fields, piece.frame):
                    collector.add(frame, piece.row, fields)
                    stored = task.encoding.encode(fields)
                    check_overflow(stored, fields, f"{task.source.path}: frame {frame}")
                    shard.put(position[frame], piece.row, stored)
                if piece.row + piece.fields.shape[2] == task.source.height:
                    report(len(piece.fields))
        except Unreadable as error:
            if task.policy == "fail":
                raise
            bad |= dict.fromkeys(error.frames, f"cannot be read: {error.reason}")
            return None
    return collector.result()


def _ranges(frames: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as (start, stop) ranges without gaps."""
    if not frames:
        return []
    cuts = [i for i in range(1, len(frames)) if frames[i] != frames[i - 1] + 1]
    ends = [0, *cuts, len(frames)]
    return [(frames[a], frames[b - 1] + 1) for a, b in pairwise(ends)]


def _part(
    shard: FrameShardFile,
    task: FrameShardTask,
    collected: FrameMoments,
    bad: dict[int, str],
    source_digest: str,
) -> FramePart:
    keep = [i for i, frame in enumerate(collected.frames) if frame not in bad]
    name = task.source.path.name
    entry, digests = shard.close(len(keep))
    return FramePart(
        source_digest=source_digest,
        shard=entry,
        digests=digests,
        frames=tuple(collected.frames[i] for i in keep),
        mean=tuple(tuple(collected.moments.mean[i].tolist()) for i in keep),
        squares=tuple(tuple(collected.moments.squares[i].tolist()) for i in keep),
        left_out=tuple(LeftOut(file=name, frame=frame, reason=bad[frame]) for frame in sorted(bad)),
    )


def _bad_frame(path: Path, frame: int, reason: str) -> UsageError:
    return UsageError(
        f"cannot use {path}: frame {frame}: {reason}",
        hint="get the file again and run the same command, or leave such frames out with "
        f"--policy skip; to list them all: vflops data check {path.parent}",
    )
