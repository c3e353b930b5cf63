"""The graph of image classification, and that of the network that a search starts from."""

from __future__ import annotations

from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts
from vflops.workloads.automl.architecture import architecture_cost, starting_networks
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.proposer import first_network
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.image_classification.settings import ImageSettings

_COLOURS = 3


def classifier_graph(name: str, settings: ImageSettings, data: DataFacts) -> Graph:
    """Return the graph of one rank's batch, as ``ImageClassification`` is captured."""
    network = starting_networks.resnet(
        settings.network.blocks,
        (_COLOURS, settings.size, settings.size),
        int(data.facts["classes"]),
        width=settings.network.width,
        stem=settings.network.stem,
    )
    return _trained(name, network, settings)


def search_graph(name: str, settings: AutomlSettings, data: DataFacts) -> Graph:
    """Return the graph of one rank's batch on the first network of a search."""
    return _trained(name, first_network(settings, data), settings)


def _trained(name: str, network: Architecture, settings: ImageSettings) -> Graph:
    batch, smoothing = settings.train.rank_batch, settings.label_smoothing
    return architecture_cost.graph(network, batch, name=name, label_smoothing=smoothing)
