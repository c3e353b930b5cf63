"""The training engine: builds and trains one rank's part of a torch workload."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass

import torch
from torch import nn

from vflops.config.training import TrainSettings
from vflops.data.sampler import mix
from vflops.errors import Interrupted, RunFailed
from vflops.machine.devices import first_line, is_out_of_memory
from vflops.record.formats.job_events import Fallback, JobStarted, Resumed, Tested
from vflops.train import eight_bit, out_of_memory
from vflops.train.checkpoint import Checkpoints, checkpoint_file
from vflops.train.context import JobContext
from vflops.train.data_read import write_data_read
from vflops.train.ensemble_member import conclude_member, loop_evaluation
from vflops.train.evaluation import Evaluation, Outcome
from vflops.train.exhibit_file import write_exhibit
from vflops.train.loop import Loop
from vflops.train.objective import Objective
from vflops.train.optimizers import build, can_be_recorded, parameter_groups
from vflops.train.parallel.factory import ParallelPlan, parallel_plan
from vflops.train.precision import Precision
from vflops.train.profiling import profile_steps
from vflops.train.rank_device import rank_device, use_threads
from vflops.train.state import TrainState, perturb
from vflops.train.step import RecordedPrediction, RecordedStep, Step
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.workload import Indices, Split, Workload


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
    plan = parallel_plan(context.rank, record.ranks, device, context.store, train)
    try:
        with precision.settings():
            engine = Engine(context, train, workload, plan, precision, device)
            context.write_event("job", engine.start_event(threads))
            engine.train()
            write_data_read(context, plan, workload.read_splits())
    finally:
        plan.close()


def fused_dtype(
    train: TrainSettings, plan: ParallelPlan, precision: Precision, device: torch.device
) -> torch.dtype | None:
    """Return the type of a fused model's activations; None if these settings allow no such model.

    A single rank must train in mixed precision.
    """
    plain = plan.ranks == 1 and train.ghosts == 1 and train.compile != "off"
    if device.type == "cpu" or not plain:
        return None
    mixed = precision.weights == torch.float32 and precision.products is None
    return precision.operands if mixed else None


@dataclass
class Engine:
    """The parts of a job's training: model, optimizer, step, evaluation and loop."""

    context: JobContext
    settings: TrainSettings
    workload: Workload
    plan: ParallelPlan
    precision: Precision
    device: torch.device

    def __post_init__(self) -> None:
        # The same seed, and so the same initial weights, on every rank.
        torch.manual_seed(mix(self.context.record.seed, 2) >> 1)
        exact = self.settings.deterministic
        # Shapes never change, so cuDNN's search for the fastest kernels is worthwhile. Its result
        # is not reproducible.
        searches_kernels = not exact and self.settings.compile != "record"
        torch.backends.cudnn.benchmark = self.device.type == "cuda" and searches_kernels
        if exact and self.device.type != "cpu":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch requires it
            torch.use_deterministic_algorithms(True)
        fast = self._fast_model()
        model = fast or self.plan.normalise(self.workload.model(), self.settings)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        model = self.plan.place(model, self.workload, self.device)
        model = self.precision.prepare(model)
        self.compiled = fast is None and self.plan.can_compile and self._compiles()
        objective = Objective(model, self.workload, self.precision)
        module = self.plan.wrap(objective)
        predict = self.plan.predictor(objective)
        if self.compiled:
            module.compile()
            predict = torch.compile(predict)
        self.prepare = self.workload.inputs
        optimizer = build(
            self.settings.optimizer,
            parameter_groups(
                model,
                self.settings.weight_decay,
                self.plan.part,
                orthogonal=self.settings.optimizer == "muon",
            ),
            learning_rate=self.settings.peak_rate,
            betas=self.settings.betas,
            momentum=self.settings.momentum,
            nesterov=self.settings.nesterov,
        )
        plain = Step(module, optimizer, self.precision.scaler(self.plan.maximum), self.plan)
        self.recorded = self._can_record(plain)
        step: Step | RecordedStep = plain
        if self.recorded:
            pool = torch.cuda.graph_pool_handle()
            step = RecordedStep(plain, self.device, pool)
            if fast is not None:
                predict = RecordedPrediction(predict, self.device, pool)
        self.state = TrainState(model, step, predict, Checkpoints(self.context.checkpoints))

    def _fast_model(self) -> nn.Module | None:
        """Return the workload's fused model, if a single rank trains it in mixed precision."""
        dtype = fused_dtype(self.settings, self.plan, self.precision, self.device)
        return None if dtype is None else self.workload.fast_model(dtype, self.device)

    def _compiles(self) -> bool:
        choice = self.settings.compile
        return choice == "on" or (choice == "auto" and self.device.type != "cpu")

    def _can_record(self, step: Step) -> bool:
        """Whether the step is recorded once as a CUDA graph and then replayed.

        Steps of several ranks or with a loss scaler are not recorded, since this has not been
        tested.
        """
        return (
            self.device.type == "cuda"
            and self.plan.ranks == 1
            and self.settings.compile != "off"
            and self.workload.can_be_recorded
            and not step.scaler.is_enabled()
            and can_be_recorded(step.optimizer)
        )

    def start_event(self, threads: int) -> JobStarted:
        """Return the event that describes the job's device, precision and model."""
        accelerator = self.device.type != "cpu"
        return JobStarted(
            device=self.device.type,
            device_name=out_of_memory.device_name(self.device),
            ranks=self.plan.ranks,
            precision=self.settings.precision,
            ceiling_precision=self.precision.ceiling,
            batch=self.settings.batch,
            emulated=self.precision.emulated,
            layers_of_8_bits=eight_bit.converted_layers(self.state.model),
            compiled=self.compiled,
            recorded=self.recorded,
            deterministic=self.settings.deterministic or not accelerator,
            threads=threads if not accelerator else 0,
            parameters=self.parameters,
            torch=torch.__version__,
        )

    def train(self) -> None:
        """Train from the newest checkpoint or from the start, and evaluate the trained model."""
        self._restore()
        segment = self.context.record.segment
        if segment is not None and segment.perturbation:
            perturb(self.state.model, segment.perturbation)
        loop = self.loop()
        if self.state.step != self.context.finished_step:
            self._run(loop)
        if segment is None or segment.is_end:
            self._conclude(loop)

    def _run(self, loop: Loop) -> None:
        try:
            stopped = loop.run()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise self._out_of_memory(error) from error
        if stopped:
            raise Interrupted(f"stopped by {stopped} after step {self.state.step}")

    def _conclude(self, loop: Loop) -> None:
        """Evaluate the trained model; none of this counts as training time."""
        for kind, payload in self.plan.report():
            self.context.write_event(kind, payload)
        if self.context.record.data.test:
            test = self.state.evaluate(self.evaluation("test"))
            tested = Tested(quality=test.quality, evaluated=test.evaluated)
            self.context.write_event("tested", tested)
        outcome = loop.outcome or self.state.evaluate(self.evaluation("validation"))
        if self.context.record.bag is not None:
            conclude_member(self, self.context.record.bag)
        if self.plan.leads:
            self._exhibit(outcome)
        if self.context.record.kernels:
            self.context.write_event(
                "kernels", profile_steps(self.state, loop.one_batch(), self.device)
            )

    def _exhibit(self, outcome: Outcome) -> None:
        """Write example results for the report; a failure is printed, but does not fail the job."""
        try:
            arrays = self.workload.exhibit(outcome.summaries)
            if arrays is not None:
                self.context.write_event("exhibit", write_exhibit(self.context.attempt, arrays))
        except Exception:
            print("the report will not show examples of this model:", file=sys.stderr)
            traceback.print_exc()

    def loop(self) -> Loop:
        """Return the training loop, starting at the current state."""
        return Loop(
            context=self.context,
            settings=self.settings,
            goal=self.context.record.goal,
            workload=self.workload,
            plan=self.plan,
            state=self.state,
            evaluation=loop_evaluation(self),
            device=self.device,
            dtype=self.precision.input_dtype,
            prepare=self.prepare,
            compiles=self.device.type != "cpu" or self.compiled,
        )

    def evaluation(self, split: Split, indices: Indices | None = None) -> Evaluation:
        """Return the evaluation on a split of the data, or on some of its samples."""
        return Evaluation(
            self.workload,
            self.plan,
            self.device,
            lambda batch: self.prepare(batch, None, self.precision.input_dtype),
            self.settings.rank_batch,
            split,
            indices,
            self.context.clock.tick,
        )

    def _restore(self) -> None:
        bad: list[str] = []

        def on_bad(file: str, reason: str) -> None:
            bad.append(file)
            self.context.write_event("fallback", Fallback(file=file, reason=reason))

        checkpoint = self.state.restore(self.plan, on_bad, self.context.committed)
        self.plan.barrier()  # until all ranks have read the checkpoints
        if self.plan.leads:
            self.state.checkpoints.delete(bad)
        if checkpoint is not None:
            resumed = Resumed(
                step=self.state.step,
                samples=self.state.step * self.settings.batch,
                file=checkpoint_file(checkpoint.step),
                sha256=checkpoint.sha256,
            )
            self.context.write_event("resumed", resumed)

    def _out_of_memory(self, error: RuntimeError) -> RunFailed:
        train = self.settings
        fits = None
        if not train.parallel.cuts_layers:  # a single stage cannot take a step alone
            fits = out_of_memory.fitting_batch(
                self.state, self.workload, self.device, train.rank_batch
            )
        batch = fits * train.shares * train.accumulate if fits else None
        hint = "use a smaller --set train.batch or a larger --set train.accumulate"
        if batch:
            hint = (
                f"--set train.batch={batch} would fit, or --set train.accumulate="
                f"{train.accumulate * -(-train.rank_batch // (fits or 1))} with the same batch"
            )
        return RunFailed(
            f"out of memory on {self.device} with {train.rank_batch} samples at once "
            f"(batch {train.batch}, {train.ranks} ranks): {first_line(error)}",
            hint=hint,
        )
