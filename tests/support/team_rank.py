"""A rank that trains one case after the other, each with its own parallelism.

``python team_rank.py JOB CASES single|double``: the job to train, a list of ``Case`` as JSON, and
the precision. A case leaves a checkpoint and the events of its rank 0 in a folder of its name
beside the list.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tests.support.never_stopped import NeverStopped
from tests.support.shared_device import rank_device
from vflops.config.training import TrainSettings
from vflops.counting.capture import InputSpec
from vflops.interruption import run_and_end
from vflops.record.files.document import Data
from vflops.record.formats.job import JobRecord
from vflops.train import deferred_build, loop
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.loader import Request
from vflops.train.parallel.factory import ParallelPlan, parallel_plan
from vflops.train.parallel.rank_group import RankGroup
from vflops.train.phase_clock import Clock
from vflops.train.precision import Precision
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.workload import Inputs, Workload


@dataclass(frozen=True)
class Case:
    """A training, possibly with several settings one after the other."""

    name: str
    first: int
    """The rank of the team that is rank 0 of this case."""
    ways: tuple[dict[str, Any], ...]
    """Training settings; each resumes from the checkpoint of the previous one."""
    copies: tuple[int, ...]
    """For each of them: of how many model copies one rank reads the samples."""


class Double(Workload):
    """Mixed into a workload: weights, samples and losses in double precision."""

    def model(self) -> nn.Module:
        return super().model().double()  # type: ignore[safe-super]

    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        first, *others = super().inputs(batch, draws, dtype)  # type: ignore[safe-super]
        return first.double() if first.is_floating_point() else first, *others

    def input_specs(self) -> list[InputSpec]:
        first, *others = super().input_specs()  # type: ignore[safe-super]
        is_floating = first.dtype.startswith("float")
        return [InputSpec(first.shape, "float64") if is_floating else first, *others]

    def predict(self, outputs: Any) -> Tensor:
        return super().predict(outputs).to(torch.float32)  # type: ignore[safe-super]


def stay_double() -> None:
    """Make ``.float()`` leave tensors of double precision as they are."""
    narrow = Tensor.float
    setattr(Tensor, "float", lambda self: self if self.dtype is torch.float64 else narrow(self))  # noqa: B010


@dataclass(frozen=True)
class Context(JobContext):
    """A job's context that keeps the events instead of writing them."""

    recorded: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def write_event(self, kind: str, payload: Data, *, sync: bool = True) -> None:
        self.recorded.append((kind, payload.model_dump(mode="json")))


class TeamEngine(Engine):
    """The trainer's engine; one rank may read the samples of several model copies."""

    copies = 1

    def loop(self) -> loop.Loop:
        training_loop = super().loop()
        if self.copies > 1:
            requests = partial(joined_requests, training_loop, self.copies)
            setattr(training_loop, "_requests", requests)  # noqa: B010
        return training_loop


def joined_requests(whole: loop.Loop, copies: int, first: int) -> Iterator[Request]:
    """Yield what the copies read at the same time as one request, in the order of the copies."""
    settings = whole.settings.model_copy(update={"ranks": copies})
    readers = []
    for share in range(copies):
        reader = copy.copy(whole)
        reader.settings = settings
        reader.group = cast(RankGroup, SimpleNamespace(share=share, shares=copies))
        readers.append(loop.Loop._requests(reader, first))
    for requests in zip(*readers, strict=True):
        indices = np.concatenate([request.indices for request in requests])
        draws = [request.draws for request in requests if request.draws is not None]
        yield Request(indices, torch.cat(draws) if draws else None)


def train(
    record: JobRecord,
    settings: TrainSettings,
    rank: int,
    attempt: Path,
    *,
    copies: int = 1,
    double: bool = False,
) -> None:
    """Continue the case of the folder ``attempt`` with these settings."""
    spec, device = workload(record.workload), rank_device(int(os.environ["RANK"]))
    os.environ["LOCAL_WORLD_SIZE"] = str(settings.ranks)
    attempt.mkdir(parents=True, exist_ok=True)
    context = Context(
        record=record,
        rank=rank,
        local_rank=rank,
        attempt=attempt,
        events=None,
        clock=Clock(),
        stop=NeverStopped(),
    )
    changed = spec.settings.model_validate(record.settings).model_copy(update={"train": settings})
    code: Any = spec.load_code()
    if double:
        code = type("Code", (Double, code), {})
    plan = parallel_plan(rank, settings.ranks, device, context.store, settings)
    try:
        precision = Precision.named("fp32", device)  # leaves tensors as they are
        parts = (context, settings, code.create(changed, record.data), plan, precision, device)
        engine = TeamEngine.with_torch(*parts)
        engine.copies = copies
        initial = engine.state.weights_hash()
        context.recorded.append(("initial", {"sha256": initial}))
        engine.train()
        numbers = numbers_kept(engine.backend, plan)
        context.recorded.append(("kept", {"numbers": max(map(int, plan.texts(str(numbers))))}))
        engine.backend.close()
    finally:
        plan.close()
    if rank == 0:
        attempt.with_suffix(".json").write_text(json.dumps(context.recorded))


def numbers_kept(backend: Any, plan: ParallelPlan) -> int:
    """Return the numbers in this rank's weights, gradients and optimizer state."""
    optimizer: torch.optim.Optimizer = backend._optimizer
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    states = [value for state in optimizer.state.values() for value in state.values()]
    of_weights = [state for state in states if isinstance(state, Tensor) and state.dim()]
    own = {id(plan.part(weight)) for weight in backend._model.parameters()}
    assert own == {id(weight) for weight in weights}
    numbers: int = sum(2 * weight.numel() for weight in weights)
    return numbers + sum(state.numel() for state in of_weights)


def main(job: str, cases: str, precision: str) -> int:
    """Take part in all cases that this rank belongs to."""
    torch.set_num_threads(1)
    double = precision == "double"
    if double:
        stay_double()
    loop._REPORT_S = 0.0
    deferred_build._SMALL = 1  # so that the small tensors of tests are computed in parts too
    record, team_rank = JobRecord.read(Path(job)), int(os.environ["RANK"])
    for case in (Case(**fields) for fields in json.loads(Path(cases).read_text())):
        for number, (way, copies) in enumerate(zip(case.ways, case.copies, strict=True)):
            settings, rank = TrainSettings.model_validate(way), team_rank - case.first
            if 0 <= rank < settings.ranks:
                attempt = Path(cases).parent / case.name / str(number)
                train(record, settings, rank, attempt, copies=copies, double=double)
    return 0


if __name__ == "__main__":
    run_and_end(main, *sys.argv[1:4])
