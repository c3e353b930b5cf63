"""The exported JSON Schemas are those of the code, and real files conform to them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.paths import DOCS
from vflops.cli.schemas import schemas, write_schemas
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score

SCHEMAS = DOCS / "schemas"
CURRENT = schemas()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schemas of the code."""
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


@pytest.mark.parametrize("name", sorted(CURRENT))
def test_docs_hold_the_current_schema(name: str, written: Path) -> None:
    hint = "run: python -m vflops.cli.schemas docs/schemas"
    assert (SCHEMAS / name).read_text() == (written / name).read_text(), hint


def test_files_of_a_run_meet_their_schemas(run_folder: RunFolder) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    files = {
        "vflops.run.json": run_folder.path / "run.json",
        "vflops.system.json": run_folder.system_file,
        "vflops.graph.json": run_folder.graph_files[0],
        "vflops.score.json": run_folder.score_file,
    }
    for name, path in files.items():
        jsonschema.validate(json.loads(path.read_text()), CURRENT[name])
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    for line in log.read_text().splitlines():
        event = json.loads(line)
        jsonschema.validate(event, CURRENT["vflops.event.json"])
        if event["kind"] == "measurement":
            jsonschema.validate(event["data"], CURRENT["vflops.measurement.json"])
