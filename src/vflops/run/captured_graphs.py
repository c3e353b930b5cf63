"""Graphs that an earlier plan captured, so that the next plan need not import torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import vflops
from vflops.config.training import WorkloadSettings
from vflops.errors import VflopsError
from vflops.record.files import atomic
from vflops.record.files.cache import cache_entry
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, DeclaredWork
from vflops.workloads.contract.spec import WorkloadSpec

PACKAGE = Path(__file__).parents[1]
_FOLDER = "planned-graphs"
_MAX_KEPT = 64

Work = Graph | DeclaredWork


def counted_before(
    spec: WorkloadSpec, section: WorkloadSettings, data: DataFacts, capture: Callable[[], Work]
) -> Work:
    """Return the work of a model from the cache, or else from ``capture``, and cache its graph.

    Only workloads of vflops itself are cached: an entry belongs to exactly these settings, this
    data, and the present files of this package and version of torch. A run always captures anew.
    """
    if spec.origin != "vflops":
        return capture()
    path = None
    with suppress(VflopsError, OSError):
        path = cache_entry(_FOLDER) / f"{_key(spec, section, data)}.json"
        if path.is_file():
            return Graph.read(path)
    work = capture()
    if path is not None and isinstance(work, Graph):
        with suppress(VflopsError, OSError):  # a plan needs no cache
            atomic.make_folder(path.parent)
            work.write(path)
            _remove_oldest(path.parent)
    return work


def _key(spec: WorkloadSpec, section: WorkloadSettings, data: DataFacts) -> str:
    """Return a hash of everything that the graph depends on."""
    status = [(path, path.stat()) for path in sorted(PACKAGE.rglob("*.py"))]
    content = [
        vflops.__version__,
        metadata.version("torch"),
        [(str(path), file.st_size, file.st_mtime_ns) for path, file in status],
        spec.name,
        section.model_dump(mode="json"),
        data.model_dump(mode="json"),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _remove_oldest(folder: Path) -> None:
    graphs = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    for path in graphs[:-_MAX_KEPT]:
        path.unlink(missing_ok=True)
