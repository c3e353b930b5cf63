"""Claimed ranks and accelerators, compared with those that are described."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.forged_runs import describe
from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.trained_runs import HandmadeRun, course, job, started
from vflops.record.readout.contents import Contents
from vflops.results.check.device_rules import check_devices
from vflops.results.check.rule import Outcome

GPU = {"accelerator_kind": "cuda", "accelerator_0_model": "Test GPU"}
CPU = {"device": "cpu", "device_name": "Test CPU <1>"}


def outcome(run: HandmadeRun, ranks: int, described: dict[str, Any], **facts: Any) -> Outcome:
    """The verdict on a job of several ranks on a machine that is described."""
    write_system(run.folder)
    describe(run.folder.system_file, **described)
    run.plan(job(1, ranks=ranks), ceilings=MEASUREMENTS)
    run.attempt(1, 1000.0, started(ranks=ranks, **facts), *course(0.8)[1:], tells=False)
    run.end()
    return check_devices(Contents(run.folder))


@pytest.mark.parametrize(("ranks", "verdict"), [(2, "pass"), (3, "fail")])
def test_every_rank_needs_an_accelerator_of_its_node(
    handmade_run: HandmadeRun, ranks: int, verdict: str
) -> None:
    found = outcome(handmade_run, ranks, {"accelerators": 2, **GPU})
    assert found.verdict == verdict
    words = "job 1: 3 ranks ran on the machine, whose description has 2 accelerators"
    assert (found.evidence == words) is (verdict == "fail")


@pytest.mark.parametrize(("ranks", "verdict"), [(4, "pass"), (5, "fail")])
def test_every_rank_on_processors_needs_a_cpu(
    handmade_run: HandmadeRun, ranks: int, verdict: str
) -> None:
    found = outcome(handmade_run, ranks, {"logical_cpus": 4, "accelerators": 1}, **CPU)
    assert found.verdict == verdict
    words = "job 1: 5 ranks ran on the machine, whose description has 4 CPUs"
    assert (found.evidence == words) is (verdict == "fail")
