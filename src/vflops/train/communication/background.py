"""Executors that average gradients in order while the backward pass continues."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.futures import Future

_JOIN_TIMEOUT_S = 2.0
"""Seconds to wait for the thread to end: it may be blocked by a rank that has died."""

Work = Callable[[], Tensor]


class BackgroundExecutor(ABC):
    """Runs one task after the other while the caller continues."""

    @abstractmethod
    def submit(self, work: Work) -> Future[Tensor]:
        """Schedule ``work``; return a future, whose ``wait`` raises the error if it fails."""

    @abstractmethod
    def close(self) -> None:
        """Stop accepting tasks."""


class ThreadExecutor(BackgroundExecutor):
    """Runs blocking collectives in a thread.

    After an error, all later tasks fail with the same error.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, Future[Tensor]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="communication", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> Future[Tensor]:
        """Queue ``work`` for the thread."""
        promise: Future[Tensor] = Future()
        # Without ``then``, DDP's C++ code would take the exception for a tensor.
        result: Future[Tensor] = promise.then(lambda done: done.value())
        self._queue.put((work, promise))
        return result

    def close(self) -> None:
        """Stop the thread. The caller has waited for all results."""
        self._queue.put(None)
        self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        failure: Exception | None = None
        while (task := self._queue.get()) is not None:
            work, promise = task
            try:
                if failure is not None:
                    raise failure
                promise.set_result(work())
            except Exception as error:
                failure = error
                promise.set_exception(error)  # type: ignore[arg-type]  # the stub expects a result


class StreamExecutor(BackgroundExecutor):
    """Runs tasks on a separate stream of an accelerator; not tested with several accelerators."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)

    def submit(self, work: Work) -> Future[Tensor]:
        """Launch ``work`` now; only the device waits for its result."""
        self._stream.wait_stream(torch.accelerator.current_stream(self._device))
        promise: Future[Tensor] = Future(devices=[self._device])
        with self._stream:
            promise.set_result(work())
        return promise

    def close(self) -> None:
        """Wait for the launched work."""
        self._stream.synchronize()


def background_executor(device: torch.device) -> BackgroundExecutor:
    """Return a thread for a CPU and a stream for an accelerator."""
    return ThreadExecutor() if device.type == "cpu" else StreamExecutor(device)
