"""Utilisation, memory and traffic of all nodes: each sensor counts once, and no host is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_site import LENGTH_S, Site, model, sample, series
from vflops.record.formats.telemetry import Absent
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Timeline
from vflops.results.score.node_usage import NodeUsage, mean_course, node_usage

BUSY, MEMORY = "gpu0.utilisation", "gpu0.memory_used"
LOOPBACK = series("net.lo.received", "B", "counter")
NETWORK = series("net.eth0.received", "B", "counter")
SENT = series("net.eth0.sent", "B", "counter")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def usage(site: Site) -> NodeUsage:
    members = Contents(site.run.folder).training_jobs
    timeline = Timeline(members)
    start_s = min(timeline.start_s(member) for member in members)
    return node_usage(timeline.parts, (start_s, max(map(timeline.end_s, members))))


def test_every_node_of_a_job_counts_and_not_only_the_first(site: Site) -> None:
    site.run.plan(model(1))
    place = site.trains(1, 1000.0, "a", "b")
    for number, (busy, memory_b, received) in enumerate([(90.0, 8e9, 3e6), (50.0, 4e9, 1e6)]):
        sensors = [
            (series(BUSY, "%", device=f"uuid{number}"), busy),
            (series(MEMORY, "B", device=f"uuid{number}"), memory_b),
            (series("gpu0.nvlink_received", "B", "counter", f"uuid{number}"), 2e9),
            (LOOPBACK, 5e6),
            (NETWORK, received),
            (SENT, 7e6),
        ]
        sample(place, 1000.0, 60, sensors, number=number)
    found = usage(site)
    assert (found.hosts, found.accelerators) == (2, 2)
    assert found.utilisation == pytest.approx(70)
    assert found.memory_b == 6e9
    assert found.between_b_per_s == pytest.approx(4e6)
    assert found.within_b_per_s == pytest.approx(2 * (2e9 + 5e6))
    assert found.missing == {
        "processors": "no reading of processors",
        "run_memory_b": "no reading of memory",
    }
    course = found.course("utilisation")
    assert course and {value for _, value in course.points} == {70}
    assert 0 <= course.points[0][0] < course.points[-1][0] <= LENGTH_S


def test_jobs_that_share_a_host_share_its_network_but_not_their_processes(site: Site) -> None:
    site.run.plan(model(1), model(2))
    for number, (busy, memory_b) in enumerate([(100.0, 3e9), (50.0, 1e9)], start=1):
        place = site.trains(number, 1000.0, "a")
        sensors = [
            (series("cpu.run", "%"), busy),
            (series("memory.run", "B"), memory_b),
            (LOOPBACK, 4e6),
        ]
        sample(place, 1000.0, 60, sensors)
    found = usage(site)
    assert (found.hosts, found.accelerators) == (1, 0)
    assert found.processors == pytest.approx(75)
    assert found.run_memory_b == 2e9
    assert found.within_b_per_s == pytest.approx(4e6)
    assert found.missing["utilisation"] == "no accelerator"
    assert found.missing["between_b_per_s"] == "no network interface"


def test_nodes_of_one_name_share_a_network_but_not_their_processes(site: Site) -> None:
    site.run.plan(model(1))
    place = site.trains(1, 1000.0, "a", "a")
    for number, memory_b in enumerate((3e9, 1e9)):
        sensors = [(series("memory.run", "B"), memory_b), (LOOPBACK, 4e6)]
        sample(place, 1000.0, 60, sensors, number=number)
    found = usage(site)
    assert (found.hosts, found.run_memory_b) == (1, 2e9)
    assert found.within_b_per_s == pytest.approx(4e6)


def test_a_job_that_ends_earlier_counts_for_its_own_time(site: Site) -> None:
    site.run.plan(model(1), model(2))
    for number, began_s in ((1, 1000.0), (2, 1030.0)):
        place = site.trains(number, began_s, "a")
        sample(place, began_s, 48, [(series("cpu.run", "%"), 50.0 * number), (LOOPBACK, 1e6)])
    found = usage(site)
    assert found.processors == pytest.approx(75)
    assert found.within_b_per_s == pytest.approx(1e6)


def test_a_clock_that_is_off_does_not_move_readings_out_of_the_training_time(site: Site) -> None:
    site.run.plan(model(1), model(2))
    for number, off_s in ((1, 0.0), (2, 500.0)):
        place = site.trains(number, 1000.0, f"node{number}", off_s=off_s)
        sample(place, 1000.0, 60, [(NETWORK, 1e6)], off_s=off_s)
    assert usage(site).between_b_per_s == pytest.approx(2e6)


def test_a_host_without_readings_leaves_no_figure_that_looks_complete(site: Site) -> None:
    site.run.plan(model(1))
    place = site.trains(1, 1000.0, "a", "b")
    sample(place, 1000.0, 60, [(NETWORK, 1e6)])
    found = usage(site)
    assert found.between_b_per_s is None
    assert found.missing["between_b_per_s"] == "b: nothing was sampled"
    sample(place, 1000.0, 60, [(LOOPBACK, 1e6)], number=1)
    assert usage(site).missing["between_b_per_s"] == "b: no network interface"


@pytest.mark.parametrize(
    ("absent", "figures", "reason"),
    [
        (
            "gpu1.nvlink_received",
            {"within_b_per_s"},
            "b: no nvlink_received of 1 of 2 accelerators",
        ),
        ("gpu0.nvlink_received", {"within_b_per_s"}, "a: no nvlink_received of the accelerator"),
        ("gpu1.memory_used", {"memory_b"}, "b: no memory_used of 1 of 2 accelerators"),
        ("gpu1.utilisation", {"utilisation"}, "b: no utilisation of 1 of 2 accelerators"),
        (
            "gpu1",
            {"utilisation", "memory_b", "within_b_per_s"},
            "b: no utilisation of 1 of 2 accelerators",
        ),
    ],
)
def test_an_accelerator_without_a_reading_is_noticed(
    site: Site, absent: str, figures: set[str], reason: str
) -> None:
    """Loopback interfaces alone are not the traffic within nodes that have accelerators."""
    site.run.plan(model(1))
    place = site.trains(1, 1000.0, "a", "b")
    for number, gpus in enumerate((("gpu0",), ("gpu1", "gpu2"))):
        sensors = [(LOOPBACK, 5e6)]
        for gpu in gpus:
            sensors += [
                (series(f"{gpu}.utilisation", "%", device=f"uuid-{gpu}"), 90.0),
                (series(f"{gpu}.memory_used", "B", device=f"uuid-{gpu}"), 8e9),
                (series(f"{gpu}.nvlink_received", "B", "counter", f"uuid-{gpu}"), 2e9),
            ]
        there = [pair for pair in sensors if not pair[0].id.startswith(absent)]
        why = [Absent(what=absent, reason="NVML answers: Unknown Error")]
        own = why if len(there) < len(sensors) else []
        sample(place, 1000.0, 60, there, number=number, absent=own)
    found = usage(site)
    assert found.accelerators == 3
    missing = {name for name, why in found.missing.items() if "accelerator" in why}
    assert missing == figures
    assert all(getattr(found, name) is None for name in figures)
    assert f"{reason}: NVML answers: Unknown Error" in found.missing.values()


def test_readings_of_half_the_training_time_are_not_taken_for_all_of_it(site: Site) -> None:
    site.run.plan(model(1))
    place = site.trains(1, 1000.0, "a")
    sample(place, 1000.0, 25, [(NETWORK, 1e6)])  # the first step is at 4 s, the end at 47.5 s
    found = usage(site)
    assert found.between_b_per_s is None
    reason = f"a: the readings cover only {100 * 21 / LENGTH_S:.1f} % of the training time"
    assert found.missing["between_b_per_s"] == reason


def test_a_course_is_the_mean_of_the_devices_that_have_a_reading() -> None:
    devices = [[(0.0, 10.0), (1.0, 20.0), (9.0, 40.0)], [(1.0, 40.0), (-1.0, 99.0), (11.0, 99.0)]]
    assert mean_course(devices, 10.0, 2) == [(2.5, (15 + 40) / 2), (7.5, 40.0)]
