"""The lost attempts of a run, in the report and in what ``vflops score`` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_runs import cluster_run
from tests.support.forged_runs import Forger
from tests.support.sample_parts import Vflops
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobLost
from vflops.record.readout.contents import Contents
from vflops.results.many_trainings import MANY
from vflops.results.score.lost_attempts import lost_line, lost_rows

DOWN = JobLost(
    job=2, reason="slurm: node n2 is down: <board>", where="n2, n3", suspects=("n2",), hung=False
)
LIMIT = JobLost(job=3, reason="slurm: TIMEOUT", where="n4", excused=True)


def with_losses(parent: Path, patch: pytest.MonkeyPatch, *losses: JobLost) -> RunFolder:
    """A run whose controller recorded these losses."""
    forger = Forger(cluster_run(parent, patch))
    log = forger.logs[forger.attempt(0) / "events.jsonl"]
    for loss in losses:
        data = loss.model_dump(mode="json")
        log.insert(-1, {**log[-2], "kind": "job-lost", "data": data})
    return forger.sealed()


def test_the_report_and_the_score_name_node_reason_and_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflops: Vflops
) -> None:
    folder = with_losses(tmp_path, monkeypatch, DOWN, LIMIT)
    contents = Contents(folder)
    first, second = lost_rows(contents)
    assert first[1:] == ("2", "n2", "slurm: node n2 is down: <board>", "an attempt")
    assert second[1:] == ("3", "n4", "slurm: TIMEOUT", "no attempt")
    write_report(contents)
    page = (folder.path / "report.html").read_text()
    assert "2 attempts at jobs were lost." in page
    assert "slurm: node n2 is down: &lt;board&gt;" in page
    printed = vflops("score", folder.path).stdout
    assert "job 2 on n2, which costs an attempt: slurm: node n2 is down: <board>" in printed
    assert "job 3 on n4, which costs no attempt: slurm: TIMEOUT" in printed


def test_a_run_without_losses_has_no_such_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = Contents(with_losses(tmp_path, monkeypatch))
    write_report(contents)
    assert (lost_rows(contents), lost_line(contents)) == ([], "")
    assert "Lost attempts" not in (contents.folder.path / "report.html").read_text()


def test_many_losses_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = Contents(with_losses(tmp_path, monkeypatch, *[DOWN] * 40))
    assert len(lost_rows(contents)) == MANY
    assert lost_line(contents) == "40 attempts at jobs were lost; the first 16 are listed"
