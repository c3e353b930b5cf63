"""A rank that trains case after case, each shared in a way of its own.

``python team_rank.py JOB CASES single|double``: the job that is trained, a list of ``Case`` as
JSON, and the precision. A case leaves a checkpoint and what its rank 0 had to tell, in a folder of
its name beside the list.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vflops.config.training import TrainSettings
from vflops.counting.capture import InputSpec
from vflops.record.files.document import Data
from vflops.record.formats.job import JobRecord
from vflops.train import loop
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.loader import Request
from vflops.train.parallel.factory import ParallelPlan, parallel_plan
from vflops.train.phase_clock import Clock
from vflops.train.precision import Precision
from vflops.train.signals import Stopping
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.workload import Inputs, Workload


@dataclass(frozen=True)
class Case:
    """A training, perhaps in several ways one after the other."""

    name: str
    first: int
    """The rank of the team that is its rank 0."""
    ways: tuple[dict[str, Any], ...]
    """Settings of training; each goes on from the checkpoint of the one before."""
    copies: tuple[int, ...]
    """Of each way by one rank: copies of a model that it reads the samples of."""


class Double(Workload):
    """Mixed into a workload: weights, samples and losses of 64 bits."""

    def model(self) -> nn.Module:
        return super().model().double()  # type: ignore[safe-super]

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        first, *others = super().inputs(batch, draws, dtype)  # type: ignore[safe-super]
        return first.double(), *others

    def input_specs(self) -> list[InputSpec]:
        first, *others = super().input_specs()  # type: ignore[safe-super]
        return [InputSpec(first.shape, "float64"), *others]

    def predict(self, outputs: Any) -> Tensor:
        return super().predict(outputs).to(torch.float32)  # type: ignore[safe-super]


def stay_double() -> None:
    """Have ``.float()`` widen what is narrower, and leave what is wider."""
    narrow = Tensor.float
    setattr(Tensor, "float", lambda self: self if self.dtype is torch.float64 else narrow(self))  # noqa: B010


@dataclass(frozen=True)
class Context(JobContext):
    """What a rank knows, and keeps of what it is told."""

    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tell(self, kind: str, payload: Data, *, sync: bool = True) -> None:
        self.told.append((kind, payload.model_dump(mode="json")))


class TeamEngine(Engine):
    """The trainer's own; one rank may read what several copies of a model would."""

    copies = 1

    def loop(self) -> loop.Loop:
        made = super().loop()
        if self.copies > 1:
            setattr(made, "_requests", lambda first: together(made, self.copies, first))  # noqa: B010
        return made


def together(whole: loop.Loop, copies: int, first: int) -> Iterator[Request]:
    """What the copies read at the same time, as one request: first that of copy 0, then …"""
    settings = whole.settings.model_copy(update={"ranks": copies})
    readers = []
    for share in range(copies):
        reader = copy.copy(whole)
        reader.settings = settings
        reader.plan = cast(ParallelPlan, SimpleNamespace(share=share, shares=copies))
        readers.append(loop.Loop._requests(reader, first))
    for requests in zip(*readers, strict=True):
        indices = np.concatenate([each.indices for each in requests])
        draws = [each.draws for each in requests if each.draws is not None]
        yield Request(indices, torch.cat(draws) if draws else None)


def train(
    record: JobRecord,
    settings: TrainSettings,
    rank: int,
    place: Path,
    *,
    copies: int = 1,
    double: bool = False,
) -> None:
    """Go on with the case that ``place`` is in, in one way."""
    spec, cpu = workload(record.workload), torch.device("cpu")
    os.environ["LOCAL_WORLD_SIZE"] = str(settings.ranks)
    place.mkdir(parents=True, exist_ok=True)
    context = Context(
        record=record,
        rank=rank,
        local_rank=rank,
        attempt=place,
        events=None,
        clock=Clock(),
        stop=cast(Stopping, SimpleNamespace(signal=None)),
    )
    every = spec.settings.model_validate(record.settings).model_copy(update={"train": settings})
    code: Any = spec.load_code()
    if double:
        code = type("Code", (Double, code), {})
    plan = parallel_plan(rank, settings.ranks, cpu, context.store, settings)
    try:
        precision = Precision.named("fp32", cpu)  # that is: left as it is
        parts = (context, settings, code.create(every, record.data), plan, precision, cpu)
        engine = TeamEngine(*parts)
        engine.copies = copies
        engine.train()
    finally:
        plan.close()
    if rank == 0:
        place.with_suffix(".json").write_text(json.dumps(context.told))


def main(job: str, cases: str, precision: str) -> int:
    """Take part in all cases that this rank belongs to."""
    torch.set_num_threads(1)
    double = precision == "double"
    if double:
        stay_double()
    loop._TELL_S = 0.0
    record, own = JobRecord.read(Path(job)), int(os.environ["RANK"])
    for case in (Case(**each) for each in json.loads(Path(cases).read_text())):
        for number, (way, copies) in enumerate(zip(case.ways, case.copies, strict=True)):
            settings, rank = TrainSettings.model_validate(way), own - case.first
            if 0 <= rank < settings.ranks:
                place = Path(cases).parent / case.name / str(number)
                train(record, settings, rank, place, copies=copies, double=double)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
