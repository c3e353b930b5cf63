"""Ensembles over several nodes: clocks are corrected, and each sensor counts once.

Every model takes 60 s or less from its first step; its node samples once a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_site import LENGTH_S, Site, model, node, sample, series
from tests.support.trained_runs import START_S, job
from vflops.publish.report.ensemble_blocks import ensemble_blocks
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobTrained
from vflops.record.formats.telemetry import Absent
from vflops.record.readout.contents import Contents
from vflops.results.check.training_rules import check_finished as judged
from vflops.results.score import score_tables
from vflops.run.jobs import _record_hashes


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


PACKAGE = series("package0.energy", "J", "counter")
NO_RAPL = [Absent(what="processor energy", reason="no powercap")]


def test_clocks_five_seconds_apart_are_corrected(site: Site) -> None:
    site.run.plan(model(1), model(2))
    site.trains(1, 1000.0, "a", off_s=5.0)
    site.trains(2, 1002.0, "b", off_s=0.0)
    found = site.ensemble(1, 2)
    assert found.started_apart_s == pytest.approx(2.0)
    assert found.window_s == pytest.approx(LENGTH_S + 2.0)
    assert found.clock_corrected_s == 5.0
    assert found.clock_unknown == ()
    assert [(node.host, node.offset_s) for node in found.nodes] == [("a", 5.0), ("b", 0.0)]


def test_a_clock_that_is_not_known_is_said_and_not_corrected(site: Site) -> None:
    site.run.plan(model(1), model(2))
    site.trains(1, 1000.0, "a")
    place = site.trains(2, 1002.0, "b", off_s=5.0)
    node(place, 0, 1, "b", None)
    found = site.ensemble(1, 2)
    assert found.window_s == pytest.approx(LENGTH_S + 7.0)
    assert found.clock_unknown == (2,)
    assert found.nodes[1].fault == "no answer"
    assert "not corrected for jobs 2" in dict(score_tables.ensemble_rows(found))["clocks"]


def test_a_clock_of_another_controller_is_not_known(site: Site) -> None:
    site.run.plan(model(1), model(2))
    site.trains(1, 1000.0, "a", off_s=0.5)
    site.trains(2, 1000.0, "b", off_s=3.0, reference="another head")
    found = site.ensemble(1, 2)
    assert (found.clock_corrected_s, found.clock_unknown) == (0.5, (2,))


def test_a_sensor_that_two_jobs_share_counts_once(site: Site) -> None:
    site.run.plan(model(1), model(2))
    for number, off_s in ((1, 0.0), (2, 0.0005)):  # two readings of one clock never agree
        place = site.trains(number, 1000.0, "a", off_s=off_s)
        sample(place, 1000.0, 60, [(PACKAGE, 100.0)], off_s=off_s)
    found = site.ensemble(1, 2)
    assert found.power.power_w == pytest.approx(100.0, rel=1e-3)
    assert found.power.energy_j == pytest.approx(100.0 * LENGTH_S, rel=1e-3)
    assert found.vflops_per_watt == pytest.approx((found.vflops or 0) / 100.0, rel=1e-3)
    (only,) = found.nodes
    assert only.jobs == (1, 2)
    scored = site.scored()
    assert [training.power.shared_with for training in scored.trainings] == [(2,), (1,)]
    assert "shared with job 2" in dict(score_tables.training_rows(scored.trainings[0]))["VFLOPS/W"]


def test_what_one_job_did_not_sample_another_did(site: Site) -> None:
    """The second model starts 30 s later: no moment counts twice, none is missing."""
    site.run.plan(model(1), model(2))
    sample(site.trains(1, 1000.0, "a"), 1000.0, 48, [(PACKAGE, 100.0)])
    sample(site.trains(2, 1030.0, "a"), 1030.0, 48, [(PACKAGE, 100.0)])
    found = site.ensemble(1, 2)
    assert found.window_s == pytest.approx(LENGTH_S + 30)
    assert found.power.energy_j == pytest.approx(100.0 * (LENGTH_S + 30))
    assert found.power.covered_s == pytest.approx(found.window_s, abs=1e-3)


def test_each_job_has_a_first_gpu_and_both_count(site: Site) -> None:
    site.run.plan(model(1), model(2))
    for number, watts, busy in ((1, 300.0, 90.0), (2, 200.0, 50.0)):
        place = site.trains(number, 1000.0, "a")
        power = series("gpu0.power", device=f"device {number}")
        utilisation = series("gpu0.utilisation", "%", device=f"device {number}")
        sample(place, 1000.0, 60, [(power, watts), (utilisation, busy)])
    found = site.ensemble(1, 2)
    assert found.power.power_w == pytest.approx(500.0)
    assert found.utilisation == pytest.approx(70.0)
    assert [training.power.shared_with for training in site.scored().trainings] == [(), ()]


def test_hosts_add_up_and_a_late_one_counts_for_its_time(site: Site) -> None:
    site.run.plan(model(1), model(2))
    sample(site.trains(1, 1000.0, "a", off_s=5.0), 1000.0, 60, [(PACKAGE, 100.0)], off_s=5.0)
    sample(site.trains(2, 1010.0, "b"), 1010.0, 60, [(PACKAGE, 300.0)])
    found = site.ensemble(1, 2)
    assert found.power.energy_j == pytest.approx(400.0 * LENGTH_S)
    assert found.power.power_w == pytest.approx(400.0 * LENGTH_S / (LENGTH_S + 10))
    assert [node.power.power_w for node in found.nodes] == pytest.approx([100.0, 300.0])


def test_a_host_without_a_reading_is_named(site: Site) -> None:
    site.run.plan(model(1), model(2))
    sample(site.trains(1, 1000.0, "a"), 1000.0, 60, [(PACKAGE, 100.0)])
    sample(site.trains(2, 1000.0, "b"), 1000.0, 60, [], absent=NO_RAPL)
    found = site.ensemble(1, 2)
    assert (found.power.power_w, found.vflops_per_watt) == (None, None)
    assert "b: " in (found.power.reason or "") and "no powercap" in (found.power.reason or "")
    assert "a: " not in (found.power.reason or "")


def test_a_job_of_two_hosts_takes_the_power_of_both(site: Site) -> None:
    site.run.plan(job(1))
    place = site.trains(1, 1000.0, "a", "b")
    sample(place, 1000.0, 60, [(PACKAGE, 100.0)])
    (alone,) = site.scored().trainings
    assert alone.power.reason == "b: nothing was sampled"
    # Another machine's monotonic clock began at another time: only UTC tells which moment it is.
    sample(place, 1000.0, 60, [(PACKAGE, 50.0)], number=1, booted_s=900.0)
    (found,) = site.scored().trainings
    assert found.power.power_w == pytest.approx(150.0)
    assert found.power.energy_j == pytest.approx(150.0 * LENGTH_S)


def test_two_nodes_of_one_machine_have_one_sensor(site: Site) -> None:
    site.run.plan(job(1))
    place = site.trains(1, 1000.0, "a", "a")
    sample(place, 1000.0, 60, [(PACKAGE, 100.0)])
    sample(place, 1000.0, 60, [(PACKAGE, 100.0)], number=1)
    (found,) = site.scored().trainings
    assert found.power.power_w == pytest.approx(100.0)


def test_the_page_has_a_row_a_node(site: Site) -> None:
    site.run.plan(model(1), model(2))
    sample(site.trains(1, 1000.0, "a", off_s=0.005), 1000.0, 60, [(PACKAGE, 100.0)], off_s=0.005)
    site.trains(2, 1003.0, "b", off_s=0.0)
    site.ensemble(1, 2)
    (block,) = ensemble_blocks(site.scored())
    assert block.apart == "3 s"
    a, b = block.nodes
    assert (a[0], a[2], a[3]) == ("a", "1", "+5.000 ms ± 1.000 ms")
    assert "100 W" in a[4]
    assert "nothing was sampled" in b[4]


def pinned(folder: RunFolder, number: int) -> JobTrained:
    with folder.start_attempt(job=0) as log:
        _record_hashes(folder, log, number)
        log.write("end")
    return folder.history().events("job-trained")[-1].payload(JobTrained)


@pytest.mark.parametrize("name", ["node-0.json", "telemetry-1.jsonl", "node-2.json"])
def test_what_a_node_left_cannot_be_changed_unseen(site: Site, name: str) -> None:
    site.run.plan(job(1))
    place = site.trains(1, 1000.0, "a", "b")
    sample(place, 1000.0, 60, [(PACKAGE, 100.0)])
    sample(place, 1000.0, 60, [(PACKAGE, 100.0)], number=1)
    assert set(pinned(site.run.folder, 1).files or {}) == {
        "node-0.json",
        "node-1.json",
        "telemetry-1.jsonl",
    }
    assert judged(Contents(site.run.folder))[0] == "pass"
    with (place / name).open("a") as file:
        file.write("\n")
    found = judged(Contents(site.run.folder))
    assert found[0] == "fail"
    assert name in str(found[2:])


def test_before_there_are_node_files_times_stand_as_they_are(site: Site) -> None:
    site.run.plan(model(1), model(2))
    site.trains(1, 1000.0)
    site.trains(2, 1000.0 + START_S)
    found = site.ensemble(1, 2)
    assert found.clock_unknown == (1, 2)
    assert found.started_apart_s == pytest.approx(START_S)
