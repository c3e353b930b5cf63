"""Pipeline parallelism: each rank has some stages of the model; micro-batches pass through them.

This plan is used for mode ``pipeline``, for mode ``model`` with ``split`` ``layers``, and for
several copies of either. The schedules are those of torch.distributed.pipelining. The result is the
same as that of one rank that computes the micro-batches one after the other (``train.accumulate``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

from vflops.config.training import TrainSettings
from vflops.record.files.document import Data
from vflops.record.formats.job_events import StagesRun
from vflops.train.communication import Exchange, Tally, exchange_gradients
from vflops.train.initial_model import InitialWeights
from vflops.train.normalisation import average_buffers, convert
from vflops.train.objective import Objective
from vflops.train.parallel.cut import StageCut, cut
from vflops.train.parallel.group import GroupPlan
from vflops.train.parallel.message import Layout, Messenger
from vflops.train.parallel.optimizer_state import load_optimizer, optimizer_by_name
from vflops.train.parallel.stages import Batch, Stage, TimedStage, keep_only
from vflops.train.parallel.tied_weights import TiedWeights
from vflops.workloads.contract.workload import Inputs, Workload

Schedule = ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B


class Pipeline(GroupPlan):
    """Each rank has some of the model's layers; consecutive ranks form a copy of the model."""

    can_compile = False

    def __init__(
        self, rank: int, ranks: int, device: torch.device, store: str, settings: TrainSettings
    ) -> None:
        super().__init__(rank, ranks, device, store, settings.communication.algorithm)
        self._copies = settings.shares
        self._sharing = ranks // self._copies
        self._settings = settings
        names = ("data", "stage")
        self.mesh = init_device_mesh(
            device.type, (self._copies, self._sharing), mesh_dim_names=names
        )
        self._data = self.mesh.get_group("data") if self._copies > 1 else None
        self._messenger = Messenger(self._hosts, self.mesh.get_group("stage"), device)
        self._host_messenger = Messenger(self._hosts, self._hosts, torch.device("cpu"))
        self._tally = Tally(
            "pipeline" if settings.parallel.inner == "pipeline" else "model",
            self.mesh.get_group("stage"),
            self._local_ranks,
        )
        self._number = rank % self._sharing
        self.has_output = self._number == self._sharing - 1
        self._cuts: list[StageCut] = []
        self._tied = TiedWeights(nn.Module())
        self._stages: dict[int, Stage] = {}
        self._batch = Batch()
        self._timed: list[TimedStage] = []
        self._schedule: Schedule | None = None
        self._exchanges: list[Exchange] = []
        self._scale: Callable[[Tensor], Tensor] = lambda loss: loss
        self._computing_s = self._stepping_s = 0.0

    @property
    def share(self) -> int:
        """The index of this rank's copy of the model."""
        return self.rank // self._sharing

    @property
    def shares(self) -> int:
        """Number of copies of the model."""
        return self._copies

    @property
    def _micro_batches(self) -> int:
        return self._settings.accumulate

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Convert batch norm to use a micro-batch, parts of it, or those of all copies."""
        if settings.batch_norm == "synchronised" and self._data is not None:
            return convert(model, "synchronised", group=self._data)
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def place(
        self,
        model: nn.Module,
        workload: Workload,
        device: torch.device,
        weights: InitialWeights | None = None,
    ) -> nn.Module:
        """Return the model with only the layers of this rank's stages."""
        self._cuts = cut(workload, self._settings)
        self._tied = TiedWeights(model)
        cuts = [self._cuts[number] for number in self._stage_numbers]
        self.needs_input = self.has_output or any(cut.inputs for cut in cuts)
        keep_only(model, cuts)
        if weights is not None:
            weights.fill(model, device)
        placed = super().place(model, workload, device)
        self._tied.connect(placed, self._cuts, self._sharing, self._number, self._tally)
        return placed

    @property
    def _stage_numbers(self) -> range:
        """The numbers of this rank's stages; stages are assigned to the ranks in turn."""
        return range(self._number, len(self._cuts), self._sharing)

    def _rank_of(self, stage: int) -> int:
        """Return the global rank that has a stage of this copy."""
        return self.share * self._sharing + stage % self._sharing

    def wrap(self, objective: Objective) -> nn.Module:
        """Return the objective; its model's layers are called through the stages."""
        autocast = objective.precision.autocast
        self._objective = objective
        self._stages = {
            number: Stage(objective.model, self._cuts[number], self._batch, autocast)
            for number in self._stage_numbers
        }
        return objective

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Run the schedule; return the mean loss on all ranks."""
        self._batch.parts, self._batch.losses, self._scale = parts, [], scale
        is_first_step = self._schedule is None
        schedule = self._schedule = self._schedule or self._create_schedule()
        for exchange in self._exchanges:
            exchange.begin(scale)
        busy_s, started_s = sum(stage.busy_s for stage in self._timed), time.perf_counter()
        numbers = torch.arange(self._micro_batches)
        with self._tally.step():
            schedule.step(target=numbers, return_outputs=False, part=numbers)
            self._tied.sum_gradients()
        # The type must be the same on all ranks, whatever the type of the workload's loss.
        total = torch.zeros((), dtype=torch.float32, device=self._device)
        if self.has_output:
            total += torch.stack(self._batch.losses).sum()
        else:
            scale(total)  # the scaler must be used in every step
        mean = self.mean(total)  # all ranks wait here for the slowest
        if not is_first_step:
            self._computing_s += sum(stage.busy_s for stage in self._timed) - busy_s
            self._stepping_s += time.perf_counter() - started_s
        return mean

    def _loss(self, outputs: Any, number: Tensor) -> Tensor:
        """Return the scaled loss of a micro-batch."""
        started_s = time.perf_counter()
        inputs = self._batch.parts[int(number)]
        with self._objective.precision.autocast():
            loss = self._objective.workload.loss(outputs, inputs) / self._micro_batches
        self._batch.losses.append(loss.detach())
        self._timed[-1].busy_s += time.perf_counter() - started_s
        return self._scale(loss)

    def _create_schedule(self) -> Schedule:
        """Return the schedule of this rank's stages, after a forward pass that finds layouts."""
        model, parts = self._objective.model, self._batch.parts
        model.eval()  # this pass must not change weights or statistics
        with torch.no_grad():
            self._forward(parts[0] if parts else (), record_layouts=True)
        model.train()
        for number, stage in self._stages.items():
            sent_gradients = self._cuts[number + 1].gradients if stage.sends else ()
            self._timed.append(
                TimedStage(
                    self._with_averaging(stage),
                    number,
                    len(self._cuts),
                    self._device,
                    input_args=_examples(stage.receives, stage.cut.gradients),
                    output_args=_examples(stage.sends, sent_gradients) or stage.outputs,
                    group=self._messenger.tensors,
                )
            )
            self._timed[-1].tally = self._tally
        parallel = self._settings.parallel
        options: dict[str, Any] = {"loss_fn": self._loss, "scale_grads": False}
        if len(self._timed) > 1:
            return ScheduleInterleaved1F1B(list(self._timed), self._micro_batches, **options)
        kind = Schedule1F1B if parallel.effective_schedule == "1f1b" else ScheduleGPipe
        return kind(self._timed[0], self._micro_batches, **options)

    def _with_averaging(self, stage: Stage) -> nn.Module:
        """Return ``stage`` wrapped so that gradients are averaged over the copies."""
        if self._data is None:
            return stage
        wrapped = DistributedDataParallel(
            stage, process_group=self._data, broadcast_buffers=False, gradient_as_bucket_view=True
        )
        local_copies = max(self._local_ranks // self._sharing, 1)
        exchange = exchange_gradients(
            wrapped, self._settings.communication, self._data, local_copies
        )
        self._exchanges.append(exchange)
        return wrapped

    def _forward(self, inputs: Inputs, *, record_layouts: bool = False) -> Any:
        """Run this rank's stages; return the model's output, or None on ranks without it.

        With ``record_layouts``, the stages record the layouts of the tensors that they receive and
        send.
        """
        for number, stage in self._stages.items():
            received = self._messenger.receive(self._rank_of(number - 1)) if number else []
            outputs = stage.run(received, inputs)
            last = number == len(self._cuts) - 1
            if record_layouts:
                stage.receives = [Layout.of(tensor) for tensor in received]
                stage.sends = [] if last else [Layout.of(tensor) for tensor in outputs]
                tensors = outputs if isinstance(outputs, tuple | list) else (outputs,)
                stage.outputs = tuple(torch.empty_like(tensor, device="meta") for tensor in tensors)
            if last:
                return outputs
            self._messenger.send(outputs, self._rank_of(number + 1))
        return None

    def predictor(self, objective: Objective) -> Callable[..., Tensor | None]:
        """Return a function that runs the stages."""

        def predict(*inputs: Tensor) -> Tensor | None:
            outputs = self._forward(inputs)
            return objective.workload.predict(outputs) if self.has_output else None

        return predict

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Return an empty context: schedules exchange gradients after the last micro-batch only."""
        return nullcontext()

    def mean(self, value: Tensor) -> Tensor:
        """Average over the copies; ``value`` is 0 on ranks without output."""
        value = value.detach().clone()
        dist.all_reduce(value)
        return value / self._copies

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Average the running statistics over the copies."""
        if self._data is not None:
            average_buffers(model, self._data)

    def collect(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Send the stages of the first copy to the leading rank, which returns them."""
        state = self._tied.with_first_names(optimizer_by_name(model, optimizer))
        return self._gathered_stages({"model": model.state_dict(), "optimizer": state})

    def restore(
        self, contents: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Load the weights of this rank's stages."""
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.copy_(contents["model"][name])
        load_optimizer(model, optimizer, self._tied.with_all_names(contents["optimizer"]))

    def full_state(self, model: nn.Module) -> dict[str, Tensor] | None:
        """Send the stages of the first copy to the leading rank, which returns them."""
        contents = self._gathered_stages({"model": model.state_dict()})
        return None if contents is None else contents["model"]

    def _gathered_stages(
        self, contents: dict[str, dict[str, Any]]
    ) -> dict[str, dict[str, Any]] | None:
        if self.share:
            return None
        merged: dict[str, dict[str, Any]] = _on_host(contents)
        if not self.leads:
            self._host_messenger.send(merged, 0)
            return None
        for rank in range(1, self._sharing):
            for name, values in self._host_messenger.receive(rank).items():
                merged[name] |= values
        return merged

    def report(self) -> list[tuple[str, Data]]:
        """Return how the model was cut, the share of idle time, and the traffic."""
        computing_s = self._sum_over_ranks(self._computing_s)
        stepping_s = self._sum_over_ranks(self._stepping_s)
        reason = None if stepping_s else "fewer than two steps were taken"
        if self._device.type != "cpu":
            reason = "the host cannot see when an accelerator computes"
        per_rank = len(self._cuts) // self._sharing
        run = StagesRun(
            operations=tuple(cut.operations for cut in self._cuts),
            ranks=self._sharing,
            micro_batches=self._micro_batches,
            schedule=self._settings.parallel.effective_schedule,
            bubble=None if reason else max(0.0, 1 - computing_s / stepping_s),
            reason=reason,
            bubble_theory=bubble(self._sharing, self._micro_batches, per_rank),
        )
        used = [exchange for exchange in self._exchanges if exchange.steps]
        sent = [("exchange", exchange.report(self._data, self._device)) for exchange in used]
        return [("stages", run), *self._tally.report(self._device), *sent]

    def _sum_over_ranks(self, seconds: float) -> float:
        return float(np.sum(np.asarray(self._gathered(np.asarray(seconds)))))

    def close(self) -> None:
        """Close the exchanges and leave the group."""
        for exchange in self._exchanges:
            exchange.close()
        super().close()


def bubble(ranks: int, micro_batches: int, stages_per_rank: int = 1) -> float:
    """Return the share of a step in which a rank is idle, for equal stages and no latency.

    A rank computes in ``stages_per_rank`` · ``micro_batches`` time slots, and is idle in
    ``ranks`` − 1 slots (Narayanan et al. 2021).
    """
    return (ranks - 1) / (stages_per_rank * micro_batches + ranks - 1)


def _examples(layouts: Sequence[Layout], gradients: Sequence[bool]) -> tuple[Tensor, ...]:
    """Return meta tensors like those that a stage receives or sends."""
    pairs = zip(layouts, gradients, strict=True)
    return tuple(layout.empty("meta").requires_grad_(gradient) for layout, gradient in pairs)


def _on_host(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _on_host(item) for name, item in value.items()}
    return value.cpu() if isinstance(value, Tensor) else value
