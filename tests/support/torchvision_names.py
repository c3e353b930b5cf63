"""The parameters of our detector under the names that torchvision gives them."""

from __future__ import annotations

from torch import Tensor, nn

NAMES = {
    "body.stem.0": "backbone.body.conv1",
    "body.stem.1": "backbone.body.bn1",
    "head.pyramid.lateral": "backbone.fpn.inner_blocks",
    "head.pyramid.output": "backbone.fpn.layer_blocks",
    "head.proposer.head.conv": "rpn.head.conv.0.0",
    "head.proposer.head.scores": "rpn.head.cls_logits",
    "head.proposer.head.deltas": "rpn.head.bbox_pred",
    "head.regions.head.first": "roi_heads.box_head.fc6",
    "head.regions.head.second": "roi_heads.box_head.fc7",
    "head.regions.head.scores": "roi_heads.box_predictor.cls_score",
    "head.regions.head.deltas": "roi_heads.box_predictor.bbox_pred",
}


def theirs_of(name: str) -> str:
    """The name of one of our parameters in torchvision's detector."""
    for ours, theirs in NAMES.items():
        if name.startswith(ours):
            rest = name.removeprefix(ours)
            if ours.startswith("head.pyramid"):
                _, number, leaf = rest.split(".")
                return f"{theirs}.{number}.0.{leaf}"
            return theirs + rest
    _, _, stage, block, rest = name.split(".", 4)
    return f"backbone.body.layer{int(stage) + 1}.{block}.{rest.replace('projection', 'downsample')}"


def for_theirs(ours: nn.Module) -> dict[str, Tensor]:
    """Our weights by torchvision's names; a region's features lie channels last with us."""
    weights = {theirs_of(name): tensor for name, tensor in ours.state_dict().items()}
    first = "roi_heads.box_head.fc6.weight"
    weights[first] = as_theirs(weights[first])
    return weights


def as_theirs(first: Tensor) -> Tensor:
    return first.reshape(-1, 7, 7, 256).permute(0, 3, 1, 2).flatten(1)
