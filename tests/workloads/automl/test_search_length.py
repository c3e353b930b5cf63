"""How long a search must last before it can be valid, against the paper's own search."""

from __future__ import annotations

import pytest

from vflops.workloads.automl.search_length import needed_work, planned_rows, remarks
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


def test_an_hour_on_one_accelerator_warns_and_half_a_day_on_eight_does_not() -> None:
    short = settings(1, HOUR_S)
    (warning,) = remarks(short, expected(short).facts)
    assert "1h" in warning or "60 min" in warning
    assert "53,382 samples/s" in warning
    paper = settings(8, 12 * HOUR_S)  # the paper's 12 hours on nodes of eight V100
    assert remarks(paper, expected(paper).facts) == []


def test_a_plan_compares_the_time_with_the_speed_of_an_earlier_search() -> None:
    chosen = settings(8, HOUR_S)
    rows = planned_rows(chosen, expected(chosen).facts, 8 * 15e12)
    assert rows[-1][1] == "10.5 h at 120 TOPS a worker; --for 60 min 00 s is too short"
    long = settings(8, 12 * HOUR_S)
    assert "too short" not in planned_rows(long, expected(long).facts, 8 * 15e12)[-1][1]
    assert planned_rows(PROFILES["tiny"](), expected(PROFILES["tiny"]()).facts, None) == []
