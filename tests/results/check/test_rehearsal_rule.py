"""Ranks that shared a device are found, whatever the run says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.trained_runs import HandmadeRun, course, job, started
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.rehearsal_rule import check_rehearsal
from vflops.results.check.rule import Outcome

Place = dict[str, Any]


def gpu(id: str | None, device: str = "cuda:0", node: str = "n1") -> Place:
    return {"node": node, "device": device, "id": id, "cores": "ff"}


def cpu(cores: str, node: str = "n1") -> Place:
    return {"node": node, "device": "cpu", "id": None, "cores": cores}


def outcome(
    run: HandmadeRun,
    *jobs: tuple[float, Sequence[Place]],
    rehearse: bool = False,
    tell: bool = False,
    ranks: int | None = None,
) -> Outcome:
    """The verdict on jobs that began at some time, with the places of their ranks."""
    write_system(run.folder)
    settings = run.folder.record.settings
    launch = settings.launch.model_copy(update={"rehearse": rehearse})
    record = run.folder.record.model_copy(
        update={"settings": settings.model_copy(update={"launch": launch})}
    )
    record.write(run.folder.path / "run.json")
    run.folder = RunFolder(run.folder.path, record)
    numbered = list(enumerate(jobs, start=1))
    run.plan(
        *(job(k, ranks=len(places) or 2) for k, (_, places) in numbered), ceilings=MEASUREMENTS
    )
    for number, (began_s, places) in numbered:
        notes = course(0.8)[1:]
        number_of = len(places) if ranks is None else ranks
        begun = started(ranks=number_of, places=list(places), rehearsal=tell)
        run.attempt(number, began_s, begun, *notes, tells=False)
    run.end()
    return check_rehearsal(Contents(run.folder))


@pytest.mark.parametrize(
    "jobs",
    [
        [(1000.0, [gpu("A"), gpu("B", "cuda:1")])],
        [(1000.0, [gpu("A")]), (1000.0, [gpu("B")])],  # each sees its own as cuda:0
        [(1000.0, [gpu("A")]), (2000.0, [gpu("A")])],  # one after the other
        [(1000.0, [gpu(None)]), (1000.0, [gpu(None)])],  # not known to be the same
        [(1000.0, [cpu("1"), cpu("2")])],
        [(1000.0, [cpu("3"), cpu("3")])],  # not bound
        [(1000.0, [cpu("1")]), (1000.0, [cpu("1", "n2")])],
        [(1000.0, [cpu("1")]), (2000.0, [cpu("1")])],
    ],
)
def test_ranks_with_devices_of_their_own_pass(
    handmade_run: HandmadeRun, jobs: list[tuple[float, list[Place]]]
) -> None:
    found = outcome(handmade_run, *jobs)
    assert found.verdict == "pass", found.evidence


@pytest.mark.parametrize(
    ("jobs", "evidence"),
    [
        (
            [(1000.0, [gpu("A"), gpu("A")])],
            "rank 0 of job 1 and rank 1 of job 1 shared cuda:0 of n1 (A)",
        ),
        (
            [(1000.0, [gpu(None), gpu(None)])],
            "rank 0 of job 1 and rank 1 of job 1 shared cuda:0 of n1",
        ),
        (
            [(1000.0, [gpu("A")]), (1001.0, [gpu("A", "cuda:3")])],
            "rank 0 of job 1 and rank 0 of job 2 shared cuda:0 of n1 (A)",
        ),
        (
            [(1000.0, [cpu("3"), cpu("3"), cpu("3")])],
            "rank 0 of job 1 and rank 1 of job 1 and rank 2 of job 1 shared 2 cores of n1",
        ),
        (
            [(1000.0, [cpu("1"), cpu("fe")]), (1001.0, [cpu("1")])],
            "rank 0 of job 1 and rank 0 of job 2 shared 1 core of n1",
        ),
    ],
)
@pytest.mark.parametrize("rehearse", [False, True])
def test_ranks_that_shared_a_device_fail(
    handmade_run: HandmadeRun,
    jobs: list[tuple[float, list[Place]]],
    evidence: str,
    rehearse: bool,
) -> None:
    found = outcome(handmade_run, *jobs, rehearse=rehearse, tell=rehearse)
    assert found.verdict == "fail"
    secret = f"{evidence}, although the run does not say that it is a rehearsal"
    assert found.evidence == (f"a rehearsal of a layout: {evidence}" if rehearse else secret)
    assert "/jobs/" in (found.where or "")


def test_a_rehearsal_never_passes(handmade_run: HandmadeRun) -> None:
    found = outcome(handmade_run, (1000.0, [gpu("A"), gpu("B")]), rehearse=True, tell=True)
    assert (found.verdict, found.evidence) == (
        "fail",
        "a rehearsal of a layout: no device was shared",
    )


def test_ranks_that_rehearse_fail_a_run_that_says_otherwise(handmade_run: HandmadeRun) -> None:
    found = outcome(handmade_run, (1000.0, [gpu("A"), gpu("B")]), tell=True)
    assert found.verdict == "fail"
    assert "job 1 say that they rehearse" in found.evidence


def test_a_rank_without_a_place_fails(handmade_run: HandmadeRun) -> None:
    found = outcome(handmade_run, (1000.0, [gpu("A")]), ranks=2)
    assert (found.verdict, found.evidence) == (
        "fail",
        "job 1 records the devices of 1 of its 2 ranks",
    )


def test_runs_of_older_versions_are_not_judged(handmade_run: HandmadeRun) -> None:
    assert outcome(handmade_run, (1000.0, []), ranks=2).verdict == "not applicable"
