"""Commitments: the hash of a training state, computed and written while training continues.

A commitment in the log says what the state was after a step. Whoever trains the same steps again
from a state that the log committed to can compare (``vflops audit``). A checkpoint is a commitment
whose state is also written to a file.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflops.record.formats.job_events import Checkpointed, Committed
from vflops.record.formats.recorded_names import checkpoint_file
from vflops.train.checkpoint import Checkpoints
from vflops.train.state_file import PackedState, describe


@dataclass(frozen=True)
class HashedState:
    """A state whose hash is known, and which is on disk if it is a checkpoint."""

    step: int
    sha256: str
    size_bytes: int
    kept: bool
    is_checkpoint: bool
    took_s: float

    def event(self, loss: float | None) -> Committed:
        """Return the event to write to the log."""
        if not self.is_checkpoint:
            return Committed(step=self.step, sha256=self.sha256, loss=loss)
        return Checkpointed(
            step=self.step,
            sha256=self.sha256,
            loss=loss,
            file=checkpoint_file(self.step),
            size_bytes=self.size_bytes,
            kept=self.kept,
        )


class Committer:
    """Hashes states and writes checkpoints in another thread, one at a time."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._pool: ThreadPoolExecutor | None = None
        self._pending: Future[HashedState] | None = None

    @property
    def busy(self) -> bool:
        """Whether a state was begun and not taken yet."""
        return self._pending is not None

    def begin(
        self, step: int, contents: dict[str, Any], *, checkpoint: bool = False, kept: bool = False
    ) -> None:
        """Copy a state, and begin to hash the copy; the training may go on at once."""
        assert self._pending is None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "commit")
        header, tensors = describe(contents)
        copies, copied = _host_copies(tensors)
        state = PackedState(header, copies)
        self._pending = self._pool.submit(self._hash, step, state, copied, checkpoint, kept)

    def take(self, *, wait: bool = False) -> HashedState | None:
        """Return the state that was begun once it is hashed, otherwise None; raise its error."""
        if self._pending is None or not (wait or self._pending.done()):
            return None
        pending, self._pending = self._pending, None
        return pending.result()

    def _hash(
        self,
        step: int,
        state: PackedState,
        copied: torch.cuda.Event | None,
        checkpoint: bool,
        kept: bool,
    ) -> HashedState:
        if copied is not None:
            copied.synchronize()
        began_s = time.monotonic()
        sha256 = self._checkpoints.write_state(step, state) if checkpoint else state.sha256()
        took_s = time.monotonic() - began_s
        return HashedState(step, sha256, state.size_bytes, kept, checkpoint, took_s)

    def close(self) -> None:
        """End the thread; a state that was begun is still hashed."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _host_copies(tensors: list[Tensor]) -> tuple[list[Tensor], torch.cuda.Event | None]:
    """Return copies in host memory, and an event if they are complete only then.

    On a CUDA device, the current stream only waits for a copy on the device; the transfer runs on
    another stream.
    """
    if not any(tensor.is_cuda for tensor in tensors):
        return [tensor.to("cpu", copy=True) for tensor in tensors], None
    try:
        on_device = [torch.empty_like(tensor) for tensor in tensors]
    except torch.OutOfMemoryError:  # then training waits for the transfer
        return [tensor.to("cpu", copy=True) for tensor in tensors], None
    torch._foreach_copy_(on_device, tensors)
    host = [
        torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=True)
        for tensor in tensors
    ]
    stream, copied = torch.cuda.Stream(), torch.cuda.Event()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for target, source in zip(host, on_device, strict=True):
            target.copy_(source, non_blocking=True)
            if source.is_cuda:
                source.record_stream(stream)
        copied.record(stream)
    return host, copied
