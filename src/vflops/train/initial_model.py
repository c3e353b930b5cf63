"""A model before training, of which each rank computes the initial weights that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from vflops.train.deferred_build import CannotDefer, Recording, SeenOnHost
from vflops.workloads.contract.workload import Workload

Cut = Callable[[str, Tensor], Tensor]
"""Returns this rank's part of the tensor of that name."""


@dataclass
class InitialWeights:
    """The weights and buffers that a model on the meta device starts with."""

    values: dict[str, Callable[[], Tensor]] = field(default_factory=dict)
    """Functions that compute the whole tensors; none if the model has its values already."""

    @torch.no_grad()
    def fill(
        self,
        model: nn.Module,
        device: torch.device,
        cut: Cut = lambda name, whole: whole,
        within: nn.Module | None = None,
    ) -> None:
        """Replace the tensors of ``model`` on the meta device by this rank's parts.

        Only those that ``within`` or its children have, if given. In host memory there is one whole
        tensor at a time.
        """
        inside = set((within or model).modules())
        places = list(_places(model))
        wanted = {tensor for _, module, _, tensor in places if module in inside and tensor.is_meta}
        filled: dict[Tensor, Tensor] = {}
        for name, module, key, tensor in places:
            if tensor not in wanted or name not in self.values:
                continue
            if tensor not in filled:
                part = separate(cut(name, self.values[name]()).to(device, tensor.dtype))
                filled[tensor] = _like(tensor, part)
            setattr(module, key, filled[tensor])


def initial_model(workload: Workload, seed: int) -> tuple[nn.Module, InitialWeights]:
    """Return the model on the meta device, and its initial weights.

    The random numbers continue as after ``workload.model()``. If its constructor cannot be repeated
    tensor by tensor, the model has its values and all of it is in host memory.
    """
    random_state = torch.get_rng_state()
    try:
        model, values = _deferred(workload.model)
    except Exception:  # such as reading a value; without a recording this is allowed
        torch.set_rng_state(random_state)
        return initialised(workload.model(), workload, seed), InitialWeights()
    arrays = workload.initial_weights(seed) or {}
    if arrays:  # raises if names or shapes differ
        layouts = {name: torch.empty(x.shape, device="meta") for name, x in arrays.items()}
        model.load_state_dict(layouts)
    values |= {name: partial(torch.tensor, array) for name, array in arrays.items()}
    return model, InitialWeights(values)


def initialised(model: nn.Module, workload: Workload, seed: int) -> nn.Module:
    """Return the model with the workload's initial weights, or with its own if there are none."""
    weights = workload.initial_weights(seed)
    if weights is not None:
        model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return model


def can_be_deferred(build: Callable[[], nn.Module]) -> bool:
    """Whether each rank can compute its part alone of the model that ``build`` returns."""
    with torch.random.fork_rng(devices=[]):
        try:
            _deferred(build, draws=False)
        except Exception:
            return False
    return True


def _deferred(
    build: Callable[[], nn.Module], *, draws: bool = True
) -> tuple[nn.Module, dict[str, Callable[[], Tensor]]]:
    recording = Recording(draws=draws)
    with recording, SeenOnHost():
        model = build()
    places = list(_places(model))
    if any(type(tensor) not in (Tensor, nn.Parameter) for *_, tensor in places):
        raise CannotDefer("it has tensors of another type")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise CannotDefer("it has modules whose tensors cannot be replaced")
    large = list(dict.fromkeys(tensor for *_, tensor in places if tensor.is_meta))
    recorded = recording.recorded(large)
    compute = {tensor: partial(recorded.compute, index) for index, tensor in enumerate(large)}
    small = {
        tensor: _like(tensor, tensor.detach().to("meta"))
        for *_, tensor in places
        if not tensor.is_meta
    }
    values: dict[str, Callable[[], Tensor]] = {}
    for name, module, key, tensor in places:
        values[name] = compute.get(tensor) or partial(tensor.detach().clone)
        if tensor in small:
            setattr(module, key, small[tensor])
    return model, values


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Yield all parameters and buffers with their names, by all names: (name, module, key, it)."""
    for path, module in model.named_modules(remove_duplicate=False):
        for tensors in (module._parameters, module._buffers):
            for key, tensor in tensors.items():
                if tensor is not None:
                    yield f"{path}.{key}".lstrip("."), module, key, tensor


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    """Return ``values`` as a parameter or buffer like ``tensor``, with its attributes."""
    new = values
    if isinstance(tensor, nn.Parameter):
        new = nn.Parameter(values, requires_grad=tensor.requires_grad)
    new.__dict__.update(tensor.__dict__)
    return new


def separate(part: Tensor) -> Tensor:
    """Return a part with memory of its own, so that the whole can be freed."""
    return part.clone() if part.nbytes < part.untyped_storage().nbytes() else part
