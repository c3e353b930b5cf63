"""Where averages are computed beside the backward pass, one after the other in the order given."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.futures import Future

_LEAVE_S = 2.0
"""A thread that waits for a rank that is gone is left behind after this."""

Work = Callable[[], Tensor]


class Lane(ABC):
    """Does one thing after the other, while the caller goes on."""

    @abstractmethod
    def put(self, work: Work) -> Future[Tensor]:
        """What ``work`` will have given; an error of it is raised where that is waited for."""

    @abstractmethod
    def close(self) -> None:
        """Take nothing more."""


class ThreadLane(Lane):
    """A thread, for collectives that block. After an error it does nothing more but give it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, Future[Tensor]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="communication", daemon=True)
        self._thread.start()

    def put(self, work: Work) -> Future[Tensor]:
        """Done in the thread."""
        promise: Future[Tensor] = Future()
        # ``then``: an error that is only set would reach C++ as a value that is no tensor.
        answer: Future[Tensor] = promise.then(lambda done: done.value())
        self._queue.put((work, promise))
        return answer

    def close(self) -> None:
        """End the thread; all that was put has been waited for."""
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
    """A stream of an accelerator beside the one that computes; not seen on several of them yet."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.Stream(device)

    def put(self, work: Work) -> Future[Tensor]:
        """Launched now; whoever waits for it waits on the device."""
        self._stream.wait_stream(torch.accelerator.current_stream(self._device))
        promise: Future[Tensor] = Future(devices=[self._device])
        with self._stream:
            promise.set_result(work())
        return promise

    def close(self) -> None:
        """Wait for what was launched."""
        self._stream.synchronize()


def lane(device: torch.device) -> Lane:
    """The one that suits the device."""
    return ThreadLane() if device.type == "cpu" else StreamLane(device)
