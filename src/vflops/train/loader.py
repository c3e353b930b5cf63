"""Loaders that bring batches to the device: on demand on a CPU, in advance on an accelerator."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflops.data.batch_memory import BatchMemory
from vflops.data.sampler import Indices
from vflops.workloads.contract.workload import Inputs, Samples

_AHEAD = 3
"""Batches in flight for an accelerator: one in use, one ready, one being prepared."""


@dataclass(frozen=True)
class Request:
    """Samples to read, with the random numbers that augment them; None for no augmentation."""

    indices: Indices
    draws: Tensor | None


Prepare = Callable[[tuple[Tensor, ...], Tensor | None], Inputs]
"""Converts the data read, which is on the device, to the inputs of the model."""


class Loader(ABC):
    """Yields the batches of a sequence of requests, in order."""

    @abstractmethod
    def __iter__(self) -> Iterator[Inputs]:
        """Yield one batch per request."""

    def close(self) -> None:
        """Stop the background thread, if any."""


class DirectLoader(Loader):
    """Reads each batch on demand: on a CPU there is nothing to overlap with."""

    def __init__(self, samples: Samples, requests: Iterator[Request], prepare: Prepare) -> None:
        self._samples, self._requests, self._prepare = samples, requests, prepare

    def __iter__(self) -> Iterator[Inputs]:
        """Yield one batch per request."""
        for request in self._requests:
            memory = BatchMemory()  # not reused, since the caller may keep the batch
            batch = self._samples.read(request.indices, memory)
            yield self._prepare(batch, request.draws)


@dataclass(frozen=True)
class _ReadyBatch:
    inputs: Inputs
    done: torch.Event


class PrefetchLoader(Loader):
    """Reads, copies and prepares batches on a separate stream while the model trains."""

    def __init__(
        self,
        samples: Samples,
        requests: Iterator[Request],
        prepare: Prepare,
        device: torch.device,
    ) -> None:
        self._samples, self._requests, self._prepare = samples, requests, prepare
        self._device = device
        self._ready: queue.Queue[_ReadyBatch | BaseException | None] = queue.Queue(
            maxsize=_AHEAD - 1
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="vflops-loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Inputs]:
        """Yield one batch per request; the current stream waits for it, the host does not."""
        while True:
            ready = self._ready.get()
            if ready is None:
                return
            if isinstance(ready, BaseException):
                raise ready
            stream = torch.accelerator.current_stream(self._device)
            stream.wait_event(ready.done)
            for tensor in ready.inputs:
                tensor.record_stream(stream)
            yield ready.inputs

    def close(self) -> None:
        """Stop the thread and discard the batches that it has prepared."""
        self._stopping.set()
        while self._thread.is_alive():
            try:
                self._ready.get(timeout=0.05)
            except queue.Empty:
                continue

    def _work(self) -> None:
        try:
            torch.accelerator.set_device_index(self._device.index or 0)
            stream = torch.Stream(self._device)
            buffers = [BatchMemory(pinned=True) for _ in range(_AHEAD)]
            copied: list[torch.Event | None] = [None] * _AHEAD
            for number, request in enumerate(self._requests):
                if self._stopping.is_set():
                    return
                slot = number % _AHEAD
                last_copy = copied[slot]
                if last_copy is not None:
                    last_copy.synchronize()  # it may still be reading the pinned memory
                batch = self._samples.read(request.indices, buffers[slot])
                with stream:
                    moved = [self._to_device(tensor, buffers[slot]) for tensor in batch]
                    draws = None if request.draws is None else self._to_device(request.draws)
                    copied[slot] = _record_event(self._device)
                    inputs = self._prepare(tuple(moved), draws)
                    done = _record_event(self._device)
                self._ready.put(_ReadyBatch(inputs, done))
            self._ready.put(None)
        except BaseException as error:  # __iter__ raises it
            self._ready.put(error)

    def _to_device(self, tensor: Tensor, memory: BatchMemory | None = None) -> Tensor:
        if memory is None:
            return tensor.pin_memory().to(self._device, non_blocking=True)
        moved = torch.empty_like(tensor, device=self._device)
        used = memory.used_part(tensor)
        moved[: used.shape[0]].copy_(used, non_blocking=True)
        return moved


def _record_event(device: torch.device) -> torch.Event:
    event = torch.Event(device)
    event.record()
    return event


def loader(
    samples: Samples,
    requests: Sequence[Request] | Iterator[Request],
    prepare: Prepare,
    device: torch.device,
) -> Loader:
    """Return a loader that suits the device."""
    if device.type == "cpu":
        return DirectLoader(samples, iter(requests), prepare)
    return PrefetchLoader(samples, iter(requests), prepare, device)
