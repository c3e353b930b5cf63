"""Draw the shards of synthetic samples with several processes, which write to the same files.

A shard is drawn in pieces. Each piece has a fixed position in its file, so the bytes do not depend
on the number of processes. While processes draw, threads hash and sync the shards that are
complete. If the work is stopped, the same call keeps the complete shards and draws the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vflops.data.content_hash import hash_shard
from vflops.data.new_file import NewFile, write_fully
from vflops.data.packing import ShardTask
from vflops.data.process_pool import OnProgress, Reporter, Stopped, iter_results
from vflops.data.workspace import ShardPart, Workspace
from vflops.errors import Interrupted
from vflops.interruption import cause, protected
from vflops.machine.system.cpu_share import pool_processes
from vflops.record.files import atomic

_MAX_CLOSING_THREADS = 4
_STOP_GRACE_S = 2.0
"""How long complete shards may take to be closed after an interrupt, so that they are kept."""

FactsType = TypeVar("FactsType")
PartType = TypeVar("PartType", bound=ShardPart)


@dataclass(frozen=True)
class DrawnShard(ShardTask):
    """The samples ``start`` to ``start + count`` of a split, which are stored in one file."""

    start: int
    count: int

    @property
    def samples(self) -> int:
        """Number of samples in the shard."""
        return self.count


class Drawing(ABC, Generic[FactsType, PartType]):
    """How samples of one recipe are drawn and stored; it is sent to other processes."""

    part_type: ClassVar[type[ShardPart]]

    @property
    @abstractmethod
    def stride_bytes(self) -> int:
        """Bytes from the start of a sample in its file to the start of the next."""

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """Bytes of a sample, without the padding up to the next one."""

    @property
    @abstractmethod
    def header(self) -> bytes:
        """What is hashed before the values of a sample."""

    @property
    @abstractmethod
    def piece_samples(self) -> int:
        """Number of samples that a process draws at a time: a fraction of a second of work."""

    @abstractmethod
    def draw(
        self, split: str, start: int, count: int
    ) -> Iterator[tuple[NDArray[Any], list[FactsType]]]:
        """Yield the stored values and the facts of one or more samples, from ``start`` on."""

    @abstractmethod
    def part(
        self, shard: DrawnShard, sha256: str, digests: tuple[str, ...], facts: Sequence[FactsType]
    ) -> PartType:
        """Return the part of a complete shard from the digests and facts of all its samples."""


def shards_of(splits: Mapping[str, int], samples_per_shard: int) -> list[DrawnShard]:
    """Return the shards of all splits, given the number of samples by split."""
    return [
        DrawnShard(split, number, start, min(samples_per_shard, samples - start))
        for split, samples in splits.items()
        for number, start in enumerate(range(0, samples, samples_per_shard))
    ]


def draw_shards(
    drawing: Drawing[FactsType, PartType],
    shards: Sequence[DrawnShard],
    workspace: Workspace,
    *,
    workers: int,
    on_progress: OnProgress,
) -> list[PartType]:
    """Draw all shards that are not complete in ``workspace``; return the parts of all."""
    stop = Event()
    threads = ThreadPoolExecutor(min(_MAX_CLOSING_THREADS, pool_processes()), "vflops-shard")
    files: dict[DrawnShard, NewFile] = {}
    parts: dict[DrawnShard, Future[Any]] = {}
    try:
        kept = {shard: threads.submit(_kept_part, drawing, shard, workspace) for shard in shards}
        parts = {shard: part for shard, part in kept.items() if part.result() is not None}
        with protected():  # an interrupt must not leave files behind that are in no variable yet
            files = {s: NewFile(workspace.path / s.shard) for s in shards if s not in parts}
        done_before = sum(shard.count for shard in parts)
        total = sum(shard.count for shard in shards)
        on_progress(done_before, total)
        drawn = _complete_shards(
            drawing, files, workers, lambda done, _: on_progress(done_before + done, total)
        )
        with closing(drawn):
            for shard, facts in drawn:
                parts[shard] = threads.submit(
                    _close, drawing, shard, files[shard], facts, workspace, stop
                )
                for part in parts.values():
                    if part.done():
                        part.result()  # raises the error of a shard that could not be closed
        return [parts[shard].result() for shard in shards]
    except KeyboardInterrupt as error:
        ended, _ = wait(parts.values(), _STOP_GRACE_S)
        complete = [part for part in ended if part.exception() is None]
        raise Interrupted(
            f"{cause(error)}; {len(complete)} of {len(shards)} shards are drawn",
            hint="the same command resumes where it stopped",
        ) from None
    finally:
        stop.set()
        threads.shutdown(wait=True, cancel_futures=True)
        for file in files.values():
            file.abandon()  # has no effect on a closed file


@dataclass(frozen=True)
class _Piece:
    """Samples ``first`` to ``first + count`` of a shard, for one process."""

    drawing: Drawing[Any, Any]
    shard: DrawnShard
    path: Path
    first: int
    count: int


def _complete_shards(
    drawing: Drawing[FactsType, PartType],
    files: Mapping[DrawnShard, NewFile],
    workers: int,
    on_progress: OnProgress,
) -> Generator[tuple[DrawnShard, list[FactsType]], None, None]:
    """Draw into ``files``; yield each shard with the facts of its samples when it is complete."""
    step = drawing.piece_samples
    pieces = [
        _Piece(drawing, shard, file.temporary, first, min(step, shard.count - first))
        for shard, file in files.items()
        for first in range(0, shard.count, step)
    ]
    facts: dict[DrawnShard, dict[int, list[FactsType]]] = {shard: {} for shard in files}
    work = iter_results(
        _draw_piece,
        pieces,
        workers=workers,
        total=sum(piece.count for piece in pieces),
        on_progress=on_progress,
    )
    with closing(work):
        for position, piece_facts in work:
            piece = pieces[position]
            of_shard = facts[piece.shard]
            of_shard[piece.first] = piece_facts
            if sum(map(len, of_shard.values())) == piece.shard.count:
                yield piece.shard, [fact for first in sorted(of_shard) for fact in of_shard[first]]


def _draw_piece(piece: _Piece, report: Reporter) -> list[Any]:
    shard, stride_bytes = piece.shard, piece.drawing.stride_bytes
    facts: list[Any] = []
    try:
        with piece.path.open("r+b", buffering=0) as file:
            samples = piece.drawing.draw(shard.split, shard.start + piece.first, piece.count)
            for values, new_facts in samples:
                data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
                write_fully(file.fileno(), data, (piece.first + len(facts)) * stride_bytes)
                facts += new_facts
                report(len(new_facts))
    except OSError as error:
        raise atomic.cannot_write(piece.path.with_name(shard.shard), error) from error
    return facts


def _kept_part(
    drawing: Drawing[FactsType, PartType], shard: DrawnShard, workspace: Workspace
) -> ShardPart | None:
    """Return the part of a shard that an earlier call completed, or None."""
    return workspace.finished_part(drawing.part_type, shard.shard, "")


def _close(
    drawing: Drawing[FactsType, PartType],
    shard: DrawnShard,
    file: NewFile,
    facts: Sequence[FactsType],
    workspace: Workspace,
    stop: Event,
) -> PartType:
    """Hash and sync a complete shard, rename it, and write its part file."""

    def stop_if_asked(_: int, __: int) -> None:
        if stop.is_set():
            raise Stopped

    file.set_size(shard.count * drawing.stride_bytes)
    sha256, digests = hash_shard(
        file.temporary, drawing.header, drawing.sample_bytes, drawing.stride_bytes, stop_if_asked
    )
    file.close()
    part = drawing.part(shard, sha256, digests, facts)
    workspace.add_part(part)
    return part
