"""The plan: what is measured, in which order, and how the time is divided; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.config.names import PRECISIONS
from vflops.config.parallel import FIXED_ALGORITHMS
from vflops.config.settings import MicroSettings
from vflops.machine.ceilings.sample_statistics import median, spread
from vflops.metrics.traffic import near_ranks
from vflops.record.formats.measurement import Measurement, Unit
from vflops.units import percent

Key = tuple[str, str, str | None]

DIRECTIONS = ("forward", "input-gradient", "weight-gradient")
MEMORY_CASES = ("copy", "triad")
TRANSFER_CASES = (
    "host-to-device-pinned",
    "host-to-device-pageable",
    "device-to-host-pinned",
    "device-to-host-pageable",
)
MODE_PRECISIONS = {
    "all-reduce": ("fp32", "fp16", "bf16", "int8", "powersgd"),
    "hierarchical": ("fp32", "fp16", "bf16", "int8"),
    "torus": ("fp32", "fp16", "bf16", "int8"),
}
"""The precisions of each communication mode."""
_MODE_RANKS = 4
"""The smallest number of ranks that can be arranged in rows and columns."""
STORAGE_CASES = ("sequential-write-fsync", "sequential-read", "random-read-4k")

_UNSTEADY_SPREAD = 0.5
"""A value with a larger spread gets a caveat, since the machine may have been busy."""
_RANK_START_S = 2.5
"""Time to import torch once."""
_MEMORY_START_S = 0.2
"""Time to fill arrays that are larger than the caches."""

_WEIGHTS = {
    "gemm": 2.0,
    "convolution": 1.0,
    "memory": 1.5,
    "transfer": 0.5,
    "storage": 1.5,
    "all-reduce": 2.0,
    "all-reduce-modes": 1.0,
}
"""Weights by which benchmarks share the time, in the order of measuring. Those that start
processes, which is slow on a busy machine, come last."""


@dataclass(frozen=True)
class Item:
    """One planned measurement: a case of a benchmark in one precision."""

    benchmark: str
    case: str
    precision: str | None
    weight: float
    """Share of the time, relative to the weights of the other items."""
    start_s: float = 0.0
    """Seconds that the measurement needs before its first sample."""

    @property
    def key(self) -> Key:
        """The key that identifies the measurement within a run."""
        return (self.benchmark, self.case, self.precision)

    @property
    def unit(self) -> Unit:
        """The unit of the measured value."""
        if self.benchmark in ("gemm", "convolution"):
            return "FLOPS"
        return "IO/s" if self.case.startswith("random") else "B/s"

    def measurement(self, device: str, samples: Sequence[float], **facts: Any) -> Measurement:
        """Return the measurement with the given samples; its value is their median."""
        width = spread(samples)
        if width is not None and width > _UNSTEADY_SPREAD:
            warning = f"unsteady: the middle half of its samples spreads over {percent(width)}"
            facts["caveat"] = "; ".join(filter(None, (facts.get("caveat"), warning)))
        return Measurement(
            benchmark=self.benchmark,
            case=self.case,
            precision=self.precision,
            device=device,
            unit=self.unit,
            value=median(samples),
            spread=width,
            samples=tuple(samples),
            **facts,
        )

    def absent_measurement(
        self, device: str, reason: str, *, ran_out_of_time: bool = False
    ) -> Measurement:
        """Return a measurement without a value, with the reason."""
        return Measurement(
            benchmark=self.benchmark,
            case=self.case,
            precision=self.precision,
            device=device,
            unit=self.unit,
            value=None,
            reason=reason,
            ran_out_of_time=ran_out_of_time,
        )


def plan(settings: MicroSettings, *, accelerators: int) -> tuple[Item, ...]:
    """Return an item for each benchmark, case and precision, even if the device may lack it.

    ``accelerators`` is the number of accelerators of the chosen kind: 0 for the CPU.
    """
    return tuple(
        Item(
            benchmark,
            case,
            precision,
            weight=_WEIGHTS[benchmark],
            start_s=_start_s(benchmark, case, accelerators),
        )
        for benchmark in _WEIGHTS
        if benchmark in settings.benchmarks
        for case in _cases(benchmark, settings.ranks, accelerators)
        for precision in _precisions(benchmark, case, settings.precisions)
    )


def time_share_s(items: Sequence[Item], left_s: float) -> float:
    """Return the seconds for the first of ``items``, given ``left_s`` seconds for all of them."""
    first = items[0]
    shared_s = max(left_s - sum(item.start_s for item in items), 0.0)
    return first.start_s + shared_s * first.weight / sum(item.weight for item in items)


def _cases(benchmark: str, ranks: int, accelerators: int) -> Iterable[str]:
    match benchmark:
        case "convolution":
            return DIRECTIONS
        case "memory":
            return MEMORY_CASES
        case "transfer":
            return TRANSFER_CASES
        case "storage":
            return STORAGE_CASES
        case "all-reduce":
            return (*_nccl_cases(accelerators), f"gloo-{ranks}-ranks")
        case "all-reduce-modes":
            count = (
                accelerators
                if accelerators > 1
                else ranks
                if has_equal_rows(ranks)
                else _MODE_RANKS
            )
            return tuple(f"{mode}-{count}-ranks" for mode in MODE_PRECISIONS)
        case _:
            return ("peak",)


def _nccl_cases(accelerators: int) -> tuple[str, ...]:
    """Return the cases between accelerators: NCCL's own choice, and each algorithm by itself."""
    if accelerators < 2:
        return ("nccl",)
    case = f"nccl-{accelerators}-ranks"
    return (case, *(f"{case}-{algorithm}" for algorithm in FIXED_ALGORITHMS))


def fixed_algorithm_of(case: str) -> str | None:
    """Return the algorithm that a case of ``all-reduce`` fixes; None if it fixes none."""
    last = case.rpartition("-")[2]
    return last if last in FIXED_ALGORITHMS else None


def has_equal_rows(ranks: int) -> bool:
    """Whether ``ranks`` can be arranged in rows of equal length."""
    return 1 < near_ranks(ranks, ranks) < ranks


def mode_of(case: str) -> tuple[str, int]:
    """Return the mode and the number of ranks of a case of ``all-reduce-modes``."""
    mode, _, ranks = case.removesuffix("-ranks").rpartition("-")
    return mode, int(ranks)


def _precisions(benchmark: str, case: str, wanted: Sequence[str]) -> Iterator[str | None]:
    if benchmark in ("gemm", "convolution"):
        yield from (precision for precision in PRECISIONS if precision in wanted)
    elif benchmark == "all-reduce-modes":
        for precision in MODE_PRECISIONS[mode_of(case)[0]]:
            if ("fp32" if precision == "powersgd" else precision) in wanted:  # PowerSGD sends fp32
                yield precision
    else:
        yield None


def _start_s(benchmark: str, case: str, accelerators: int) -> float:
    if benchmark == "all-reduce":
        return _RANK_START_S if accelerators > 1 or case.startswith("gloo") else 0.0
    if benchmark == "all-reduce-modes":
        return _RANK_START_S
    return _MEMORY_START_S if benchmark == "memory" else 0.0
