"""The training engine: trains one rank's part of a job, in any framework."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import Self

import torch

from vflops.config.training import TrainSettings
from vflops.errors import Interrupted, OutOfMemory, RunFailed
from vflops.launch.rehearsal import SharedMachine
from vflops.machine.devices import first_line
from vflops.record.formats.job_events import ExhibitSkipped, Fallback, JobStarted, Resumed, Tested
from vflops.record.formats.recorded_names import checkpoint_file
from vflops.train.backends.backend import Backend
from vflops.train.backends.factory import joined_backend
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.checkpoint import Checkpoints
from vflops.train.context import JobContext
from vflops.train.data_read import write_data_read
from vflops.train.ensemble_member import conclude_member, loop_evaluation
from vflops.train.evaluation import Evaluation, Outcome
from vflops.train.exhibit_file import write_exhibit
from vflops.train.loop import Loop
from vflops.train.out_of_memory import device_name
from vflops.train.parallel.parallel_plan import ParallelPlan
from vflops.train.parallel.rank_group import RankGroup
from vflops.train.precision import Precision
from vflops.train.profiling import profile_steps
from vflops.train.rank_device import rank_device, use_threads
from vflops.train.rank_places import places, write_memory
from vflops.train.state import TrainState
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.workload import Exhibits, Indices, Split, Workload


def run(context: JobContext) -> None:
    """Train this rank's part of the job."""
    context.stop.set_unsaved_work(False)
    record = context.record
    spec = find(record.workload)
    settings = spec.settings.model_validate(record.settings)
    train = settings.train
    device = rank_device(train.device, context.local_rank)
    threads = use_threads(device, context.local_ranks or record.ranks)
    precision = Precision.named(train.precision, device)
    workload: Workload = spec.load_code().create(settings, record.data)
    with (
        precision.settings(),
        joined_backend(context, train, workload, precision, device) as (group, backend),
    ):
        engine = Engine(context, train, workload, group, precision, backend)
        context.write_event("job", engine.start_event(threads))
        engine.train()
        write_data_read(context, group, workload.read_splits())
        write_memory(context, group, device)
        group.barrier()  # a rank that left early would take its connections with it


