"""The optimizers of the papers, set up so that the host never waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from vflops.errors import UsageError, unknown_name
from vflops.train.eager import eager
from vflops.train.lamb import LAMB
from vflops.train.lars import LARS
from vflops.train.muon import Muon
from vflops.train.rounded_adamw import RoundedAdamW

Group = dict[str, Any]
"""A parameter group as in torch.optim; only LARS and LAMB use its key ``adapt``, and only Muon its
key ``orthogonal``."""

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    part: Callable[[Tensor], Tensor] = lambda whole: whole,
    *,
    orthogonal: bool = False,
) -> list[Group]:
    """Return the trainable parameters in two groups: with decay and adapted steps, and without.

    ``part`` returns the part of a parameter that this rank trains. With ``orthogonal``, the
    matrices of hidden layers (``hidden_matrices`` of the model) are a third group.

    The parameters of norm layers and biases are in the second group: decay does not regularise
    them, and the norm of so few numbers says little about a layer (You et al. 2017; the recipes of
    HPC AI500 do the same).
    """
    weights: list[Tensor] = []
    others: list[Tensor] = []
    matrices = _hidden_matrices(model) if orthogonal else []
    seen = {id(matrix) for matrix in matrices}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                undecayed = isinstance(module, _NORMS) or name.endswith("bias")
                (others if undecayed else weights).append(part(parameter))
    groups: list[Group] = [
        {"params": weights, "weight_decay": weight_decay, "adapt": True},
        {"params": others, "weight_decay": 0.0, "adapt": False},
        {
            "params": [part(matrix) for matrix in matrices],
            "weight_decay": weight_decay,
            "orthogonal": True,
        },
    ]
    return [group for group in groups if group["params"]]


def _hidden_matrices(model: nn.Module) -> list[Tensor]:
    find: Callable[[], list[Tensor]] | None = getattr(model, "hidden_matrices", None)
    if find is None:
        raise UsageError(
            f"optimizer muon does not know the hidden layers of {type(model).__name__}",
            hint="use optimizer adamw; muon trains language models",
        )
    return find()


@dataclass(frozen=True)
class _Options:
    """The options of all optimizers; each optimizer uses those that apply to it."""

    learning_rate: float
    momentum: float
    nesterov: bool
    weight_decay: float
    betas: tuple[float, float]
    epsilon: float | None
    trust_coefficient: float
    fused: bool | None

    def epsilon_or(self, default: float) -> float:
        return default if self.epsilon is None else self.epsilon


def build(
    name: str,
    parameters: Iterable[Tensor] | Iterable[Group],
    *,
    learning_rate: float,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float | None = None,
    trust_coefficient: float = 0.001,
    fused: bool | None = None,
) -> Optimizer:
    """Return the optimizer ``name``: sgd, adam, adamw, adagrad, lars, lamb or muon.

    ``weight_decay`` applies to groups that do not set it. ``epsilon`` None is the optimizer's
    default. ``fused`` None uses torch's fused kernels on accelerators that have them: with these,
    and with LARS, LAMB and Muon, neither a step nor a GradScaler waits for the device.
    """
    if name not in _BUILDERS:
        raise unknown_name("optimizer", name, _BUILDERS)
    groups = _as_groups(parameters)
    _check_supported(name, groups, nesterov)
    options = _Options(
        learning_rate, momentum, nesterov, weight_decay, betas, epsilon, trust_coefficient, fused
    )
    optimizer = _BUILDERS[name](groups, options)
    _keep_setup_on_load(optimizer)
    return optimizer


def set_learning_rate(optimizer: Optimizer, value: float) -> None:
    """Set the learning rate of all groups to ``value``.

    A learning rate that is a tensor, as `build` creates it, is changed in place: the host does not
    wait for the device, compiled code stays valid, and a recorded graph reads the new value.
    """
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def can_be_recorded(optimizer: Optimizer) -> bool:
    """Whether a recorded step sees a new learning rate: its kernels must read it on the device."""
    rates = [group["lr"] for group in optimizer.param_groups]
    return all(isinstance(rate, Tensor) and rate.device.type != "cpu" for rate in rates)


def _as_groups(parameters: Iterable[Tensor] | Iterable[Group]) -> list[Group]:
    entries = list(parameters)
    groups = [entry for entry in entries if isinstance(entry, dict)]
    ungrouped = [entry for entry in entries if isinstance(entry, Tensor)]
    if not entries:
        raise ValueError("parameters is empty: there is nothing to train")
    return [*groups, {"params": ungrouped}] if ungrouped else groups


def _check_supported(name: str, groups: list[Group], nesterov: bool) -> None:
    if nesterov and name != "sgd":
        raise UsageError(
            f"optimizer {name} has no Nesterov momentum", hint="use optimizer sgd, or omit nesterov"
        )
    has_fp16 = any(p.dtype is torch.float16 for group in groups for p in group["params"])
    if has_fp16 and name in ("adam", "adamw", "adagrad", "lamb", "muon"):
        raise UsageError(
            f"optimizer {name} cannot keep its state in fp16: the squares of gradients below "
            "2e-4 would be 0",
            hint="use precision mixed-fp16, or optimizer sgd or lars",
        )


def _sgd(groups: list[Group], options: _Options) -> Optimizer:
    rate, kernels = _kernels(SGD, groups, options)
    optimizer = eager(SGD)(
        groups,
        lr=rate,
        momentum=options.momentum,
        nesterov=options.nesterov,
        weight_decay=options.weight_decay,
        **kernels,
    )
    if options.momentum:
        # torch creates these buffers in the first step, and leaves them uninitialised if a
        # GradScaler skips that step. Starting from zeros gives the same result.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _adam(groups: list[Group], options: _Options, kind: type[Adam] = Adam) -> Optimizer:
    rate, kernels = _kernels(kind, groups, options)
    if kernels["fused"]:
        kernels["capturable"] = True
    else:
        kernels["foreach"] = False  # foreach does not accept a tensor as learning rate
    epsilon, decay = options.epsilon_or(1e-8), options.weight_decay
    return eager(kind)(
        groups, lr=rate, betas=options.betas, eps=epsilon, weight_decay=decay, **kernels
    )


def _adamw(groups: list[Group], options: _Options) -> Optimizer:
    if any(p.dtype is torch.bfloat16 for group in groups for p in group["params"]):
        return eager(RoundedAdamW)(
            groups,
            _rate(options.learning_rate, _device_of(groups)),
            betas=options.betas,
            epsilon=options.epsilon_or(1e-8),
            weight_decay=options.weight_decay,
        )
    return _adam(groups, options, AdamW)


def _adagrad(groups: list[Group], options: _Options) -> Optimizer:
    rate, kernels = _kernels(Adagrad, groups, options)
    epsilon = options.epsilon_or(1e-10)
    return eager(Adagrad)(
        groups, lr=rate, eps=epsilon, weight_decay=options.weight_decay, **kernels
    )


def _lars(groups: list[Group], options: _Options) -> Optimizer:
    return eager(LARS)(
        groups,
        _rate(options.learning_rate, _device_of(groups)),
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        trust_coefficient=options.trust_coefficient,
    )


def _lamb(groups: list[Group], options: _Options) -> Optimizer:
    return eager(LAMB)(
        groups,
        _rate(options.learning_rate, _device_of(groups)),
        betas=options.betas,
        epsilon=options.epsilon_or(1e-6),
        weight_decay=options.weight_decay,
    )


def _muon(groups: list[Group], options: _Options) -> Optimizer:
    return eager(Muon)(
        groups,
        _rate(options.learning_rate, _device_of(groups)),
        momentum=options.momentum,
        betas=options.betas,
        epsilon=options.epsilon_or(1e-8),
        weight_decay=options.weight_decay,
    )


_BUILDERS: dict[str, Callable[[list[Group], _Options], Optimizer]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adamw,
    "adagrad": _adagrad,
    "lars": _lars,
    "lamb": _lamb,
    "muon": _muon,
}


def _kernels(
    optimizer: type[Optimizer], groups: list[Group], options: _Options
) -> tuple[Tensor, dict[str, Any]]:
    """Return the learning rate as a tensor, and the options that select torch's kernels.

    Without fused kernels, torch reads the rate on the host, so it stays there and no step waits.
    """
    device = _device_of(groups)
    fused = options.fused
    if fused is None:
        fused = device.type != "cpu" and _has_fused(optimizer, groups)
    rate = _rate(options.learning_rate, device if fused else torch.device("cpu"))
    return rate, {"fused": fused, "foreach": not fused}


def _rate(value: float, device: torch.device) -> Tensor:
    # torch's fused kernels read fp32; on the host the rate keeps full precision.
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    return torch.tensor(value, dtype=dtype, device=device)


def _device_of(groups: list[Group]) -> torch.device:
    device: torch.device = groups[0]["params"][0].device
    return device


def _has_fused(optimizer: type[Optimizer], groups: list[Group]) -> bool:
    """Whether torch has fused kernels for the parameters; this takes a step to find out.

    Versions of torch differ in this.
    """
    probes = {
        (p.device, p.dtype): torch.zeros(1, device=p.device, dtype=p.dtype, requires_grad=True)
        for group in groups
        for p in group["params"]
    }
    build_optimizer: Callable[..., Optimizer] = eager(optimizer)
    try:
        for probe in probes.values():
            probe.grad = torch.zeros_like(probe)
            build_optimizer([probe], lr=_rate(0.0, probe.device), fused=True).step()
    except RuntimeError:
        return False
    return True


_KERNEL_KEYS = ("fused", "foreach", "capturable")
"""The keys of a group that select its kernels."""


def _keep_setup_on_load(optimizer: Optimizer) -> None:
    """Make ``load_state_dict`` keep the tensor of the learning rate and the choice of kernels."""
    rates = [group["lr"] for group in optimizer.param_groups]

    def keep_kernels(loading: Optimizer, state: Group) -> Group:
        groups = [dict(saved) for saved in state["param_groups"]]
        # torch checks that the numbers of groups are equal.
        for saved, group in zip(groups, loading.param_groups, strict=False):
            saved.update({key: group[key] for key in _KERNEL_KEYS if key in group})
        return state | {"param_groups": groups}

    def keep_rate(loaded: Optimizer) -> None:
        for group, rate in zip(loaded.param_groups, rates, strict=True):
            rate.copy_(torch.as_tensor(group["lr"]))
            group["lr"] = rate

    optimizer.register_load_state_dict_pre_hook(keep_kernels)
    optimizer.register_load_state_dict_post_hook(keep_rate)
