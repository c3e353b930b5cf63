"""What an archive tells about its author."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.accept_runs import record_host
from tests.support.ranking_runs import submit
from vflops.cli import main
from vflops.publish.evidence.disclosure import disclosures
from vflops.record.folder import RunFolder
from vflops.results.evidence.manifest import write_manifest


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = record_host(submit(tmp_path / "runs"), "node17")
    path = folder.job_file(1)
    data = json.loads(path.read_text())
    data["data"]["path"] = "/home/alice/data"
    path.write_text(json.dumps(data))
    (folder.attempt_folder(1, 0) / "rank-0.log").write_text("hello")
    (folder.path / "page.html").write_text("not archived")
    return folder


def test_paths_host_names_and_output_are_listed(run: RunFolder) -> None:
    assert disclosures(run) == [
        "paths: /home/alice/data",
        "host names: node17, node1",
        "scripts and what programs printed: 1 files *.log, *.sh",
    ]


def test_long_lists_are_cut(run: RunFolder) -> None:
    path = run.job_file(1)
    data = json.loads(path.read_text())
    data["settings"]["mounts"] = [f"/scratch/{number}" for number in range(9)]
    path.write_text(json.dumps(data))
    assert disclosures(run)[0].endswith("/scratch/3 and 5 more")


def test_archive_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = record_host(submit(tmp_path / "runs"), "node17")
    folder.manifest_file.unlink()
    write_manifest(folder)
    monkeypatch.setattr(sys, "argv", ["vflops", "archive", str(folder.path)])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "its readers see host names: node17, node1" in capsys.readouterr().err
