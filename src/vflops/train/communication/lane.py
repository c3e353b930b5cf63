"""Lanes: averages computed beside the backward pass, one after the other."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.futures import Future

_LEAVE_S = 2.0
"""Seconds to wait for the thread, which may be waiting for a rank that has died."""

Work = Callable[[], Tensor]


class Lane(ABC):
    """Does one task after the other while the caller continues."""

    @abstractmethod
    def put(self, work: Work) -> Future[Tensor]:
        """Return the future result of ``work``; its error is raised where the result is awaited."""

    @abstractmethod
    def close(self) -> None:
        """Stop; accept no more tasks."""


class ThreadLane(Lane):
    """A thread, for collectives that block. After an error, every task fails with that error."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, Future[Tensor]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="communication", daemon=True)
        self._thread.start()

    def put(self, work: Work) -> Future[Tensor]:
        """Run ``work`` in the thread."""
        promise: Future[Tensor] = Future()
        # ``then``: an error that is only set would reach C++ as a value that is not a tensor.
        answer: Future[Tensor] = promise.then(lambda done: done.value())
        self._queue.put((work, promise))
        return answer

    def close(self) -> None:
        """Stop the thread; all results have been awaited."""
        self._queue.put(None)
        self._thread.join(_LEAVE_S)

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
                promise.set_exception(error)  # type: ignore[arg-type]  # its stub wants a result


class StreamLane(Lane):
    """A stream of an accelerator beside the one that computes; not tested on several of them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)

    def put(self, work: Work) -> Future[Tensor]:
        """Launch ``work`` now; waiting for its result happens on the device."""
        self._stream.wait_stream(torch.accelerator.current_stream(self._device))
        promise: Future[Tensor] = Future(devices=[self._device])
        with self._stream:
            promise.set_result(work())
        return promise

    def close(self) -> None:
        """Wait for the launched work."""
        self._stream.synchronize()


def lane(device: torch.device) -> Lane:
    """Return the lane for the device."""
    return ThreadLane() if device.type == "cpu" else StreamLane(device)
