"""Checks whether ranks can share a model in a parallel mode, and the memory that each needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import nn

from vflops.config.training import TrainSettings
from vflops.counting.meta_device import on_meta
from vflops.train.initial_model import can_be_deferred
from vflops.train.parallel.channel_pairs import check_pairs, pairs, row_layers
from vflops.train.parallel.cut import StageCut, cut
from vflops.train.parallel.footprint import MODEL_STATE, Footprint
from vflops.workloads.contract.workload import Workload


def footprint(workload: Workload, name: str, settings: TrainSettings) -> Footprint:
    """Return the footprint of ``workload``'s model on the rank that needs the most memory.

    Raise if the model has fewer layers than stages, or channels that the ranks cannot divide.
    """
    model = on_meta(workload.model, name)
    found = _divided(workload, model, name, settings)
    if settings.parallel.inner == "data" or can_be_deferred(workload.model):
        return found
    how = f"{found.description}, after each rank has built the whole model"
    return replace(found, built=_count(model.parameters()), description=how)


def _divided(workload: Workload, model: nn.Module, name: str, settings: TrainSettings) -> Footprint:
    parallel, sharing = settings.parallel, settings.ranks // settings.shares
    if parallel.mode == "sharded":
        return _sharded(model, settings)
    if parallel.cuts_layers:
        return _stages(model, cut(workload, settings, name), sharing)
    if parallel.inner == "model":
        check_pairs(model, sharing, name)
        return _channels(model, sharing)
    return Footprint(_count(_trainable(model)))


def _sharded(model: nn.Module, settings: TrainSettings) -> Footprint:
    """Return the footprint of the first rank: its part, and the largest block with its gradients.

    Parameters outside of blocks are gathered once per step. With ``accumulate`` above 1, the
    gradients of the whole model are accumulated.
    """
    from vflops.train.parallel.sharded_parallel import blocks

    ranks = settings.ranks
    rows = [(p.shape[0] if p.dim() else 1, p.numel()) for p in _trainable(model)]
    kept = sum(-(-count // ranks) * (elements // count) for count, elements in rows)
    sizes = [_count(_trainable(block)) for block in blocks(model)]
    whole = _count(_trainable(model))
    gathered = whole - sum(sizes) + max(sizes, default=0)
    if settings.accumulate > 1:
        return Footprint(
            kept, gathered + whole, f"1/{ranks} of {MODEL_STATE}, the largest block and gradients"
        )
    return Footprint(kept, 2 * gathered, f"1/{ranks} of {MODEL_STATE}, and the largest block")


def _stages(model: nn.Module, cuts: Sequence[StageCut], ranks: int) -> Footprint:
    """Return the footprint of the rank with the largest stages."""
    sizes = []
    for rank in range(ranks):
        stages = cuts[rank::ranks]
        named = model.named_parameters(remove_duplicate=False)  # a tied weight has several names
        kept = {p: None for name, p in named if any(stage.needs(name) for stage in stages)}
        sizes.append(_count(kept))
    what = "stage" if len(cuts) == ranks else "stages"
    return Footprint(max(sizes), 0, f"{MODEL_STATE} of its {what}, on the rank with most")


def _channels(model: nn.Module, ranks: int) -> Footprint:
    """Return the footprint if all of a pair is divided, except for the second layer's bias."""
    divided = 0
    for pair in pairs(model):
        tensors = (tensor for _, tensor, _ in pair.divisions())
        divided += _count(tensor for tensor in tensors if isinstance(tensor, nn.Parameter))
    whole = _count(_trainable(model))
    rows = {layer.get_parameter("weight"): None for _, layer in row_layers(model)}
    vocabulary = _count(rows)
    kept = sum(-(-len(weight) // ranks) * weight[0].numel() for weight in rows)
    return Footprint(
        whole - divided - vocabulary + divided // ranks + kept,
        0,
        f"{MODEL_STATE}, with 1/{ranks} of paired layers",
    )


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
