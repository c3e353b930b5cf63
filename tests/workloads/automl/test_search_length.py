"""How long a search must last before it can be valid, against the paper's own search."""

from __future__ import annotations

import pytest

from vflops.workloads.automl.search_length import (
    KnownSpeed,
    needed_work,
    planned_rows,
    remarks,
    warnings,
)
from vflops.workloads.automl.settings import PROFILES, AutomlSettings
from vflops.workloads.image_classification.expected import expected

HOUR_S = 3600.0


def settings(ranks: int, duration_s: float, profile: str = "aiperf") -> AutomlSettings:
    chosen = PROFILES[profile]()
    train = chosen.train.model_copy(update={"ranks": ranks, "batch": 448 * ranks})
    search = chosen.search.model_copy(update={"duration_s": duration_s})
    return chosen.model_copy(update={"train": train, "search": search})


def test_four_rounds_of_the_paper_come_before_the_end_of_the_schedule() -> None:
    chosen = settings(8, HOUR_S)
    needed = needed_work(chosen, expected(chosen).facts)
    assert needed.epochs == 15 + 30 + 45 + 60
    assert needed.samples == 150 * 1_281_167
    assert needed.ops == pytest.approx(150 * 3.02e16, rel=0.01)  # table VII: 2.99e16 an epoch


def test_only_a_measured_speed_says_that_a_search_is_long_enough() -> None:
    hour = settings(8, HOUR_S)
    facts = expected(hour).facts
    (unknown,) = remarks(hour, facts)  # the paper's own nodes, for an hour
    assert "6,673 samples/s on each accelerator" in unknown
    assert "no measured speed" in unknown
    (short,) = warnings(hour, facts, 8 * 15e12)
    assert "10.5 h at the measured 120 TOPS of a worker" in short
    half_a_day = settings(8, 12 * HOUR_S)
    assert warnings(half_a_day, facts, 8 * 15e12) == []
    assert warnings(half_a_day, facts, None) != []
    assert warnings(PROFILES["tiny"](), expected(PROFILES["tiny"]()).facts, None) == []


def test_a_plan_compares_the_time_with_the_speed_of_an_earlier_search() -> None:
    chosen = settings(8, HOUR_S)
    facts = expected(chosen).facts
    rows = planned_rows(chosen, facts, KnownSpeed(8 * 15e12, "R"))
    assert rows[-1] == ["time until valid", "10.5 h at 120 TOPS a worker, as measured in R"]
    rows = planned_rows(chosen, facts, KnownSpeed(8 * 30e12, "R", is_ceiling=True))
    words = "at least 5.2 h: the ceilings of R allow 240 TOPS a worker"
    assert rows[-1] == ["time until valid", words]
    rows = planned_rows(chosen, facts, None)
    assert "not known" in rows[-1][1] and "--like RUN" in rows[-1][1]
    assert planned_rows(PROFILES["tiny"](), expected(PROFILES["tiny"]()).facts, None) == []
