"""The metrics file of a run that goes on, read by Prometheus' own parser."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.support.trained_runs import HandmadeRun, evaluated, job, progress, started
from vflops.errors import UsageError
from vflops.launch.controller import JobProgress
from vflops.record.files import atomic
from vflops.record.formats.job import SampleUnit
from vflops.run import metrics_file
from vflops.run.metrics_file import MetricsFile
from vflops.run.observer import RunObserver


def values(path: Path) -> dict[tuple[str, str], float]:
    """Every sample by its name, and its job or state."""
    return {
        (sample.name, sample.labels.get("job") or sample.labels.get("state") or ""): sample.value
        for family in parse(path.read_text())
        for sample in family.samples
    }


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_file, "MIN_INTERVAL_S", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_training_is_followed_from_its_events(handmade_run: HandmadeRun, tmp_path: Path) -> None:
    path = tmp_path / "vflops.prom"
    told: list[str] = []
    seen = RunObserver(event=lambda kind, data: told.append(kind))
    with MetricsFile(path) as metrics:
        watch = metrics.wrap(seen)
        watch.folder(handmade_run.folder)
        watch.job(job(1), " (1 of 2)", 2, 1000)
        for kind, data in (started(), progress(10, 0.5), evaluated(10, 0.7, evaluations=1)):
            watch.event(kind, data)
        found = values(path)
        assert found["vflops_job_loss", "1"] == 0.5  # an evaluation has none
        assert found["vflops_job_epoch", "1"] == 1.0
        assert found["vflops_job_quality", "1"] == 0.7
        # 1 000 samples in 10 steps of 1 s that wait 0.1 s each.
        assert found["vflops_job_samples_per_second", "1"] == pytest.approx(1000 / 11)
        assert found["vflops_job_flops", "1"] == pytest.approx(1000 * 1000 / 11)
        assert found["vflops_jobs", "running"] == found["vflops_jobs", "waiting"] == 1
        watch.event(*progress(12, 0.4, evaluations=1))
        assert values(path)["vflops_job_loss", "1"] == 0.4
        watch.event("end", {})
        assert values(path)["vflops_jobs", "ended"] == 1
        assert values(path)["vflops_job_loss", "1"] == 0.4
        assert found["vflops_run_active", ""] == 1
    assert values(path)["vflops_run_active", ""] == 0
    assert handmade_run.folder.record.id in path.read_text()
    assert told == ["job", "progress", "evaluation", "progress", "end"]


@pytest.mark.usefixtures("at_once")
def test_windows_of_tokens_are_also_counted_in_tokens(tmp_path: Path) -> None:
    path = tmp_path / "vflops.prom"
    text = job(1).data.model_copy(update={"unit": SampleUnit(name="tokens", count=64)})
    jobs = [
        JobProgress(job(1, data=text), state="running", samples=50, first_sample=10, work_s=2.0),
        JobProgress(job(2), state="running", samples=50, work_s=2.0),
    ]
    with MetricsFile(path) as metrics:
        metrics.wrap(RunObserver()).jobs(jobs)
        found = values(path)
    assert found["vflops_job_samples_per_second", "1"] == 20
    assert found["vflops_job_sample_units_per_second", "1"] == 20 * 64
    assert 'unit="tokens"' in path.read_text()
    assert ("vflops_job_sample_units_per_second", "2") not in found


@pytest.mark.usefixtures("at_once")
def test_jobs_side_by_side_are_counted_by_state(tmp_path: Path) -> None:
    path = tmp_path / "vflops.prom"
    states = ("running", "ended", "ended", "given up", "waiting")
    jobs = [JobProgress(job(number), state=state) for number, state in enumerate(states, 1)]
    with MetricsFile(path) as metrics:
        metrics.wrap(RunObserver()).jobs(jobs)
        found = values(path)
    counts = [found["vflops_jobs", state] for state in metrics_file.STATES]
    assert counts == [1, 1, 2, 1]


def test_it_is_not_written_more_often_than_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vflops.prom"
    written: list[Any] = []
    metrics = MetricsFile(path)
    monkeypatch.setattr(atomic, "write_text", lambda *what: written.append(what))
    for done in range(100):
        metrics.wrap(RunObserver()).progress("making data", done, 100)
    assert written == []
    monkeypatch.setattr(metrics_file, "MIN_INTERVAL_S", -1.0)
    metrics.wrap(RunObserver()).progress("making data", 1, 100)
    assert len(written) == 1


def test_a_file_that_cannot_be_begun_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        MetricsFile(tmp_path / "nowhere" / "vflops.prom")


@pytest.mark.usefixtures("at_once")
def test_a_file_that_fails_later_costs_a_line_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "here"
    place.mkdir()
    with MetricsFile(place / "vflops.prom") as metrics:
        (place / "vflops.prom").unlink()
        place.rmdir()
        for done in range(3):
            metrics.wrap(RunObserver()).progress("making data", done, 3)
    assert capsys.readouterr().err.count("the metrics file cannot be written") == 1


@pytest.mark.usefixtures("at_once")
def test_figures_that_cannot_be_told_cost_a_line_and_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetricsFile(tmp_path / "vflops.prom") as metrics:
        watch = metrics.wrap(RunObserver())
        watch.job(job(1), "", 1, None)
        watch.event(*started())
        watch.event(*progress(12, math.nan))
        assert math.isnan(values(tmp_path / "vflops.prom")["vflops_job_loss", "1"])
        monkeypatch.setattr(metrics_file, "prometheus", lambda families: 1 / 0)
        for _ in range(3):
            watch.event(*progress(13, 0.1))
    assert (
        capsys.readouterr().err.count("the metrics file cannot be written: ZeroDivisionError") == 1
    )
