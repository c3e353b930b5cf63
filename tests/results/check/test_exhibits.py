"""An exhibit that is not the one that its job left is found, by its hash in the log."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import HandmadeRun, Note, course, job
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score

CONTENT = b"what the model found"
GOOD = course(0.4, 0.85, 0.88)
LOST = [*course(0.3)[:-2]]


def judged(folder: RunFolder) -> dict[str, str]:
    """The rules that are not met, with their evidence."""
    score(Contents(folder)).write(folder.score_file)
    findings = check(Contents(folder)).findings
    return {finding.rule: finding.text for finding in findings if finding.failed}


def left(content: bytes) -> Note:
    sha256 = hashlib.sha256(content).hexdigest()
    return "exhibit", {"file": "exhibit.npz", "sha256": sha256, "size_bytes": len(content)}


@pytest.fixture
def exhibit(handmade_run: HandmadeRun) -> Path:
    """What the only job of a good run left."""
    handmade_run.plan(job(1), ceilings=MEASUREMENTS)
    place = handmade_run.attempt(1, 1000.0, *GOOD[:-1], left(CONTENT), GOOD[-1])
    (place / "exhibit.npz").write_bytes(CONTENT)
    handmade_run.end()
    return place / "exhibit.npz"


def test_a_run_with_its_exhibit_meets_every_rule(handmade_run: HandmadeRun, exhibit: Path) -> None:
    assert judged(handmade_run.folder) == {}


def test_a_changed_one_is_found(handmade_run: HandmadeRun, exhibit: Path) -> None:
    exhibit.write_bytes(CONTENT + b"!")
    found = judged(handmade_run.folder)
    place = exhibit.relative_to(handmade_run.folder.path)
    assert found == {"trained": f"{place}: the exhibit was changed since the job wrote it"}


def test_a_missing_one_is_found(handmade_run: HandmadeRun, exhibit: Path) -> None:
    exhibit.unlink()
    found = judged(handmade_run.folder)
    assert list(found) == ["trained"]
    assert "exhibit.npz: No such file" in found["trained"]


def test_that_of_an_attempt_before_the_last_counts_too(handmade_run: HandmadeRun) -> None:
    run = handmade_run
    run.plan(job(1), ceilings=MEASUREMENTS)
    first = run.attempt(1, 1000.0, *LOST, left(b"the first"))
    (first / "exhibit.npz").write_bytes(b"the first")
    last = run.attempt(1, 2000.0, *course(0.6, 0.9, first_step=10)[:-1], left(CONTENT), ("end", {}))
    (last / "exhibit.npz").write_bytes(CONTENT)
    run.end()
    assert judged(run.folder) == {}
    (first / "exhibit.npz").write_bytes(b"another")
    assert list(judged(run.folder)) == ["trained"]


def test_of_two_in_one_attempt_the_later_one_counts(handmade_run: HandmadeRun) -> None:
    run = handmade_run
    run.plan(job(1), ceilings=MEASUREMENTS)
    notes = [*GOOD[:-1], left(b"written over"), left(CONTENT), GOOD[-1]]
    (run.attempt(1, 1000.0, *notes) / "exhibit.npz").write_bytes(CONTENT)
    run.end()
    assert judged(run.folder) == {}


def test_a_pipe_in_its_place_is_found_and_not_waited_for(
    handmade_run: HandmadeRun, exhibit: Path
) -> None:
    exhibit.unlink()
    os.mkfifo(exhibit)
    assert "it is not a regular file" in judged(handmade_run.folder)["trained"]
