"""What a rank keeps of a model in the mode that is asked for; found out before ranks start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from torch import nn

from vflops.config.training import TrainSettings
from vflops.counting.meta_device import on_meta
from vflops.train.parallel.channel_pairs import check_pairs, pairs
from vflops.train.parallel.cut import StageCut, cut
from vflops.train.parallel.footprint import HELD, Footprint
from vflops.workloads.contract.workload import Workload


def held(workload: Workload, name: str, settings: TrainSettings) -> Footprint:
    """The most that a rank keeps of ``workload``'s model, if ranks can share it so.

    A model with fewer layers than stages is refused, and channels that ranks cannot divide.
    """
    parallel, sharing = settings.parallel, settings.ranks // settings.shares
    model = on_meta(workload.model, name)
    if parallel.mode == "sharded":
        return _sharded(model, settings)
    if parallel.cuts_layers:
        return _stages(model, cut(workload, settings, name), sharing)
    if parallel.inner == "model":
        check_pairs(model, sharing, name)
        return _channels(model, sharing)
    return Footprint(_numbers(_trained(model)))


def _sharded(model: nn.Module, settings: TrainSettings) -> Footprint:
    """Rows of everything, the first rank's; a block and its gradients are whole while it computes.

    What is in no block is gathered once for a step. Gradients of a batch in parts add up whole.
    """
    from vflops.train.parallel.sharded_parallel import blocks

    ranks = settings.ranks
    rows = [(each.shape[0] if each.dim() else 1, each.numel()) for each in _trained(model)]
    own = sum(-(-count // ranks) * (numbers // count) for count, numbers in rows)
    sizes = [_numbers(_trained(block)) for block in blocks(model)]
    whole = _numbers(_trained(model))
    gathered = whole - sum(sizes) + max(sizes, default=0)
    if settings.accumulate > 1:
        return Footprint(
            own, gathered + whole, f"1/{ranks} of {HELD}, the largest block and gradients"
        )
    return Footprint(own, 2 * gathered, f"1/{ranks} of {HELD}, and the largest block")


def _stages(model: nn.Module, cuts: Sequence[StageCut], ranks: int) -> Footprint:
    """The rank whose stages have the most; a rank has every ``ranks``-th of them."""
    sizes = []
    for rank in range(ranks):
        uses = frozenset[str]().union(*(each.uses for each in cuts[rank::ranks]))
        named = model.named_parameters()
        own = [each for name, each in named if not uses.isdisjoint(_ways(name))]
        sizes.append(_numbers(own))
    stage = "stage" if len(cuts) == ranks else "stages"
    return Footprint(max(sizes), 0, f"{HELD} of its {stage}, where they are most")


def _channels(model: nn.Module, ranks: int) -> Footprint:
    """Of both layers of a pair a part, but for the second one's bias; of all else the whole."""
    divided = 0
    for pair in pairs(model):
        *before, second = pair.layers
        parts = [each for layer in before for each in layer.parameters(recurse=False)]
        divided += _numbers([*parts, second.get_parameter("weight")])
    whole = _numbers(_trained(model))
    return Footprint(whole - divided + divided // ranks, 0, f"{HELD}, of paired layers 1/{ranks}")


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [each for each in module.parameters() if each.requires_grad]


def _numbers(parameters: Iterable[nn.Parameter]) -> int:
    return sum(each.numel() for each in parameters if each.requires_grad)


def _ways(name: str) -> list[str]:
    """``a.b.weight`` and the modules that it is in: a, a.b."""
    return list(accumulate(name.split("."), "{}.{}".format))
