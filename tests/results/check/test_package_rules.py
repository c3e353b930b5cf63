"""Every node of a run has the package that started it; old runs have no hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.accept_runs import record_host
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.record.folder import RunFolder
from vflops.record.formats.node import NodeRecord
from vflops.record.installed_package import PackageRecord, installed_package
from vflops.record.readout.contents import Contents
from vflops.results.check.package_rules import check_package
from vflops.results.check.rule import Outcome

HASH = str(installed_package().sha256)[:12]


def judged(run: HandmadeRun, package: PackageRecord | None, *, nodes: bool = True) -> Outcome:
    run.plan(job(1))
    run.attempt(1, 1000.0, *course(0.8))
    if nodes:
        record_host(run.folder, "node1")
    path = run.folder.path / "run.json"
    update = {"package": package, "versions": {"vflops": "0.2.0"}}
    run.folder.record.model_copy(update=update).write(path)
    return check_package(Contents(RunFolder.open(path.parent)))


def test_a_run_with_one_package_passes(handmade_run: HandmadeRun) -> None:
    outcome = judged(handmade_run, installed_package())
    assert outcome[:2] == ("pass", f"1 node record with the hash {HASH}")


def test_another_package_on_a_node_fails(handmade_run: HandmadeRun) -> None:
    outcome = judged(handmade_run, PackageRecord(version="0.2.0", sha256="b" * 64))
    words = f"the node ran the package with the hash {HASH}, but the run was started by bbbbbbbbbbb"
    assert outcome == ("fail", f"{words}b", "jobs/1/0/node-0.json")


def test_the_second_node_of_a_job_is_compared_too(handmade_run: HandmadeRun) -> None:
    judged(handmade_run, installed_package())
    first = Path(handmade_run.folder.path, "jobs", "1", "0", "node-0.json")
    record = NodeRecord.read(first).model_copy(update={"node": 1, "package_sha256": "c" * 64})
    record.write(first.with_name("node-1.json"))
    outcome = check_package(Contents(RunFolder.open(handmade_run.folder.path)))
    assert (outcome.verdict, outcome.where) == ("fail", "jobs/1/0/node-1.json")
    assert outcome.evidence.startswith("the node ran the package with the hash cccccccccccc, but")


@pytest.mark.parametrize(
    ("package", "nodes", "verdict", "evidence"),
    [
        (None, True, "not applicable", "vflops 0.2.0 did not record the hash of its package"),
        (installed_package(), False, "not applicable", "no node is recorded"),
        (
            PackageRecord(version="0.2.0", sha256=None),
            True,
            "cannot tell",
            "the files of the package could not be read",
        ),
    ],
)
def test_nothing_is_said_without_a_hash(
    handmade_run: HandmadeRun,
    package: PackageRecord | None,
    nodes: bool,
    verdict: str,
    evidence: str,
) -> None:
    assert judged(handmade_run, package, nodes=nodes)[:2] == (verdict, evidence)


def test_a_node_without_a_hash_fails(handmade_run: HandmadeRun) -> None:
    judged(handmade_run, installed_package())
    path = Path(handmade_run.folder.path, "jobs", "1", "0", "node-0.json")
    path.write_text(path.read_text().replace(f'"{installed_package().sha256}"', "null"))
    outcome = check_package(Contents(RunFolder.open(handmade_run.folder.path)))
    assert outcome.evidence.startswith("the node ran a package without a hash, but")