@dataclass
class Engine:
    """Trains the model of a backend: restores it, runs the loop and evaluates the result."""

    context: JobContext
    settings: TrainSettings
    workload: Workload
    group: RankGroup
    precision: Precision
    backend: Backend

    def __post_init__(self) -> None:
        self.state = TrainState(self.backend, Checkpoints(self.context.checkpoints))

    @classmethod
    def with_torch(
        cls,
        context: JobContext,
        settings: TrainSettings,
        workload: Workload,
        plan: ParallelPlan,
        precision: Precision,
        device: torch.device,
    ) -> Self:
        """Return the engine of a PyTorch model."""
        seed = context.record.seed
        backend = TorchBackend(settings, workload, plan, precision, device, seed)
        return cls(context, settings, workload, plan, precision, backend)

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self.backend.device

    def start_event(self, threads: int) -> JobStarted:
        """Return the event that describes the job's devices, precision and model.

        Every rank calls this.
        """
        accelerator = self.device.type != "cpu"
        backend, is_torch = self.backend, self.backend.framework == "pytorch"
        return JobStarted(
            device=self.device.type,
            device_name=device_name(self.device),
            ranks=self.group.ranks,
            precision=self.settings.precision,
            ceiling_precision=self.precision.ceiling,
            batch=self.settings.batch,
            emulated=backend.emulated,
            layers_of_8_bits=backend.layers_of_8_bits,
            compiled=backend.compiled,
            recorded=backend.recorded,
            deterministic=backend.deterministic,
            threads=threads if not accelerator else 0,
            parameters=backend.parameters,
            torch=torch.__version__,
            framework=backend.framework,
            framework_version=None if is_torch else backend.version,
            places=places(self.group, self.device),
            rehearsal=SharedMachine.of() is not None,
        )

    def train(self) -> None:
        """Train from the newest checkpoint or from the start, and evaluate the trained model."""
        self._restore()
        segment = self.context.record.segment
        if segment is not None and segment.perturbation:
            self.backend.perturb(segment.perturbation)
        loop = self.loop()
        if self.state.step != self.context.finished_step:
            self._run(loop)
        if segment is None or segment.is_end:
            self._conclude(loop)

    def _run(self, loop: Loop) -> None:
        try:
            stopped = loop.run()
        except Exception as error:
            if not self.backend.is_out_of_memory(error):
                raise
            raise self._out_of_memory(error) from error
        if stopped:
            raise Interrupted(f"stopped by {stopped} after step {self.state.step}")

    def _conclude(self, loop: Loop) -> None:
        """Evaluate the trained model; none of this counts as training time."""
        for kind, payload in self.backend.report():
            self.context.write_event(kind, payload)
        if self.context.record.data.test:
            test = self.state.evaluate(self.evaluation("test"))
            tested = Tested(quality=test.quality, evaluated=test.evaluated)
            self.context.write_event("tested", tested)
        outcome = loop.outcome or self.state.evaluate(self.evaluation("validation"))
        if self.context.record.bag is not None:
            conclude_member(self, self.context.record.bag)
        if self.group.leads:
            self._exhibit(outcome)
        if self.context.record.kernels:
            kernels = profile_steps(self.backend, loop.one_batch())
            self.context.write_event("kernels", kernels)
        if self.group.leads and self.backend.may_count:
            counted = self.backend.own_count(loop.one_batch())
            if counted is not None:
                self.context.write_event("framework-count", counted)

    def _exhibit(self, outcome: Outcome) -> None:
        """Write example results for the report; a failure is printed, but does not fail the job."""
        try:
            arrays = dict(self.workload.exhibit(outcome.summaries) or {})
            if self.workload.exhibits_model:
                arrays |= self._exhibit_model()
            if arrays:
                self.context.write_event("exhibit", write_exhibit(self.context.attempt, arrays))
        except Exception as error:
            print("the report will not show examples of this model:", file=sys.stderr)
            traceback.print_exc()
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.context.write_event("exhibit-skipped", ExhibitSkipped(reason=reason))

    def _exhibit_model(self) -> Exhibits:
        """Return arrays that the trained model makes, if this rank has all of it."""
        reason = self.backend.no_model_reason
        if reason is not None:
            self.context.write_event("exhibit-skipped", ExhibitSkipped(reason=reason))
            return {}
        seed = self.context.record.seed
        return self.backend.use_model(
            lambda model: self.workload.exhibit_model(model, self.device, seed)
        )

    def loop(self) -> Loop:
        """Return the training loop, starting at the current state."""
        return Loop(
            context=self.context,
            settings=self.settings,
            goal=self.context.record.goal,
            workload=self.workload,
            group=self.group,
            state=self.state,
            evaluation=loop_evaluation(self),
            dtype=self.precision.input_dtype,
        )

    def evaluation(self, split: Split, indices: Indices | None = None) -> Evaluation:
        """Return the evaluation on a split of the data, or on some of its samples."""
        return Evaluation(
            self.workload,
            self.group,
            self.device,
            lambda batch: self.workload.inputs(batch, None, self.precision.input_dtype),
            self.settings.rank_batch,
            split,
            indices,
            self.context.clock.tick,
        )

    def _restore(self) -> None:
        bad: list[str] = []
        segment = self.context.record.segment

        def on_bad(file: str, reason: str) -> None:
            if segment is not None:  # an audit never starts from another state
                raise RunFailed(f"its checkpoint {file} cannot be used: {reason}")
            bad.append(file)
            self.context.write_event("fallback", Fallback(file=file, reason=reason))

        checkpoint = self.state.restore(on_bad, self.context.committed)
        self.group.barrier()  # until all ranks have read the checkpoints
        if self.group.leads:
            self.state.checkpoints.delete(bad)
        if segment is not None and self.state.step != segment.first:
            raise RunFailed(
                f"the part begins after step {segment.first:,}, but what it starts from is the "
                f"state after step {self.state.step:,}"
            )
        if checkpoint is not None:
            resumed = Resumed(
                step=self.state.step,
                samples=self.state.step * self.settings.batch,
                file=checkpoint_file(checkpoint.step),
                sha256=checkpoint.sha256,
            )
            self.context.write_event("resumed", resumed)

    def _out_of_memory(self, error: Exception) -> OutOfMemory:
        train = self.settings
        fits = self.backend.fitting_batch(train.rank_batch)
        batch = fits * train.shares * train.accumulate if fits else None
        hint = "use a smaller --set train.batch or a larger --set train.accumulate"
        if train.ranks > 1 and self.device.type != "cpu":
            hint += "; a single rank also finds the largest batch that fits"
        if batch:
            hint = (
                f"--set train.batch={batch} would fit, or --set train.accumulate="
                f"{train.accumulate * -(-train.rank_batch // (fits or 1))} with the same batch"
            )
        return OutOfMemory(
            f"out of memory on {self.device} with {train.rank_batch} samples at once "
            f"(batch {train.batch}, {train.ranks} ranks): {first_line(error)}",
            hint=hint,
        )
