"""The file formats as JSON Schemas: ``python -m vflops.schemas docs/schemas`` writes them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from vflops.automl.architecture.graph import Architecture
from vflops.automl.record import Candidate
from vflops.automl.replay import SearchLedger
from vflops.check.record import Findings
from vflops.compare.record import Comparison
from vflops.data.climate.check import ClimateReport
from vflops.data.climate.index import FramesIndex
from vflops.data.climate.statistics import Statistics
from vflops.data.images.check import DataReport
from vflops.data.images.index import PackedIndex
from vflops.evidence.manifest import Manifest
from vflops.evidence.reproduction import Reproduction
from vflops.flops.graph import Graph
from vflops.history.record import HistoryRecord
from vflops.predict.measured import MeasuredSteps
from vflops.record import atomic
from vflops.record.events import EventLine
from vflops.record.folder import RunRecord
from vflops.record.measurement import Measurement
from vflops.record.node import NodeRecord
from vflops.record.schema import Document
from vflops.record.training import JobRecord
from vflops.scale.result import Scale
from vflops.score.record import Score
from vflops.system.record import SystemRecord
from vflops.telemetry.series import Header

DOCUMENTS: tuple[type[Document], ...] = (
    RunRecord,
    SystemRecord,
    Graph,
    JobRecord,
    NodeRecord,
    Header,
    PackedIndex,
    DataReport,
    FramesIndex,
    ClimateReport,
    Statistics,
    Score,
    Findings,
    Manifest,
    Reproduction,
    Scale,
    MeasuredSteps,
    Comparison,
    HistoryRecord,
    Architecture,
    Candidate,
    SearchLedger,
)


def schemas() -> dict[str, dict[str, Any]]:
    """Every format by the name of its file."""
    found: dict[str, dict[str, Any]] = {}
    for document in DOCUMENTS:
        schema = document.model_json_schema()
        tag = f"{document.schema_name}/{document.schema_version}"
        schema["properties"]["schema"] = {"const": tag}
        schema["required"] = ["schema", *schema.get("required", [])]
        found[f"{document.schema_name}.json"] = schema
    found["vflops.event.json"] = EventLine.model_json_schema()
    found["vflops.measurement.json"] = Measurement.model_json_schema()
    return found


def export(folder: Path) -> list[Path]:
    """Write all schemas into ``folder``."""
    atomic.make_folder(folder)
    for name, schema in schemas().items():
        atomic.write_json(folder / name, schema)
    return sorted(folder / name for name in schemas())


if __name__ == "__main__":
    for path in export(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")):
        print(path)
