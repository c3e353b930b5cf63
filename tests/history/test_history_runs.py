"""The history of a folder: groups, changes with what changed at the time, and its exit codes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dated_runs import Dated, dated_run
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.history import history as runs_over_time
from vflops.history import page
from vflops.history.history import CHANCE, history
from vflops.history.record import Course, HistoryRecord

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def nights(
    parent: Path, count: int, *, slower_from: int | None = None, torch: str = "2.14"
) -> None:
    """A run a night with 1 % of noise; from one night on 6 % slower, with another torch."""
    draw = random.Random(count)
    for day in range(count):
        late = slower_from is not None and day >= slower_from
        step = draw.gauss(1.06 if late else 1.0, 0.01)
        dated_run(parent, Dated(day, (step,), torch=torch if late else "2.13"))


def course(found: HistoryRecord, name: str) -> Course:
    (group,) = found.groups
    (one,) = [each for each in group.courses if each.name == name]
    return one


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve good nights, four slow ones."""
    folder = tmp_path_factory.mktemp("worse")
    nights(folder, 16, slower_from=12)
    return folder


def test_a_slower_level_is_a_regression_with_what_changed_at_the_time(worse: Path) -> None:
    found = history(worse)
    speed = course(found, "FLOPS")
    assert [(level.first, level.last) for level in speed.levels] == [(0, 11), (12, 15)]
    change = speed.regression
    assert change is not None
    assert change.run == found.groups[0].runs[12].run
    assert change.difference == pytest.approx(1 / 1.06 - 1, abs=0.015)
    assert [(d.name, d.values) for d in change.differing] == [("torch", ("2.13", "2.14"))]
    assert course(found, "time to quality").regression is not None  # longer is worse
    assert course(found, "top-1 accuracy").changes == ()


def test_a_level_that_got_better_is_no_regression(tmp_path: Path) -> None:
    draw = random.Random(5)
    for day in range(14):
        step = draw.gauss(1.0 if day < 8 else 0.9, 0.01)
        dated_run(tmp_path, Dated(day, (step,)))
    found = history(tmp_path)
    assert course(found, "FLOPS").changes and not found.regressions


def test_a_change_below_the_threshold_is_none(worse: Path) -> None:
    assert not history(worse, least_change=0.15).regressions


def test_runs_before_a_day_are_not_looked_at(worse: Path) -> None:
    found = history(worse, since=datetime(2026, 1, 12, tzinfo=UTC))
    assert len(found.groups[0].runs) == 5
    assert not found.regressions


def test_groups_are_of_one_machine_and_one_setting_whatever_the_seed(tmp_path: Path) -> None:
    unbound = tiny().launch.model_copy(update={"bind": False})
    for wanted in (
        Dated(0),
        Dated(1, seed=7, clock=3000, torch="3"),
        Dated(2, cpu="another"),
        Dated(3, settings=tiny().model_copy(update={"launch": unbound})),
    ):
        dated_run(tmp_path, wanted)
    assert sorted(len(group.runs) for group in history(tmp_path).groups) == [1, 1, 2]


def test_what_is_damaged_unfinished_or_a_copy_is_named_and_left_out(tmp_path: Path) -> None:
    whole = dated_run(tmp_path / "deep" / "er", Dated(0))
    cut = dated_run(tmp_path, Dated(1, ends=False))
    broken = dated_run(tmp_path, Dated(2))
    (broken.path / "run.json").write_text("{")
    wrong = dated_run(tmp_path, Dated(3))
    (wrong.path / "jobs/1/job.json").write_text('{"schema": "vflops.job/1"}')
    shutil.copytree(whole.path, tmp_path / "z-copy")
    found = history(tmp_path)
    assert [run.run for group in found.groups for run in group.runs] == [whole.record.id]
    reasons = {each.folder: each.reason for each in found.left_out}
    assert set(reasons) == {cut.path.name, broken.path.name, wrong.path.name, "z-copy"}
    assert "not complete" in reasons[cut.path.name]
    assert "is not JSON" in reasons[broken.path.name]
    assert "does not fit its schema" in reasons[wrong.path.name]
    assert "a copy of" in reasons["z-copy"]


def test_folders_without_a_run_are_refused_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run below"):
        history(tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
        history(tmp_path / "none")
    run = dated_run(tmp_path, Dated(0))
    with pytest.raises(UsageError, match="a history is of several"):
        history(run.path)


def test_the_page_draws_levels_and_changes(
    worse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "chart_library", str)  # it takes seconds to make
    found = history(worse)
    dots, levels, rules = page.chart(found.groups[0], course(found, "FLOPS"))["layer"]
    assert len(dots["data"]["values"]) == 16
    assert {row["level"] for row in levels["data"]["values"]} == {"0", "1"}
    assert [row["worse"] for row in rules["data"]["values"]] == [True]
    page.write_page(found, "<b>runs</b>", tmp_path / "history.html")
    text = (tmp_path / "history.html").read_text()
    assert "Regression:" in text and "torch 2.13 → 2.14" in text
    assert "<b>runs</b>" not in text


def test_the_command_ends_with_1_on_a_regression_and_0_without(
    worse: Path, tmp_path: Path, vflops: Vflops
) -> None:
    done = vflops("history", worse)
    assert done.returncode == 1
    assert "error: regression: image-classification: " in done.stderr
    assert f"vflops compare {worse}" in done.stderr
    assert (worse / "history.html").is_file()
    asked = vflops("history", worse, "--json")
    assert asked.returncode == 1
    assert json.loads(asked.stdout)["schema"] == "vflops.history/1"
    good = vflops("history", worse, "--since", "2026-01-10", "--page", tmp_path / "h.html")
    assert good.returncode == 0, good.stderr
    assert "image-classification, tiny: 7 runs" in good.stdout
    assert (tmp_path / "h.html").is_file() and "next: open" in good.stderr
    assert vflops("history", worse, "--since", "soon").returncode == 2
    nowhere = vflops("history", worse, "--page", tmp_path / "h.html" / "under-a-file")
    assert nowhere.returncode == 1 and "no page: " in nowhere.stderr


def test_the_chance_of_an_error_is_shared_by_the_figures_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def noted(figures: Sequence[float], *, chance: float, least_change: float) -> list[int]:
        asked.append(chance)
        return []

    monkeypatch.setattr(runs_over_time, "change_points", noted)
    dated_run(tmp_path, Dated(0, memory=2e10))
    (group,) = history(tmp_path).groups
    results = sum(each.kind == "result" for each in group.courses)
    assert results >= 4
    assert asked == pytest.approx([CHANCE / results] * results + [CHANCE])
