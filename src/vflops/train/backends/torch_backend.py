"""PyTorch: the model as the parallel plan divides it, its optimizer and its step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from vflops.config.training import TrainSettings
from vflops.data.sampler import mix
from vflops.record.files.document import Data
from vflops.train import eight_bit, out_of_memory
from vflops.train.backends.backend import Backend, Used
from vflops.train.initial_model import InitialWeights, initial_model, initialised
from vflops.train.objective import Objective
from vflops.train.optimizers import build, can_be_recorded, parameter_groups
from vflops.train.parallel.optimizer_state import local
from vflops.train.parallel.parallel_plan import ParallelPlan
from vflops.train.precision import Precision
from vflops.train.step import RecordedPrediction, RecordedStep, Recorder, Step
from vflops.workloads.contract.workload import Inputs, Workload


def fused_dtype(
    settings: TrainSettings, plan: ParallelPlan, precision: Precision, device: torch.device
) -> torch.dtype | None:
    """Return the type of a fused model's activations; None if these settings allow no such model.

    Each rank must train the whole model in mixed precision, with the statistics of its samples.
    """
    local = settings.ghosts == 1 and (plan.ranks == 1 or settings.batch_norm == "local")
    plain = plan.has_whole_model and local and settings.compile != "off"
    if device.type == "cpu" or not plain:
        return None
    mixed = precision.weights == torch.float32 and precision.products is None
    return precision.operands if mixed else None


class TorchBackend(Backend):
    """A workload's model in PyTorch, in any parallel mode and precision."""

    framework = "pytorch"
    version = torch.__version__

    def __init__(
        self,
        settings: TrainSettings,
        workload: Workload,
        plan: ParallelPlan,
        precision: Precision,
        device: torch.device,
        seed: int,
    ) -> None:
        """``seed`` determines the initial weights, which are the same on every rank."""
        self._settings, self._workload, self._plan = settings, workload, plan
        self.device = device
        self.deterministic = settings.deterministic or device.type == "cpu"
        self.emulated = precision.emulated
        _choose_kernels(settings, device)
        torch.manual_seed(mix(seed, 2) >> 1)
        dtype = fused_dtype(settings, plan, precision, device)
        fast = None if dtype is None else workload.fast_model(dtype, device)
        weights = InitialWeights()
        if plan.has_whole_model:
            model = initialised(fast or workload.model(), workload, seed)
        else:
            model, weights = initial_model(workload, seed)
        if fast is None:
            model = plan.normalise(model, settings)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self._model = model = precision.prepare(plan.place(model, workload, device, weights))
        self.layers_of_8_bits = eight_bit.converted_layers(model)
        self.commits_alone = plan.commits_alone
        if plan.commits_alone:
            self.no_model_reason = None
        else:
            self.no_model_reason = f"the model is divided between {plan.ranks} ranks"
        self._precision = precision
        self.compiled = fast is None and plan.can_compile and self._compiles()
        objective = Objective(model, workload, precision)
        recorder = self._recorder()
        # Gradients are averaged on the stream that they are accumulated on, that of the recording.
        with nullcontext() if recorder is None else recorder.stream():
            module = plan.wrap(objective)
        self._predict = plan.predictor(objective)
        if self.compiled:
            module.compile()
            self._predict = torch.compile(self._predict)
        self._optimizer = build(
            settings.optimizer,
            parameter_groups(
                model,
                settings.weight_decay,
                plan.part,
                orthogonal=settings.optimizer == "muon",
            ),
            learning_rate=settings.peak_rate,
            betas=settings.betas,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
        )
        self._scaler = precision.scaler(plan.maximum)
        step = Step(module, self._optimizer, self._scaler, plan)
        self._step: Step | RecordedStep = step
        self.recorded = recorder is not None and can_be_recorded(self._optimizer)
        if recorder is not None and self.recorded:
            self._step = RecordedStep(step, recorder)
            if fast is not None:
                self._predict = RecordedPrediction(self._predict, recorder)
        self.warm_steps = self._step.warm_steps

    def _compiles(self) -> bool:
        choice = self._settings.compile
        return choice == "on" or (choice == "auto" and self.device.type != "cpu")

    def _recorder(self) -> Recorder | None:
        """Return a recorder if steps may be recorded as CUDA graphs, otherwise None."""
        if (
            self.device.type == "cuda"
            and self._plan.can_be_recorded
            and self._settings.compile != "off"
            and self._workload.can_be_recorded
        ):
            return Recorder(self.device)
        return None

    def take_step(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Update the weights; return the mean loss, still on the device."""
        return self._step(parts, learning_rate)

    def predict(self, *inputs: Tensor) -> Tensor | None:
        """Return the predictions for a batch; None on ranks without output."""
        return self._predict(*inputs)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model in evaluation mode."""
        self._model.eval()
        try:
            yield
        finally:
            self._model.train()

    def collect(self) -> dict[str, Any] | None:
        """Return the state as the plan collects it, and that of the loss scaler."""
        contents = self._plan.collect(self._model, self._optimizer)
        return None if contents is None else contents | {"scaler": self._scaler.state_dict()}

    def restore(self, contents: Mapping[str, Any]) -> None:
        """Load a state."""
        self._plan.restore(contents, self._model, self._optimizer)
        self._scaler.load_state_dict(contents["scaler"])

    def weights(self) -> dict[str, Tensor] | None:
        """Return all weights and buffers on the leading rank."""
        return self._plan.full_state(self._model)

    def synchronise_buffers(self) -> None:
        """Average the running statistics over the copies of the model."""
        self._plan.synchronise_buffers(self._model)

    def is_finite(self) -> bool:
        """Whether all weights of all ranks are finite."""
        finite = torch.stack([local(p).isfinite().all() for p in self._model.parameters()])
        return not self._plan.maximum(1.0 - finite.all().float()) > 0

    @torch.no_grad()
    def perturb(self, relative: float) -> None:
        """Change every weight of this rank by ``relative`` of itself."""
        for parameter in self._model.parameters():
            weights = local(parameter)
            # The same on all ranks that have this parameter.
            generator = torch.Generator().manual_seed(weights.numel())
            signs = torch.randint(0, 2, weights.shape, generator=generator) * 2 - 1
            weights.mul_(1.0 + relative * signs.to(weights.device, weights.dtype))

    @torch.no_grad()
    def use_model(self, use: Callable[[nn.Module], Used]) -> Used:
        """Return what ``use`` returns for the model; it is neither compiled nor recorded."""
        with self.evaluating(), self._precision.autocast():
            return use(self._model)

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator; None on a CPU."""
        if self.device.type == "cpu":
            return None
        return int(torch.accelerator.max_memory_allocated(self.device))

    def fitting_batch(self, batch: int) -> int | None:
        """Return the largest batch that would fit; None if none does.

        It is not known on a CPU, whose memory is shared, nor with several ranks: a step sends
        messages to the others, which may not have run out of memory.
        """
        if self._plan.ranks > 1 or self.device.type == "cpu":
            return None
        return out_of_memory.fitting_batch(self._step, self._workload, self.device, batch)

    def report(self) -> list[tuple[str, Data]]:
        """Return the events of the plan."""
        return self._plan.report()

    def close(self) -> None:
        """Free the recorded step."""
        self._step.close()


def _choose_kernels(settings: TrainSettings, device: torch.device) -> None:
    """Let torch search for the fastest kernels, or choose deterministic ones."""
    exact = settings.deterministic
    # Shapes never change, so cuDNN's search for the fastest kernels is worthwhile. Its result
    # is not reproducible.
    searches_kernels = not exact and settings.compile != "record"
    torch.backends.cudnn.benchmark = device.type == "cuda" and searches_kernels
    if exact and device.type != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch requires it
        torch.use_deterministic_algorithms(True)
