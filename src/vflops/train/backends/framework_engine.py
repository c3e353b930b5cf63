"""The training engine with another framework than PyTorch.

Loop, samples, augmentation, schedule, evaluations, checkpoints and clock are those of PyTorch;
only the steps and the predictions are computed by an ``ArrayBackend``. The initial weights are
PyTorch's for the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vflops.config.frameworks import FRAMEWORKS
from vflops.data.sampler import mix
from vflops.errors import RunFailed, UsageError
from vflops.extensions import import_object
from vflops.machine.devices import first_line
from vflops.record.formats.job_events import JobStarted
from vflops.train.backends.array_backend import ArrayBackend, Recipe
from vflops.train.backends.availability import require_framework
from vflops.train.backends.framework_plan import FrameworkGroup, FrameworkModule, framework_plan
from vflops.train.checkpoint import Checkpoints
from vflops.train.context import JobContext
from vflops.train.data_read import write_data_read
from vflops.train.engine import Engine
from vflops.train.loop import Loop
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.precision import Precision
from vflops.train.rank_device import rank_device, use_threads
from vflops.train.state import TrainState
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.workload import Inputs, Workload

_BACKENDS = {
    "jax": "vflops.train.backends.jax_backend:JaxBackend",
    "tensorflow": "vflops.train.backends.tensorflow_backend:TensorFlowBackend",
    "mindspore": "vflops.train.backends.mindspore_backend:MindSporeBackend",
}


def run(context: JobContext) -> None:
    """Train this rank's part of the job."""
    context.stop.set_unsaved_work(False)
    record = context.record
    spec = find(record.workload)
    settings = spec.settings.model_validate(record.settings)
    train = settings.train
    require_framework(train.framework)
    device = rank_device(train.device, context.local_rank)
    threads = use_threads(device, context.local_ranks or record.ranks)
    precision = Precision.named(train.precision, device)
    workload: Workload = spec.load_code().create(settings, record.data)
    plan = framework_plan(context.rank, record.ranks, context.store, train.framework)
    try:
        engine = FrameworkEngine(context, train, workload, plan, precision, device)
        context.write_event("job", engine.start_event(threads))
        engine.train()
        write_data_read(context, plan, workload.read_splits())
    finally:
        plan.close()


class FrameworkEngine(Engine):
    """Trains the model of a backend; ``prepare`` and the loop are those of PyTorch."""

    def __post_init__(self) -> None:
        self.backend = _backend(self)
        self.prepare = self.workload.inputs
        self.parameters = self.backend.parameters
        self.compiled, self.recorded = self.backend.compiled, False
        module = FrameworkModule(self.backend, self.device)
        update: Any = FrameworkStep(self.backend)
        checkpoints = Checkpoints(self.context.checkpoints)
        self.state = FrameworkState(module, update, self.backend.predict, checkpoints)

    def start_event(self, threads: int) -> JobStarted:
        """Return the event that also names the framework."""
        changes = {"framework": self.settings.framework, "framework_version": self.backend.version}
        return super().start_event(threads).model_copy(update=changes)

    def _restore(self) -> None:
        super()._restore()
        segment = self.context.record.segment
        if segment is not None and segment.perturbation:
            self.backend.perturb(segment.perturbation)

    def _conclude(self, loop: Loop) -> None:
        if isinstance(self.plan, FrameworkGroup):
            self.plan.averaged(self.backend.steps, self.parameters)
        super()._conclude(loop)
        counted = self.backend.own_count(loop.one_batch()) if self.plan.leads else None
        if counted is not None:
            self.context.write_event("framework-count", counted)

    def _out_of_memory(self, error: RuntimeError) -> RunFailed:
        train = self.settings
        return RunFailed(
            f"out of memory on {self.device} with {train.rank_batch} samples at once "
            f"(batch {train.batch}, {train.ranks} ranks): {first_line(error)}",
            hint="use a smaller --set train.batch or a larger --set train.accumulate",
        )


class FrameworkState(TrainState):
    """A state whose model is that of a backend."""

    @property
    def backend(self) -> ArrayBackend:
        """The backend."""
        assert isinstance(self.model, FrameworkModule)
        return self.model.backend

    def require_finite(self, plan: ParallelPlan) -> None:
        """Raise ``RunFailed`` if a weight is not finite; weights are equal on all ranks."""
        if not self.backend.is_finite():
            raise RunFailed(
                f"the weights are not finite after step {self.step}; the last good checkpoint is "
                f"{self.checkpoints.latest()}",
                hint="start again with a smaller --set train.learning_rate",
            )

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator; None if the framework does not say."""
        return self.backend.peak_memory_bytes()


class FrameworkStep:
    """A step of the backend in the place of PyTorch's."""

    warm_steps: ClassVar[int] = 1
    optimizer = None
    """The backend has its own."""

    def __init__(self, backend: ArrayBackend) -> None:
        self._backend = backend
        self.scaler = FrameworkScaler(backend)

    def __call__(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Update the weights; return the mean loss."""
        return self._backend.take_step(parts, learning_rate)


class FrameworkScaler:
    """The loss scaler of a backend, for checkpoints."""

    def __init__(self, backend: ArrayBackend) -> None:
        self.state_dict, self.load_state_dict = backend.read_scale, backend.restore_scale


def _backend(engine: FrameworkEngine) -> ArrayBackend:
    """Return the backend of the job, with PyTorch's initial weights for its seed."""
    context, train, plan = engine.context, engine.settings, engine.plan
    spec = find(context.record.workload)
    framework = FRAMEWORKS[train.framework]
    if spec.classifier is None:
        raise UsageError(
            f"{spec.name} is trained with PyTorch only, not with {framework.title}",
            hint="--framework pytorch",
        )
    if engine.device.type != "cpu" and (engine.device.index or plan.ranks > 1):
        # Each process would see all accelerators and compute on the first one.
        raise UsageError(
            f"{framework.title} is offered on the first accelerator with one rank, not on "
            f"{engine.device} with {plan.ranks}",
            hint="--framework pytorch, or let each job see one accelerator (CUDA_VISIBLE_DEVICES)",
        )
    settings = spec.settings.model_validate(context.record.settings)
    classifier = import_object(spec.classifier)(settings, context.record.data)
    torch.manual_seed(mix(context.record.seed, 2) >> 1)
    model: nn.Module = engine.workload.model()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    recipe = Recipe(
        momentum=train.momentum,
        nesterov=train.nesterov,
        weight_decay=train.weight_decay,
        precision=train.precision,
        device=engine.device.type,
        index=engine.device.index or 0,
        threads=torch.get_num_threads(),
        rank=plan.rank,
        ranks=plan.ranks,
        addresses=plan.addresses() if isinstance(plan, FrameworkGroup) else (),
    )
    backend: ArrayBackend = import_object(_BACKENDS[train.framework])(classifier, recipe, weights)
    return backend
