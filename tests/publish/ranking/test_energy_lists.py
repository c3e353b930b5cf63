"""The ranking by energy: which evidence of power counts, and what is in one list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.ranking_runs import Submitted, submit
from tests.support.sample_parts import Vflops
from vflops.publish.ranking.entry import Entry, PowerEvidence, Result
from vflops.publish.ranking.lists import energy_ranking, ranking
from vflops.publish.ranking.power_evidence import power_evidence
from vflops.publish.ranking.static_site import Built, build
from vflops.results.score.score_file import PowerScore

NVML = "NVML nvmlDeviceGetTotalEnergyConsumption"
RAPL = "/sys/class/powercap/intel-rapl:0/energy_uj"
METERED = PowerScore(
    power_w=400.0,
    energy_j=40_000.0,
    covered_s=100.0,
    includes=("accelerators", "processors"),
    sources=(NVML, RAPL),
)


def evidence(*powers: PowerScore, accelerated: bool = True) -> PowerEvidence:
    return power_evidence(powers, [100.0] * len(powers), accelerated=accelerated)


def changed(**changes: Any) -> PowerScore:
    return METERED.model_copy(update=changes)


def test_evidence_names_the_measured_parts_and_the_sensors() -> None:
    assert evidence(METERED, changed(power_w=600.0)) == PowerEvidence(
        power_w=500.0, scope="accelerators and processors", method="NVML, RAPL"
    )
    node = changed(includes=("node",), sources=("imported: pdu.csv",))
    found = evidence(node, accelerated=False)
    assert (found.scope, found.method) == ("whole node", "external meter")


@pytest.mark.parametrize(
    ("power", "accelerated", "reason"),
    [
        (PowerScore(reason="no sensor"), True, "its power was not measured: no sensor"),
        (
            changed(covered_s=89.0),
            True,
            "readings of power cover 89.0 % of the training, but 90.0 % are required",
        ),
        (
            changed(includes=("processors",)),
            True,
            "its power (processors only) does not include the accelerators, which trained",
        ),
        (
            changed(includes=("accelerators",)),
            False,
            "its power (accelerators only) does not include the processors, which trained",
        ),
        (
            changed(shared_with=(3, 4)),
            True,
            "its power includes that of other jobs at the same time: 3–4",
        ),
    ],
)
def test_power_without_valid_evidence_has_a_reason(
    power: PowerScore, accelerated: bool, reason: str
) -> None:
    assert evidence(power, accelerated=accelerated) == PowerEvidence(reason=reason)


def test_repeats_that_measured_different_parts_have_no_common_figure() -> None:
    found = evidence(METERED, changed(includes=("accelerators",)))
    parts = "accelerators and processors; accelerators only"
    assert found.reason == f"its repeats measured different parts: {parts}"


def entry(name: str, score: float, per_watt: float | None, power: PowerEvidence) -> Entry:
    result = Result(
        workload="w",
        goal="g",
        data="real",
        unit="VFLOPS",
        score=score,
        time_s=1.0,
        to_target_s=None,
        quality=None,
        accelerators=1,
        ranks=1,
        device="d",
        per_watt=per_watt,
        power=power,
        efficiency=None,
        repeats=1,
        problem="p",
        length="l",
    )
    return Entry(place=name, source="s", run=name, digest=name, course=name, results=(result,))


def test_the_order_is_by_watt_and_other_parts_are_another_list() -> None:
    whole = evidence(changed(includes=("node",)))
    parts = evidence(METERED)
    by_performance = ranking(
        [
            entry("fast", 9e12, 1e9, parts),
            entry("frugal", 1e12, 5e9, parts),
            entry("metered", 5e12, 9e9, whole),
            entry("unknown", 7e12, None, PowerEvidence(reason="its power was not measured: x")),
        ]
    )
    assert len({row.facets for row in by_performance.ranked}) == 1
    energy = energy_ranking(by_performance)
    rows = [(row.facets[-1], row.rank, row.entry.run) for row in energy.ranked]
    assert rows == [
        ("accelerators and processors", 1, "frugal"),
        ("accelerators and processors", 2, "fast"),
        ("whole node", 1, "metered"),
    ]
    (without,) = energy.unranked
    assert (without.entry.run, without.reasons) == ("unknown", ("its power was not measured: x",))


FAST = Submitted(quality=0.92)
UNMETERED = Submitted(id="20260202T000000Z-image-classification-000001", power=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("energy")
    submit(folder / "in" / "lab", FAST)
    submit(folder / "in" / "uni", UNMETERED)
    return build([folder / "in"], folder / "site")


def test_a_submission_without_power_is_only_in_the_list_by_performance(built: Built) -> None:
    assert {row.entry.run for row in built.ranking.ranked} == {FAST.id, UNMETERED.id}
    (row,) = built.energy.ranked
    assert (row.rank, row.entry.run) == (1, FAST.id)
    assert row.result.power.scope == "accelerators only"
    (without,) = built.energy.unranked
    assert without.reasons[0].startswith("its power was not measured: accelerators: ")


def test_the_pages_show_both_ranks_and_the_reason(built: Built) -> None:
    pages = "".join(path.read_text() for path in (built.index.parent / "systems").iterdir())
    power = '</td><td class="word" data-label="power"><bdi>'
    assert f'data-label="# by energy">1{power}accelerators only, ' in pages
    assert f'data-label="# by energy">—{power}its power was not measured: ' in pages


def test_the_command_prints_both_lists_and_json(vflops: Vflops, built: Built) -> None:
    words = ["ranking", built.index.parents[1] / "in", "--site", built.index.parent]
    text = vflops(*words).stdout
    assert "2 results ranked\n" in text
    assert "1 result ranked by energy, 1 without valid evidence of power\n" in text
    assert "VFLOPS/W; 500 W by test gpu0.power" in text
    assert f"  uni/{UNMETERED.id}: its power was not measured: " in text
    data = json.loads(vflops(*words, "--json").stdout)
    assert data["schema"] == "vflops.ranking/1"
    (performance,), (energy,) = data["performance"]["lists"], data["energy"]["lists"]
    assert [row["run"] for row in performance["results"]] == [FAST.id, UNMETERED.id]
    assert [row["run"] for row in energy["results"]] == [FAST.id]
    assert energy["facets"] == {**performance["facets"], "power": "accelerators only"}
    assert energy["results"][0]["result"]["power"]["power_w"] == pytest.approx(500)
    assert [row["run"] for row in data["energy"]["not_ranked"]] == [UNMETERED.id]
