"""Rules of data: what a workload of another package says about its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.trained_runs import HandmadeRun, job
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.data_rules import check_synthetic_flags
from vflops.results.check.rule import Outcome
from vflops.workloads.contract import registry


def record(number: int, workload: str, *, synthetic: bool | None) -> JobRecord:
    """A job without ``--data``."""
    base = job(number)
    data = base.data.model_copy(update={"synthetic": synthetic})
    return base.model_copy(update={"workload": workload, "data": data})


@pytest.fixture
def other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """``digits`` is installed, and has data of its own."""
    spec = replace(registry.workload("image-classification"), name="digits", origin="vflops-digits")
    known = {**registry.workloads(), "digits": spec}
    monkeypatch.setattr(registry, "workloads", lambda: known)


def judged(run: HandmadeRun, *records: JobRecord) -> Outcome:
    run.plan(*records)
    return check_synthetic_flags(Contents(run.folder))


@pytest.mark.parametrize("synthetic", [True, False])
def test_another_packages_workload_states_what_its_data_is(
    handmade_run: HandmadeRun, other_package: None, synthetic: bool
) -> None:
    outcome = judged(handmade_run, record(1, "digits", synthetic=synthetic))
    assert outcome.verdict == "not applicable"
    stated = "synthetic" if synthetic else "not synthetic"
    assert f"digits states that its data is {stated}" in outcome.evidence


def test_that_of_vflops_is_synthetic_without_data(
    handmade_run: HandmadeRun, other_package: None
) -> None:
    own, other = (
        record(1, "image-classification", synthetic=False),
        record(2, "digits", synthetic=False),
    )
    outcome: Any = judged(handmade_run, other, own)
    assert (outcome.verdict, outcome.where) == ("fail", "jobs/1/job.json")


def test_one_that_is_not_installed_is_not_accused(handmade_run: HandmadeRun) -> None:
    outcome = judged(handmade_run, record(1, "elsewhere", synthetic=False))
    assert outcome.verdict == "not applicable"
