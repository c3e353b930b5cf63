"""Which graphs can be rebuilt, and by which function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.record.files.document import first_fault
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.results.rebuild.classifier_graph import classifier_graph, search_graph
from vflops.results.rebuild.detector_graph import detector_graph
from vflops.results.rebuild.language_graph import language_graph
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.validated_settings import ValidatedSettings, validated_settings

_REBUILD: Mapping[str, Callable[[str, Any, DataFacts], Graph]] = {
    "image-classification": classifier_graph,
    "extreme-weather": detector_graph,
    "automl": search_graph,
    "language-model": language_graph,
}
"""The workloads of this package whose networks are ours; no other package can replace them."""


def can_be_rebuilt(record: JobRecord) -> bool:
    """Whether the graph of a job follows from its settings, without torch and without its code."""
    return record.workload in _REBUILD


def rebuilt_graph(record: JobRecord) -> Graph | None:
    """Return the graph that follows from the settings and the data facts of a job.

    None if its network is too large for an ``Architecture``. Raise ``FolderError`` if the settings
    are invalid or facts of the data are missing.
    """
    where = f"jobs/{record.job}/job.json"
    try:
        settings = validated_settings(workload(record.workload).settings, record.settings)
    except ValidationError as error:
        raise FolderError(f"{where} has invalid settings: {first_fault(error)}") from error
    try:
        return _rebuilt(record.workload, settings, tuple(sorted(record.data.facts.items())))
    except KeyError as error:
        missing = f"does not say the {error.args[0]} of the data, which its network depends on"
        raise FolderError(f"{where} {missing}") from error
    except ValidationError:
        return None


@lru_cache(maxsize=16)
def _rebuilt(
    name: str, settings: ValidatedSettings, facts: tuple[tuple[str, int | float | str], ...]
) -> Graph:
    """Return a graph, rebuilt and counted once for all jobs and runs with equal settings."""
    unknown: dict[str, Any] = {"path": "", "synthetic": None, "fingerprint": ""}
    data = DataFacts(**unknown, train=0, validation=0, facts=dict(facts))
    return _REBUILD[name](name, settings.settings, data)
