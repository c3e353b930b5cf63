"""Ensembles with JAX: from the command to score, checks and report, here and on several nodes."""

from __future__ import annotations

import pytest

from tests.support.ensemble_runs import TRAIN, VALIDATION, ended, started
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Evaluated, Finished, JobStarted
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score

pytestmark = pytest.mark.frameworks
pytest.importorskip("jax", reason="pip install 'vflops[jax]'")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two models of two epochs."""
    directory = tmp_path_factory.mktemp("ensemble")
    process = started(directory, "--models", "2", "--framework", "jax")
    return ended(process, directory, 0, 1)  # 1 if other programs run at the same time


def test_both_models_are_trained_with_jax_on_all_samples(ensemble: RunFolder) -> None:
    history = ensemble.history()
    for job in (1, 2):
        (begun,) = history.events("job", job=job)
        assert begun.payload(JobStarted).framework == "jax"
        (finished,) = history.events("finished", job=job)
        assert finished.payload(Finished).samples == 2 * TRAIN
        for event in history.events("evaluation", job=job):
            assert event.payload(Evaluated).evaluated == VALIDATION


def test_they_are_scored_together(ensemble: RunFolder) -> None:
    (scored,) = score(Contents(ensemble)).ensembles
    assert (scored.jobs, scored.partial) == ((1, 2), False)
    assert scored.vflops is not None and scored.vflops > 0
    assert [size.models for size in scored.sizes] == [1, 2]
    assert [moment.epoch for moment in scored.moments] == [1, 2]


def test_the_checks_pass(ensemble: RunFolder) -> None:
    failed = {failure.rule for failure in Findings.read(ensemble.findings_file).failures}
    assert failed <= {"quiet"}  # other programs may run at the same time


def test_the_report_names_the_framework(ensemble: RunFolder) -> None:
    (begun,) = ensemble.history().events("job", job=1)
    page = ensemble.report_file.read_text()
    assert f"JAX {begun.payload(JobStarted).framework_version}" in page
