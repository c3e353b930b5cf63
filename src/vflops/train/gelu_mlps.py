"""MLPs with GELU whose two layers can be computed as one."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from vflops.models.language.transformer import Mlp


def gelu_mlps(model: nn.Module, layer: type[nn.Module]) -> Iterator[Mlp]:
    """Yield the MLPs of ``model`` with GELU and two layers of type ``layer``.

    Those whose layers have hooks are left out: ranks that divide an MLP communicate there, and the
    layers of a joint computation are not called.
    """
    for module in list(model.modules()):
        if type(module) is Mlp and module.gate is None:
            layers = module.up, module.down
            if all(isinstance(one, layer) and not _has_hooks(one) for one in layers):
                yield module


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_pre_hooks or module._forward_hooks)
