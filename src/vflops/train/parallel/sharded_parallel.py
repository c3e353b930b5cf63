"""Sharded data parallelism (FSDP2): each rank keeps a part of all weights and their states.

A block's weights are gathered when it computes, and its gradients are averaged and scattered at
once: so the memory of weights, gradients and optimizer is divided by the ranks. Batches are shared
as in data parallelism, and so are the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from vflops.record.files.document import Data
from vflops.train.communication import Tally
from vflops.train.communication.fsdp_traffic import CountedGather, CountedScatter
from vflops.train.objective import Objective
from vflops.train.parallel.divided import DividedPlan, Division
from vflops.train.parallel.optimizer_state import local
from vflops.workloads.contract.workload import Inputs, Workload


class ShardedData(DividedPlan):
    """Every rank computes the whole model for a share of each batch and keeps a part of it."""

    can_compile = False

    def __init__(self, rank: int, ranks: int, device: torch.device, store: str) -> None:
        super().__init__(rank, ranks, device, store)
        self.mesh = init_device_mesh(device.type, (ranks,), mesh_dim_names=("data",))
        self._copies = self._parts = self.mesh.get_group()
        self._own: dict[Tensor, nn.Parameter] = {}
        self._tally = Tally("sharded", self._parts, self._local_ranks)

    def place(self, model: nn.Module, workload: Workload, device: torch.device) -> nn.Module:
        """On the device, with weights that lie as they are read: rows are what is divided."""
        return model.to(device)

    def wrap(self, objective: Objective) -> nn.Module:
        """The objective, its model sharded by its blocks.

        The optimizer works on the parts as plain tensors: so its kernels are those of one rank.
        """
        model = objective.model
        for block in list(blocks(model)):
            self._shard(block)
        self._shard(model)
        for name, parameter in model.named_parameters():
            own = nn.Parameter(local(parameter), requires_grad=parameter.requires_grad)
            own.divided_over = self._parts  # type: ignore[attr-defined]
            self._own[parameter] = own
            self._divisions[name] = Division(0, parameter.shape[0])
        return objective

    def _shard(self, module: nn.Module) -> None:
        """As one message, or two where batch norm keeps another type than the rest."""
        kinds: dict[torch.dtype, list[nn.Module]] = {}
        for each in module.modules():
            for parameter in each.parameters(recurse=False):
                if not hasattr(parameter, "to_local"):
                    kinds.setdefault(parameter.dtype, []).append(each)
        if len(kinds) > 1:
            few = min(kinds.values(), key=len)
            apart = list(dict.fromkeys(few))
            fully_shard(apart, mesh=self.mesh)
            self._count(apart[0])
        fully_shard(module, mesh=self.mesh)
        self._count(module)

    def _count(self, module: nn.Module) -> None:
        assert isinstance(module, FSDPModule)
        module.set_custom_all_gather(CountedGather(self._tally))
        module.set_custom_reduce_scatter(CountedScatter(self._tally))

    def part(self, parameter: Tensor) -> Tensor:
        """This rank's rows of it."""
        return self._own[parameter]

    def predictor(self, objective: Objective) -> Callable[..., Tensor | None]:
        """The objective's; what was gathered is given up."""

        def predict(*inputs: Tensor) -> Tensor:
            predictions = objective.evaluate(*inputs)
            for module in _sharded(objective):
                module.reshard()
            return predictions

        return predict

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Gradients go to what the optimizer works on."""
        with self._tally.step():
            loss = super().backward(wrapped, parts, scale)
        for parameter, own in self._own.items():
            if parameter.grad is not None:
                own.grad, parameter.grad = local(parameter.grad), None
        return loss

    def report(self) -> list[tuple[str, Data]]:
        """What the ranks gathered and scattered."""
        return [*self._tally.report(self._device)]

    @contextmanager
    def local_gradients(self, wrapped: nn.Module) -> Iterator[None]:
        """Whole gradients add up on each rank; only those of the last part are exchanged."""
        (root,) = (each for each in wrapped.children() if isinstance(each, FSDPModule))
        root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            root.set_requires_gradient_sync(True)


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """What is repeated: the outermost children of sequences that have more than vectors."""
    for child in module.children():
        repeated = isinstance(module, nn.Sequential | nn.ModuleList)
        if not repeated or isinstance(child, nn.Sequential | nn.ModuleList):
            yield from blocks(child)
        elif any(parameter.dim() > 1 for parameter in child.parameters()):
            yield child


def _sharded(module: nn.Module) -> list[FSDPModule]:
    return [each for each in module.modules() if isinstance(each, FSDPModule)]
