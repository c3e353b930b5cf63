"""Sharded data parallelism (FSDP2): each rank keeps a part of all weights and optimizer state.

A block's weights are gathered when the block is computed, and its gradients are averaged and
scattered right after. So the memory for weights, gradients and optimizer state is divided by the
number of ranks. Batches are divided as in data parallelism, with the same results.
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
from vflops.train.initial_model import InitialWeights
from vflops.train.objective import Objective
from vflops.train.parallel.divided import DividedPlan, Division
from vflops.train.parallel.optimizer_state import local
from vflops.workloads.contract.workload import Inputs, Workload


class ShardedData(DividedPlan):
    """Every rank computes the whole model for its share of each batch, but keeps only a part."""

    can_compile = False

    def __init__(self, rank: int, ranks: int, device: torch.device, store: str) -> None:
        super().__init__(rank, ranks, device, store)
        self.mesh = init_device_mesh(device.type, (ranks,), mesh_dim_names=("data",))
        self._copies = self._parts = self.mesh.get_group()
        self._weights = InitialWeights()
        self._parts_of: dict[Tensor, nn.Parameter] = {}
        self._tally = Tally("sharded", self._parts, self._local_ranks)

    def place(
        self,
        model: nn.Module,
        workload: Workload,
        device: torch.device,
        weights: InitialWeights | None = None,
    ) -> nn.Module:
        """Return the model in the default memory format, since rows are divided.

        It stays on the meta device if ``weights`` has its values: ``wrap`` fills and shards it
        block by block.
        """
        self._weights = weights or InitialWeights()
        return model if self._weights.values else model.to(device)

    def wrap(self, objective: Objective) -> nn.Module:
        """Return the objective with its model sharded block by block.

        The optimizer updates the parts as plain tensors, with the same kernels as on one rank.
        """
        model = objective.model
        for module in (*blocks(model), model):
            self._weights.fill(model, self._device, within=module)
            self._shard(module)
        self._weights = InitialWeights()
        # Both names of a tied weight are in a checkpoint.
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._divisions[name] = Division(0, (parameter.shape[0],))
            if parameter not in self._parts_of:
                part = nn.Parameter(local(parameter), requires_grad=parameter.requires_grad)
                self._mark(part, self._divisions[name])
                self._parts_of[parameter] = part
        return objective

    def _shard(self, module: nn.Module) -> None:
        """Shard a module as one message, or as two if its batch norm has a different dtype."""
        by_dtype: dict[torch.dtype, list[nn.Module]] = {}
        for child in module.modules():
            for parameter in child.parameters(recurse=False):
                if not hasattr(parameter, "to_local"):
                    by_dtype.setdefault(parameter.dtype, []).append(child)
        if len(by_dtype) > 1:
            rarer = min(by_dtype.values(), key=len)
            separate = list(dict.fromkeys(rarer))
            fully_shard(separate, mesh=self.mesh)
            self._count_traffic(separate[0])
        fully_shard(module, mesh=self.mesh)
        self._count_traffic(module)

    def _count_traffic(self, module: nn.Module) -> None:
        assert isinstance(module, FSDPModule)
        module.set_custom_all_gather(CountedGather(self._tally))
        module.set_custom_reduce_scatter(CountedScatter(self._tally))

    def part(self, parameter: Tensor) -> Tensor:
        """Return this rank's rows of a parameter."""
        return self._parts_of[parameter]

    def predictor(self, objective: Objective) -> Callable[..., Tensor | None]:
        """Return a function that predicts and then frees the gathered weights."""

        def predict(*inputs: Tensor) -> Tensor:
            predictions = objective.evaluate(*inputs)
            for module in _sharded(objective):
                module.reshard()
            return predictions

        return predict

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Compute the gradients, and move them to the parts that the optimizer updates."""
        with self._tally.step():
            loss = super().backward(wrapped, parts, scale)
        for parameter, part in self._parts_of.items():
            if parameter.grad is not None:
                part.grad, parameter.grad = local(parameter.grad), None
        return loss

    def report(self) -> list[tuple[str, Data]]:
        """Return the traffic of gathering weights and scattering gradients."""
        return [*self._tally.report(self._device)]

    @contextmanager
    def local_gradients(self, wrapped: nn.Module) -> Iterator[None]:
        """Accumulate the gradients of the whole model on each rank inside the context."""
        (root,) = (child for child in wrapped.children() if isinstance(child, FSDPModule))
        root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            root.set_requires_gradient_sync(True)


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the repeated blocks: the children of sequences and lists that have weight matrices.

    A sequence inside a sequence is not a block, but its children are.
    """
    for child in module.children():
        repeated = isinstance(module, nn.Sequential | nn.ModuleList)
        if not repeated or isinstance(child, nn.Sequential | nn.ModuleList):
            yield from blocks(child)
        elif any(parameter.dim() > 1 for parameter in child.parameters()):
            yield child


def _sharded(module: nn.Module) -> list[FSDPModule]:
    return [child for child in module.modules() if isinstance(child, FSDPModule)]
