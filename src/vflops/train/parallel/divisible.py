"""Reads what a model declares about how ranks can share it, for predictions from a run."""

from __future__ import annotations

from torch import nn

from vflops.counting.meta_device import on_meta
from vflops.record.formats.divisible import ChannelPair, Divisible
from vflops.train.parallel.channel_pairs import pairs, row_layers
from vflops.train.parallel.sharded_parallel import blocks
from vflops.workloads.contract.workload import Workload


def divisible(workload: Workload, name: str) -> Divisible:
    """Return how ranks can share the model of ``workload``."""
    model = on_meta(workload.model, name)
    names = {module: path for path, module in model.named_modules()}
    return Divisible(
        whole=tuple(_whole(model)),
        pairs=tuple(
            ChannelPair(
                first=tuple(names[layer] for layer in pair.first_layers),
                second=pair.names[-1],
                counts=pair.counts,
            )
            for pair in pairs(model)
        ),
        rows=tuple(path for path, _ in row_layers(model)),
        blocks=tuple(names[block] for block in blocks(model)),
        hidden_matrices=tuple(_hidden_matrices(model)),
    )


def _whole(model: nn.Module) -> list[str]:
    """Return the outermost modules with ``traced_whole`` set."""
    found: list[str] = []
    for path, module in model.named_modules():
        if getattr(module, "traced_whole", False) and not path.startswith(
            tuple(f"{outer}." for outer in found)
        ):
            found.append(path)
    return found


def _hidden_matrices(model: nn.Module) -> list[str]:
    find = getattr(model, "hidden_matrices", None)
    matrices = {id(matrix) for matrix in find()} if find else set()
    return [path for path, parameter in model.named_parameters() if id(parameter) in matrices]
