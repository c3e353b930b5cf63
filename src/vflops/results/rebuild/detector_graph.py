"""The graph of the detector of extreme weather: every operator that a convention counts.

The order and the shapes are those of ``vflops.models.detection``. What runs without gradients, such
as the choice of proposals, and what only moves data is left out: no convention counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from vflops.counting.graph_builder import GraphBuilder
from vflops.data.climate.field_names import CHANNELS, CLASSES
from vflops.models.detection.detector_design import DetectorDesign
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts
from vflops.workloads.automl.architecture import architecture_cost, starting_networks
from vflops.workloads.extreme_weather.settings import WeatherSettings

_BOX = 4
"""The numbers of a box."""
_LEVEL_OF_A_REGION = (
    *("sub", "clamp", "sub", "clamp", "mul", "sqrt"),  # its side
    *("div", "log2", "add", "add", "floor", "clamp"),  # equation 1 of the FPN paper
)


def detector_graph(name: str, settings: WeatherSettings, data: DataFacts) -> Graph:
    """Return the graph of one rank's batch, as ``ExtremeWeather`` is captured."""
    design, batch = settings.network, settings.train.rank_batch
    frame = (len(CHANNELS), int(data.facts["height"]), int(data.facts["width"]))
    builder = GraphBuilder()
    image = builder.value((batch, *frame), grad=False)
    levels = _pyramid(builder, design, _stages(builder, design, image))
    losses = [*_proposal_losses(builder, design, levels), *_region_losses(builder, design, levels)]
    total = builder.simple("reduction", "sum.default", "", losses, (), "sum")
    return builder.graph(name, batch, [image], [total])


def _stages(builder: GraphBuilder, design: DetectorDesign, image: int) -> list[int]:
    """Return the outputs of the stages of the ResNet that the pyramid is built on."""
    channels, height, width = builder.shape(image)[1:]
    network = starting_networks.resnet(
        design.blocks, (channels, height, width), 1, width=design.width, stem=design.stem
    )
    *trunk, _, _ = network.layers  # without the mean of each channel and the class scores
    results = architecture_cost.add_layers(builder, trunk, image)
    blocks = [layer.id for layer in trunk if layer.kind == "add"]
    ends = list(accumulate(design.blocks))
    return [results[blocks[ends[stage - 1] - 1]] for stage in design.stages]


def _pyramid(builder: GraphBuilder, design: DetectorDesign, stages: Sequence[int]) -> list[int]:
    """Return the levels, from fine to coarse."""
    coarser: int | None = None
    levels: list[int] = []
    for number, stage in reversed(list(enumerate(stages))):
        scope = f"head.pyramid.{{}}.{number}"
        level = builder.convolution(scope.format("lateral"), stage, design.channels, 1, bias=True)
        if coarser is not None:
            shape = builder.shape(level)
            pair = [level, coarser]
            level = builder.simple("elementwise", "add.Tensor", "head.pyramid", pair, shape, "add")
        output = scope.format("output")
        levels.insert(0, builder.convolution(output, level, design.channels, 3, bias=True))
        coarser = level
    if design.pooled:
        levels.append(builder.max_pool("head.pyramid", levels[-1], 1, 2))
    return levels


def _proposal_losses(
    builder: GraphBuilder, design: DetectorDesign, levels: Sequence[int]
) -> list[int]:
    """Return the losses of the scores and of the boxes of all anchors."""
    scope, anchors = "head.proposer.head", len(design.anchors[0])
    scores, deltas = [], []
    for level in levels:
        hidden = builder.convolution(f"{scope}.conv", level, design.channels, 3, bias=True)
        hidden = builder.relu(scope, hidden)
        scores.append(builder.convolution(f"{scope}.scores", hidden, anchors, 1, bias=True))
        deltas.append(builder.convolution(f"{scope}.deltas", hidden, anchors * _BOX, 1, bias=True))
    return [_mean(builder, scores), _mean(builder, deltas)]


def _region_losses(
    builder: GraphBuilder, design: DetectorDesign, levels: Sequence[int]
) -> list[int]:
    """Return the losses of the classes and of the boxes of the regions of the second stage."""
    scope, batch = "head.regions", builder.shape(levels[0])[0]
    level = builder.value((batch, design.regions), grad=False)
    for name in _LEVEL_OF_A_REGION:
        shape = builder.shape(level)
        level = builder.simple("elementwise", name, scope, [level], shape, name, grad=False)
    features = design.channels * design.region_size**2
    pooled = [*levels[: len(design.stages)], level]
    rows = (batch * design.regions, features)
    hidden = builder.simple("other", "roi_align", scope, pooled, rows)
    for name in ("first", "second"):
        hidden = builder.relu(scope, builder.dense(f"{scope}.head.{name}", hidden, design.hidden))
    classes = len(CLASSES) + 1  # with the background
    deltas = builder.dense(f"{scope}.head.deltas", hidden, classes * _BOX)
    scores = builder.dense(f"{scope}.head.scores", hidden, classes)
    return [_mean(builder, [builder.cross_entropy(scores)]), _mean(builder, [deltas])]


def _mean(builder: GraphBuilder, parts: Sequence[int]) -> int:
    """Return a sum divided by the number of its terms."""
    total = builder.simple("reduction", "sum.default", "head", parts, (), "sum")
    return builder.simple("elementwise", "div.Tensor", "head", [total], (), "div")
