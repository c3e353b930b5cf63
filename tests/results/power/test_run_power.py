"""Which parts a summary includes, by what they were measured, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.telemetry_fakes import UTC_S, series, telemetry
from vflops.record.formats.telemetry import Absent, Telemetry
from vflops.results.power.run_power import PowerSummary, power_summary, sum_over_nodes

TIMES = [float(second) for second in range(11)]
POWER, ENERGY = series("gpu0.power"), series("gpu0.energy", "counter")
PACKAGE = series("package0.energy", "counter", "processor")
MEMORY = series("package0.memory_energy", "counter", "processor")
NODE = series("node.power", "gauge", "node")


def flat(power_w: float) -> list[float | None]:
    return [power_w] * len(TIMES)


def counted(power_w: float) -> list[float | None]:
    return [power_w * time_s for time_s in TIMES]


def node_log(power_w: float, *, offset_s: float = 0.0, until_s: float = 10.0) -> Telemetry:
    """A log by UTC, whose own times say nothing of the run's clock."""
    times_s = [time_s for time_s in TIMES if time_s <= until_s]
    log = telemetry({NODE: [power_w] * len(times_s)}, times_s)
    utc_s = [UTC_S + offset_s + time_s for time_s in times_s]
    return replace(log, times_s=utc_s, utc_s=utc_s)


def test_the_counter_is_preferred_to_readings_of_power() -> None:
    found = power_summary(telemetry({POWER: flat(90), ENERGY: counted(100)}, TIMES), 0, 10)
    assert (found.energy_j, found.power_w, found.covered) == (1000, 100, 1.0)
    assert found.includes == ("accelerators",)
    assert found.sources == ("test gpu0.energy",)


def test_where_the_counter_stops_the_readings_of_power_stand_in() -> None:
    stopped = [*counted(100)[:4], *[None] * 7]
    found = power_summary(telemetry({POWER: flat(90), ENERGY: stopped}, TIMES), 0, 10)
    assert (found.energy_j, found.sources) == (900, ("test gpu0.power",))


def test_accelerators_and_processors_add_up() -> None:
    columns = {ENERGY: counted(100), PACKAGE: counted(20), MEMORY: counted(5)}
    found = power_summary(telemetry(columns, TIMES), 2, 4)
    assert found.includes == ("accelerators", "processors")
    assert found.energy_j == pytest.approx(250)
    assert found.power_w == pytest.approx(125)
    assert {part.part: part.energy_j for part in found.parts} == {
        "accelerators": pytest.approx(200),
        "processors": pytest.approx(50),
        "node": None,
    }


def test_a_log_of_the_node_wins_and_is_placed_by_utc() -> None:
    run = telemetry({ENERGY: counted(100)}, TIMES)
    found = power_summary(run, 0, 10, [node_log(400)])
    assert found.includes == ("node",)
    assert found.energy_j == pytest.approx(4000)
    assert found.parts[0].energy_j == 1000


def test_two_feeds_of_a_node_add_up() -> None:
    run = telemetry({ENERGY: counted(100)}, TIMES)
    found = power_summary(run, 0, 10, [node_log(400), node_log(300)])
    assert found.power_w == pytest.approx(700)


def test_a_log_that_covers_little_does_not_stand_for_the_whole() -> None:
    run = telemetry({ENERGY: counted(100)}, TIMES)
    found = power_summary(run, 0, 10, [node_log(400, until_s=5)])
    assert found.includes == ("accelerators",)
    assert found.parts[2].covered == pytest.approx(0.5, abs=1e-6)


def test_a_log_of_another_day_covers_nothing() -> None:
    run = telemetry({ENERGY: counted(100)}, TIMES)
    found = power_summary(run, 0, 10, [node_log(400, offset_s=86_400)])
    assert found.includes == ("accelerators",)
    assert "no reading of node.power" in str(found.parts[2].reason)


def test_seven_of_eight_accelerators_are_not_the_accelerators() -> None:
    other = series("gpu1.energy", "counter")
    blind = telemetry({ENERGY: counted(100), other: [None] * 11}, TIMES)
    lost = telemetry({ENERGY: counted(100)}, TIMES, absent=[Absent(what="gpu1", reason="lost")])
    for recorded in (blind, lost):
        found = power_summary(recorded, 0, 10)
        assert (found.energy_j, found.includes) == (None, ())
        assert "gpu1" in str(found.reason)


def test_a_sensor_that_reads_0_all_the_time_measures_nothing() -> None:
    other = series("gpu1.power")
    for columns in ({POWER: flat(0)}, {ENERGY: flat(7)}, {ENERGY: counted(100), other: flat(0)}):
        found = power_summary(telemetry(columns, TIMES), 0, 10)
        assert (found.energy_j, found.power_w, found.includes) == (None, None, ())
        assert f"{list(columns)[-1].id} read 0 all the time" in str(found.reason)
    found = power_summary(telemetry({PACKAGE: counted(20), MEMORY: flat(0)}, TIMES), 0, 10)
    assert found.power_w == 20
    found = power_summary(telemetry({POWER: flat(90), ENERGY: flat(7)}, TIMES), 0, 10)
    assert (found.power_w, found.sources) == (90, ("test gpu0.power",))


def test_what_an_accelerator_lacks_besides_energy_does_not_matter() -> None:
    absent = [Absent(what="gpu0.nvlink_sent", reason="none"), Absent(what="gpu0.power", reason="")]
    assert power_summary(telemetry({ENERGY: counted(1)}, TIMES, absent=absent), 0, 10).power_w == 1


def test_nothing_measured_says_why() -> None:
    absent = [
        Absent(what="NVIDIA accelerators", reason="no driver"),
        Absent(what="package0.energy", reason="only root may read it"),
    ]
    found = power_summary(telemetry({}, [], absent=absent), 0, 10)
    assert (found.energy_j, found.power_w, found.covered, found.includes) == (None, None, 0.0, ())
    assert found.reason == (
        "accelerators: no driver; processors: only root may read it; "
        "node: no log of the node or its supply was imported"
    )


def test_gaps_are_reported_and_the_least_cover_counts() -> None:
    holed = [*flat(50)[:2], *[None] * 8, 50.0]
    found = power_summary(telemetry({POWER: holed, PACKAGE: counted(10)}, TIMES), 0, 10)
    assert found.covered == pytest.approx(0.1)
    assert [gap.series for gap in found.gaps] == ["gpu0.power"]
    assert found.power_w == pytest.approx(60)


def nodes(*powers_w: float) -> Sequence[PowerSummary]:
    return [power_summary(telemetry({ENERGY: counted(w)}, TIMES), 0, 10) for w in powers_w]


def test_nodes_add_up_where_they_include_the_same() -> None:
    found = sum_over_nodes(nodes(100, 200))
    assert (found.energy_j, found.power_w, found.includes) == (3000, 300, ("accelerators",))
    bare = power_summary(telemetry({}, []), 0, 10)
    mixed = sum_over_nodes([*nodes(100), bare])
    assert (mixed.energy_j, mixed.includes) == (None, ())
    assert "do not measure the same: accelerators; nothing" in str(mixed.reason)
    assert sum_over_nodes([bare, bare]).energy_j is None
    with pytest.raises(ValueError, match="one per node"):
        sum_over_nodes([])
