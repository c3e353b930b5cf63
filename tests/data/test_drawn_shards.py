"""A drawing that is stopped ends soon, with all its processes, and is never taken for complete."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from vflops.data import drawn_shards
from vflops.data.cached_data import cached_data
from vflops.data.climate.frame_index import FramePart, FrameShard
from vflops.data.content_hash import hash_shard
from vflops.data.drawn_shards import Drawing, DrawnShard, draw_shards, shards_of
from vflops.data.packed_index import PackingRecord
from vflops.data.process_pool import OnProgress
from vflops.data.workspace import Workspace
from vflops.errors import Interrupted, RunFailed, UsageError
from vflops.record.files.lock import InUse

Hashes = tuple[str, tuple[str, ...]]
"""The hash of a shard and the digests of its samples."""

DRAW = """
import sys
from pathlib import Path

from vflops.data.climate.synthetic_weather import pack
from vflops.data.climate.weather import WeatherRecipe
from vflops.errors import Interrupted

if __name__ == "__main__":
    try:
        pack(
            WeatherRecipe(384, 576),
            Path(sys.argv[1]),
            5000,
            1,
            1,
            lambda done, total: print(done, flush=True),
            workers=2,
        )
    except Interrupted as error:
        print(error.message, flush=True)
        sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_all_processes(tmp_path: Path, number: int, code: int) -> None:
    script = tmp_path / "draw.py"
    script.write_text(DRAW)
    destination = tmp_path / "set"
    process = subprocess.Popen(
        [sys.executable, script, destination], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 1:
            pass
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.send_signal(number)
        assert process.wait(60) == code
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
    finally:
        process.kill()
    assert not destination.exists()
    partial = tmp_path / "set.partial"
    assert partial.is_dir() and not (partial / "index.json").exists()
    assert not list(partial.glob("*.bin"))
    if number == signal.SIGINT:
        assert not list(partial.glob(".*.tmp"))


class Numbers(Drawing[int, FramePart]):
    """Samples of one byte: their number."""

    part_type = FramePart
    stride_bytes = 1
    sample_bytes = 1
    header = b"number"
    piece_samples = 4

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def draw(
        self, split: str, start: int, count: int
    ) -> Iterator[tuple[NDArray[np.uint8], list[int]]]:
        for number in range(start, start + count):
            self.drawn.append(number)
            yield np.array([number], dtype=np.uint8), [number]

    def part(
        self, shard: DrawnShard, sha256: str, digests: tuple[str, ...], facts: Sequence[int]
    ) -> FramePart:
        entry = FrameShard(file=shard.shard, bytes=shard.count, sha256=sha256, frames=shard.count)
        frames = tuple(facts)
        return FramePart(
            source_digest="",
            shard=entry,
            digests=digests,
            frames=frames,
            mean=(),
            squares=(),
            left_out=(),
        )


def draw_numbers(folder: Path, on_progress: OnProgress) -> tuple[list[FramePart], list[int]]:
    """Draw two shards of four samples in this process; return their parts and what was drawn."""
    drawing = Numbers()
    with Workspace(folder / "set", PackingRecord(source="numbers", settings={})).locked() as space:
        parts = draw_shards(
            drawing, shards_of({"train": 8}, 4), space, workers=1, on_progress=on_progress
        )
    return parts, drawing.drawn


def interrupt_while_the_first_shard_is_closed(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    close: Callable[..., Hashes],
) -> str:
    """Interrupt the drawing of the second shard, before ``close`` hashes the first one."""
    interrupted = Event()

    def hash_later(*shard: Any) -> Hashes:
        assert interrupted.wait(60)
        return close(*shard)

    def interrupt(done: int, total: int) -> None:
        if done == 5:
            interrupted.set()
            raise KeyboardInterrupt

    monkeypatch.setattr(drawn_shards, "_STOP_GRACE_S", 60.0)  # a loaded machine needs more time
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as error:
        patch.setattr(drawn_shards, "hash_shard", hash_later)
        draw_numbers(folder, interrupt)
    return error.value.message


def test_a_shard_that_is_complete_when_the_user_interrupts_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(*shard: Any) -> Hashes:
        time.sleep(0.2)  # it would be stopped now, if nothing waited for it
        return hash_shard(*shard)

    message = interrupt_while_the_first_shard_is_closed(tmp_path, monkeypatch, close)
    assert message.endswith("1 of 2 shards are drawn")
    parts, drawn = draw_numbers(tmp_path, lambda done, total: None)
    assert drawn == [4, 5, 6, 7]
    assert [part.frames for part in parts] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_shard_that_could_not_be_closed_is_not_counted_as_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(*shard: Any) -> Hashes:
        raise RunFailed("No space left on device")

    message = interrupt_while_the_first_shard_is_closed(tmp_path, monkeypatch, close)
    assert message.endswith("0 of 2 shards are drawn")
    _, drawn = draw_numbers(tmp_path, lambda done, total: None)
    assert drawn == list(range(8))


def test_data_that_another_process_draws_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    waits: list[float] = []

    def pack(folder: Path) -> None:
        if len(waits) == 2:
            folder.mkdir()
            raise UsageError(f"{folder} exists and is not empty")
        raise InUse(f"{folder} is in use by process 1")

    path = cached_data("set", pack, lambda: waits.append(time.monotonic()))
    assert path == tmp_path / "set" and len(waits) == 2


def test_an_error_of_drawing_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))

    def pack(folder: Path) -> None:
        raise RunFailed("No space left on device")

    with pytest.raises(RunFailed, match="No space left"):
        cached_data("set", pack)
