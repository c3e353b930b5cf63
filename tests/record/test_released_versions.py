"""Run folders of every released version are read by this one, as docs/reference/formats.md says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import vflops
from tests.support.golden_runs import GOLDEN, extracted, name_of
from tests.support.paths import DOCS, ROOT
from tools.store_release import FORMATS, digest, formats, store
from vflops.record.folder import RunFolder, RunRecord

RELEASED: dict[str, Any] = json.loads((ROOT / "tests" / "golden" / FORMATS).read_text())


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stored")
    return {name_of(archive): extracted(archive, folder) for archive in GOLDEN}


@pytest.mark.parametrize("name", [name_of(archive) for archive in GOLDEN])
def test_a_stored_run_folder_is_read(stored: dict[str, Path], name: str) -> None:
    run = vflops.Run(stored[name])
    recorded = json.loads((run.path / "score.json").read_text())
    assert run.complete
    assert recorded["run"] == run.id
    speeds = [training["speed"]["flops"] for training in recorded["trainings"]]
    speeds += [item["flops"] for item in recorded["ensembles"]]
    speeds += [item["ops_per_s"] for item in recorded["searches"]]
    # Before 0.3.0, operations per sample were rounded down.
    assert [row["flops"] for row in run.score()] == pytest.approx(speeds, rel=4e-7)
    logs = run.path.glob("jobs/*/*/events.jsonl")
    assert len(run.events()) == sum(log.read_bytes().count(b"\n") for log in logs)
    assert len(run.telemetry()["utc"]) > 0
    verdicts = {row["rule"]: row["verdict"] for row in run.findings()}
    assert (verdicts["schema"], verdicts["score"]) == ("pass", "pass")


@pytest.mark.parametrize(
    ("part", "name", "factor"),
    [("speed", "flops", 1.0001), ("quality", "achieved", 1.0000001), ("phases", "training", 1.001)],
)
def test_a_changed_value_in_the_score_of_an_earlier_version_is_found(
    stored: dict[str, Path], tmp_path: Path, part: str, name: str, factor: float
) -> None:
    run = shutil.copytree(next(iter(stored.values())), tmp_path / "run")
    path = run / "score.json"
    score = json.loads(path.read_text())
    score["trainings"][0][part][name] *= factor
    path.write_text(json.dumps(score))
    verdicts = {row["rule"]: row["verdict"] for row in vflops.Run(run).findings()}
    assert verdicts["score"] == "fail"


def test_every_release_has_stored_run_folders_and_formats(stored: dict[str, Path]) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = set(re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.M))
    released = {version for version in versions if number(version) < number(vflops.__version__)}
    assert "0.1.0" in released
    assert released <= {vflops.Run(path).version for path in stored.values()}
    assert released <= set(RELEASED)


def test_a_changed_format_has_a_new_version_of_the_run_folder() -> None:
    """Otherwise an older release would call a newer file damaged, instead of asking to upgrade."""
    earlier = [version for version in RELEASED if number(version) < number(vflops.__version__)]
    last = RELEASED[max(earlier, key=number)]
    changed = {
        name for name, found in formats()["digests"].items() if found != last["digests"].get(name)
    }
    assert RunRecord.schema_version > last["version"] or not changed, (
        f"{sorted(changed)} changed since the last release: raise RunRecord.schema_version"
    )
    assert RunRecord.schema_version <= last["version"] + 1


def test_texts_of_a_schema_are_no_change_but_fields_are() -> None:
    schema = {"title": "A", "properties": {"title": {"type": "string", "description": "B"}}}
    assert digest(schema) == digest({"properties": {"title": {"type": "string"}}})
    assert digest(schema) != digest({"properties": {"title": {"type": "integer"}}})
    assert digest(schema) != digest({"properties": {}})


def test_the_documented_formats_are_those_of_the_releases() -> None:
    page = (DOCS / "reference" / "formats.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `vflops\.run/(\d+)` \| (\d+\.\d+) ", page, re.M))
    expected = {str(entry["version"]): version for version, entry in RELEASED.items()}
    expected[str(RunRecord.schema_version)] = vflops.__version__
    assert rows == {format: version.rpartition(".")[0] for format, version in expected.items()}


def test_a_release_is_stored_and_read_again(run_folder: RunFolder, tmp_path: Path) -> None:
    (run_folder.path / "report.html").write_text("a page")
    archive = store(run_folder.path, "suite", tmp_path)
    assert archive == tmp_path / vflops.__version__ / "suite.tar.xz"
    run = vflops.Run(extracted(archive, tmp_path))
    assert run.complete
    assert run.figures() == vflops.Run(run_folder.path).figures()
    assert not (run.path / "report.html").exists()
    known = json.loads((tmp_path / FORMATS).read_text())
    assert known == {vflops.__version__: formats()}


def test_only_a_run_of_this_version_is_stored(stored: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"was made by vflops 0\.1\.0, not by"):
        store(stored["ensemble"], "ensemble", tmp_path)
