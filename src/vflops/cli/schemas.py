"""JSON Schemas of the file formats; ``python -m vflops.cli.schemas docs/schemas`` writes them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from vflops.data.climate.channel_statistics import Statistics
from vflops.data.climate.check_years import ClimateReport
from vflops.data.climate.frame_index import FrameIndex
from vflops.data.images.check_images import ImageReport
from vflops.data.images.image_index import ImageIndex
from vflops.data.text.check_text import TextReport
from vflops.data.text.token_index import TokenIndex
from vflops.publish.ranking.ranking_document import RankingDocument
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.folder import RunRecord
from vflops.record.formats.challenge import Challenge
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.measured_node import MeasuredLinks, MeasuredNode
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.node import NodeRecord
from vflops.record.formats.system import SystemRecord
from vflops.record.formats.telemetry import Header
from vflops.record.log.events import EventLine
from vflops.results.check.findings import Findings
from vflops.results.evidence.anonymous_record import AnonymousRecord
from vflops.results.evidence.audit_record import AuditRecord
from vflops.results.evidence.manifest import Manifest
from vflops.results.score.score_file import Score
from vflops.studies.accept.acceptance import Acceptance
from vflops.studies.compare.comparison import Comparison
from vflops.studies.history.history_data import HistoryRecord
from vflops.studies.predict.measured_points import MeasuredSteps
from vflops.studies.reproduce.reproduction import Reproduction
from vflops.studies.scale.scale_result import Scale
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import Candidate

DOCUMENTS: tuple[type[Document], ...] = (
    RunRecord,
    Challenge,
    SystemRecord,
    Graph,
    JobRecord,
    MeasuredNode,
    MeasuredLinks,
    NodeRecord,
    Header,
    ImageIndex,
    ImageReport,
    FrameIndex,
    ClimateReport,
    Statistics,
    TokenIndex,
    TextReport,
    Score,
    Findings,
    Manifest,
    AnonymousRecord,
    AuditRecord,
    Reproduction,
    Scale,
    MeasuredSteps,
    Comparison,
    Acceptance,
    HistoryRecord,
    RankingDocument,
    Architecture,
    Candidate,
    SearchLedger,
)


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of all file formats, by file name."""
    schemas: dict[str, dict[str, Any]] = {}
    for document in DOCUMENTS:
        schema = document.model_json_schema()
        tag = f"{document.schema_name}/{document.schema_version}"
        schema["properties"]["schema"] = {"const": tag}
        schema["required"] = ["schema", *schema.get("required", [])]
        schemas[f"{document.schema_name}.json"] = schema
    schemas["vflops.event.json"] = EventLine.model_json_schema()
    schemas["vflops.measurement.json"] = Measurement.model_json_schema()
    return schemas


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas to ``folder`` and return their paths."""
    atomic.make_folder(folder)
    for name, schema in schemas().items():
        atomic.write_json(folder / name, schema)
    return sorted(folder / name for name in schemas())


if __name__ == "__main__":
    for path in write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schemas")):
        print(path)
