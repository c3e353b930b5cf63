"""One rank of an all-reduce benchmark; rank 0 decides which steps all ranks take."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from vflops.machine.ceilings.reference import relative_error

_SIZE_EXPONENTS = {
    "gloo": (20, 24, 10, 22, 16, 12, 18, 14, 26),
    "nccl": (24, 28, 10, 26, 20, 16, 22, 12, 18, 14, 30),
}
"""Exponents of the message sizes (powers of two): some of high bandwidth first, the slowest
last."""
_DISTINCT = 1_048_573
"""Number of distinct random numbers; longer messages repeat them."""
_SAMPLE_S = 5e-3
_SAMPLES = 5
_FINAL_SAMPLES = 11
_FINALISTS = 2
_MAX_GROWTH_BITS = 100
"""Bits by which values may grow in one sample: each in-place sum increases them, and fp32 must not
overflow."""


@dataclass
class Message:
    """A message: ``data`` is set to ``numbers`` times the factor of the rank, then reduced."""

    numbers: torch.Tensor
    data: torch.Tensor
    error: float = math.nan
    times_s: list[float] = field(default_factory=list)
    call_s: float = 0.0
    sent_bytes: int | None = None
    """Bytes that all ranks sent for one operation; None if they are not counted."""

    @property
    def size_bytes(self) -> int:
        """Size of the message in fp32."""
        return self.data.nbytes

    @property
    def speed(self) -> float:
        """Bytes per second."""
        return self.size_bytes / statistics.median(self.times_s)


class Rank:
    """One rank of the group."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        backend: str,
        folder: Path,
        end_s: float,
        seed: int,
        *,
        meeting: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        """``meeting`` is where ranks of several nodes meet; those of one node meet in ``folder``.

        ``local_rank`` is the number of the rank on its node.
        """
        self._rank = rank
        self._ranks = ranks
        self._end_s = end_s
        self._size_exponents = _SIZE_EXPONENTS[backend]
        self._device = torch.device("cpu")
        if backend == "nccl":
            index = rank if local_rank is None else local_rank
            self._device = torch.device("cuda", index)
            torch.accelerator.set_device_index(index)
        generator = torch.Generator().manual_seed(seed)  # the same numbers on all ranks
        self._tile = (torch.rand(_DISTINCT, generator=generator) + 0.5).to(self._device)
        dist.init_process_group(
            backend,
            init_method=meeting or f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=max(self._left_s(), 1.0)),
            device_id=None if self._device.type == "cpu" else self._device,
        )

    def measure(self) -> list[dict[str, object]]:
        """Return the size, sample times and error for each message size that there was time for."""
        messages: list[Message] = []
        cost_s = 0.0
        for exponent in self._size_exponents:
            size_bytes = 1 << exponent
            growth = size_bytes / max((message.size_bytes for message in messages), default=1)
            if messages and not self._agree(cost_s * max(growth, 1.0) < self._left_s()):
                continue
            start_s = time.monotonic()
            message = self._message(size_bytes)
            self._sample(message, _SAMPLES)
            messages.append(message)
            if growth > 1:
                cost_s = time.monotonic() - start_s
        for message in sorted(messages, key=lambda message: message.speed)[-_FINALISTS:]:
            needed_s = _FINAL_SAMPLES * max(message.call_s, _SAMPLE_S)
            if self._agree(needed_s < self._left_s()):
                self._sample(message, _FINAL_SAMPLES)
        dist.destroy_process_group()
        return [
            {
                "size_bytes": message.size_bytes,
                "times_s": message.times_s,
                "error": message.error,
                "sent_bytes": message.sent_bytes,
            }
            for message in sorted(messages, key=lambda message: message.size_bytes)
        ]

    def _message(self, size_bytes: int) -> Message:
        """Return a message of the given size, with the error of one reduction."""
        count = size_bytes // 4
        message = Message(self._numbers(count), torch.empty(count, device=self._device))
        self._refill(message)
        self._reduce(message.data)
        expected = message.numbers.double() * self._result_factor
        message.error = self._maximum(relative_error(message.data, expected))
        return message

    def _numbers(self, count: int) -> torch.Tensor:
        copies = -(-count // _DISTINCT)
        numbers = self._tile if copies == 1 else self._tile.repeat(copies)
        return numbers[:count]

    def _sample(self, message: Message, max_samples: int) -> None:
        self._refill(message)
        message.call_s = self._time_s(message, 1)
        wanted = math.ceil(_SAMPLE_S / message.call_s)
        calls = max(min(wanted, int(_MAX_GROWTH_BITS / math.log2(self._ranks))), 1)
        message.times_s = []
        while len(message.times_s) < max_samples and self._agree(
            not message.times_s or calls * message.call_s < self._left_s()
        ):
            self._refill(message)
            message.times_s.append(self._time_s(message, calls))

    def _time_s(self, message: Message, calls: int) -> float:
        """Return the mean seconds of ``calls`` consecutive all-reduces, on the slowest rank."""
        dist.barrier()
        self._synchronize()
        start_s = time.perf_counter()
        for _ in range(calls):
            self._reduce(message.data)
        self._synchronize()
        return self._maximum((time.perf_counter() - start_s) / calls)

    @property
    def _result_factor(self) -> float:
        """The factor by which the numbers are multiplied in the result."""
        return self._ranks * (self._ranks + 1) / 2

    def _reduce(self, data: torch.Tensor) -> None:
        """Run the operation that is measured."""
        dist.all_reduce(data)

    def _refill(self, message: Message) -> None:
        torch.mul(message.numbers, self._rank + 1.0, out=message.data)

    def _maximum(self, value: float) -> float:
        """Return the largest of all ranks' values; infinity if one is NaN."""
        value = math.inf if math.isnan(value) else value
        worst = torch.tensor(value, dtype=torch.float64, device=self._device)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        return float(worst)

    def _agree(self, proceed: bool) -> bool:
        """Return the decision of rank 0: with separate clocks the ranks would diverge."""
        decision = torch.tensor(int(proceed), device=self._device)
        dist.broadcast(decision, 0)
        return bool(decision)

    def _left_s(self) -> float:
        return self._end_s - time.monotonic()

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
