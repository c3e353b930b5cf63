"""Tensor parallelism: the channels between two layers are divided between ranks.

On each rank, the first layer of such a pair computes some of its output channels, batch norm and
ReLU process these, and the second layer takes them as some of its input channels. The outputs of
the ranks are then summed. So a pair needs one sum over the ranks in the forward pass, and one in
the backward pass for the gradient of its input (Shoeybi et al. 2019). Attention is such a pair,
whose channels are divided by heads. A model declares its pairs, see ``channel_pairs.pairs``; every
rank computes everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from vflops.config.training import TrainSettings
from vflops.record.files.document import Data
from vflops.train.communication import Exchange, Tally, exchange_gradients
from vflops.train.initial_model import InitialWeights
from vflops.train.objective import Objective
from vflops.train.parallel.channel_pairs import Pair, pairs, row_layers
from vflops.train.parallel.channels import RowRanks, sum_input_gradient, sum_output
from vflops.train.parallel.divided import DividedPlan, Division
from vflops.workloads.contract.workload import Inputs, Workload


class TensorParallel(DividedPlan):
    """Ranks divide the channels of a model; consecutive ranks form a copy of the model."""

    can_compile = False

    def __init__(
        self, rank: int, ranks: int, device: torch.device, store: str, settings: TrainSettings
    ) -> None:
        super().__init__(rank, ranks, device, store, settings.communication.algorithm)
        shape, names = (settings.shares, ranks // settings.shares), ("data", "tensor")
        self.mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
        self._communication = settings.communication
        self._exchange: Exchange | None = None
        self._copies, self._parts = self.mesh.get_group("data"), self.mesh.get_group("tensor")
        self._tally = Tally("model", self._parts, self._local_ranks)
        # All ranks of a copy have its predictions, but these must be counted only once.
        self.has_output = dist.get_rank(self._parts) == 0

    @property
    def share(self) -> int:
        """The index of this rank's copy of the model."""
        return dist.get_rank(self._copies)

    @property
    def shares(self) -> int:
        """Number of copies of the model."""
        return dist.get_world_size(self._copies)

    def place(
        self,
        model: nn.Module,
        workload: Workload,
        device: torch.device,
        weights: InitialWeights | None = None,
    ) -> nn.Module:
        """Return the model with this rank's channels of every pair."""
        for pair in pairs(model):
            self._divide(pair)
        self._divide_rows(model)
        if weights is not None:
            weights.fill(model, device, self._cut)
        for name, parameter in model.named_parameters():
            if name in self._divisions:
                self._mark(parameter, self._divisions[name])
        return super().place(model, workload, device)

    def _divide(self, pair: Pair) -> None:
        ranks = dist.get_world_size(self._parts)
        for name, tensor, division in list(pair.divisions()):
            self._divisions[name] = division
            tensor.data = self._cut(name, tensor.data).clone()
        for unit, count in pair.units.items():
            setattr(pair.module, unit, count // ranks)
        *before, second = pair.layers
        for layer in before:
            _divide_counts(layer, ("out_channels", "out_features", "num_features"), ranks)
        _divide_counts(second, ("in_channels", "in_features"), ranks)
        sum_input_gradient(pair.first_layers, self._tally)
        sum_output(second, self._tally)

    def _divide_rows(self, model: nn.Module) -> None:
        """Divide the rows of layers that allow it; a tied weight is divided once."""
        whole_rows: dict[Tensor, int] = {}
        for name, layer in list(row_layers(model)):
            full_name, weight = f"{name}.weight", layer.get_parameter("weight")
            is_divided = weight in whole_rows
            rows = whole_rows.setdefault(weight, len(weight))
            division = self._divisions[full_name] = Division(0, (rows,))
            if not is_divided:
                weight.data = self._cut(full_name, weight.data).clone()
            number, parts = dist.get_rank(self._parts), dist.get_world_size(self._parts)
            layer.row_ranks = RowRanks(division.start(number, parts), self._tally)  # type: ignore[assignment]

    def wrap(self, objective: Objective) -> nn.Module:
        """Return the objective, in torch's DDP if there are several copies."""
        for pair in pairs(objective.model):
            for layer in pair.shared_layers:
                # Each rank has the gradient of its own units only.
                for parameter in layer.parameters():
                    parameter.register_hook(self._summed)
        if self.shares == 1:
            return objective
        assert self.mesh is not None
        ids = None if self._device.type == "cpu" else [self._device]
        wrapped = DistributedDataParallel(
            objective,
            device_ids=ids,
            device_mesh=self.mesh["data"],
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )
        sharing = self.ranks // self.shares
        local_copies = max(self._local_ranks // sharing, 1)
        self._exchange = exchange_gradients(
            wrapped, self._communication, self._copies, local_copies
        )
        return wrapped

    def _summed(self, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        self._tally.all_reduce(total)
        return total

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Compute the gradients, and count the bytes sent between the ranks of a copy."""
        if self._exchange is not None:
            self._exchange.begin(scale)
        with self._tally.step():
            return super().backward(wrapped, parts, scale)

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Return a context without the exchange between copies."""
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def predictor(self, objective: Objective) -> Callable[..., Tensor | None]:
        """Return a function that all ranks of a copy call; only the first returns predictions."""

        def predict(*inputs: Tensor) -> Tensor | None:
            predictions = objective.evaluate(*inputs)
            return predictions if self.has_output else None

        return predict

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Average over the copies, and make undivided tensors bitwise equal within a copy.

        Kernels of accelerators may round differently, and nothing else corrects these differences.
        """
        super().synchronise_buffers(model)
        first = dist.get_global_rank(self._parts, 0)
        for name, tensor in model.state_dict().items():
            if name not in self._divisions:
                dist.broadcast(tensor, first, group=self._parts)

    def report(self) -> list[tuple[str, Data]]:
        """Return the traffic within a copy and between the copies."""
        events: list[tuple[str, Data]] = [*self._tally.report(self._device)]
        if self._exchange is not None and self._exchange.steps:
            events.append(("exchange", self._exchange.report(self._copies, self._device)))
        return events

    def close(self) -> None:
        """Close the exchange and leave the group."""
        if self._exchange is not None:
            self._exchange.close()
        super().close()


def _divide_counts(layer: nn.Module, keys: Sequence[str], ranks: int) -> None:
    for key in keys:
        if hasattr(layer, key):
            setattr(layer, key, getattr(layer, key) // ranks)
