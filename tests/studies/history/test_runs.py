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

from tests.support.dated_runs import Dated, dated_run
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.studies.history import history_page, history_text, run_history
from vflops.studies.history.history_data import Course, HistoryRecord
from vflops.studies.history.run_history import CHANCE, history

GOAL = {"quality": "top-1 accuracy", "better": "higher", "target": 0.8, "exponent": 5}
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


def test_a_level_that_is_partly_made_good_is_still_a_regression(tmp_path: Path) -> None:
    draw = random.Random(6)
    for day in range(18):
        level = 1.0 if day < 6 else 1.25 if day < 12 else 1.15
        dated_run(tmp_path, Dated(day, (draw.gauss(level, 0.005),), torch="3" if day > 5 else "2"))
    speed = course(history(tmp_path), "FLOPS")
    assert [change.worse for change in speed.changes] == [True, False]
    lost = speed.regression
    assert lost is not None
    assert lost.difference == pytest.approx(1 / 1.15 - 1, abs=0.01)
    assert (lost.created_utc[:10], lost.differing[0].name) == ("2026-01-07", "torch")
    assert "(better), 2026-01-13; still -13.0 %" in history_text.last_change(speed, 3)


def test_runs_that_no_longer_come_to_their_end_are_named(tmp_path: Path, vflops: Vflops) -> None:
    for day in range(6):
        dated_run(tmp_path, Dated(day, ends=day not in (2, 4, 5)))
    dated_run(tmp_path, Dated(6, ends=False, cpu="another"))
    found = history(tmp_path)
    (group,) = found.stopped
    assert [run.created_utc[:10] for run in group.unfinished] == ["2026-01-05", "2026-01-06"]
    assert len(found.left_out) == 4
    done = vflops("history", tmp_path, "--json")
    assert done.returncode == 1
    assert "the newest 2 runs did not finish; the last that did is" in done.stderr
    dated_run(tmp_path, Dated(9))
    assert not history(tmp_path).stopped


def test_a_run_that_goes_on_is_not_one_that_stopped(tmp_path: Path) -> None:
    dated_run(tmp_path, Dated(0))
    going = dated_run(tmp_path, Dated(1, ends=False))
    with going.in_use():
        assert not history(tmp_path).stopped
    assert history(tmp_path).stopped


def test_runs_that_break_their_rules_are_marked(tmp_path: Path) -> None:
    dated_run(tmp_path, Dated(0))
    dated_run(tmp_path, Dated(1, job={"goal": {**GOAL, "exponent": 9}}))
    runs = [run for group in history(tmp_path).groups for run in group.runs]
    assert "goal" in runs[1].rules_broken and "goal" not in runs[0].rules_broken
    assert history_text.marked(runs[1]).startswith(f"{runs[1].folder} (not valid: ")
    broken = history_text.breaking(history(tmp_path).groups[-1], lambda name: f"runs/{name}")
    assert str(broken).endswith(f"vflops check runs/{runs[1].folder}")


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
    groups = sorted(history(tmp_path).groups, key=lambda group: len(group.runs))
    assert [len(group.runs) for group in groups] == [1, 1, 2]
    told = sorted(str(history_text.apart(group)) for group in groups)  # all have the same title
    assert told == ["with launch.bind false", *["with launch.bind true"] * 2]


def test_a_setting_that_was_left_out_is_called_not_set(tmp_path: Path) -> None:
    named = tiny().launch.model_copy(update={"container": "image.sif"})
    dated_run(tmp_path, Dated(0))
    dated_run(tmp_path, Dated(1, settings=tiny().model_copy(update={"launch": named})))
    told = sorted(str(history_text.apart(group)) for group in history(tmp_path).groups)
    assert told == ['with launch.container "image.sif"', "with launch.container not set"]


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
    assert "does not match its schema" in reasons[wrong.path.name]
    assert "a copy of" in reasons["z-copy"]


def test_folders_without_a_run_are_refused_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run below"):
        history(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        history(tmp_path / "none")
    run = dated_run(tmp_path, Dated(0))
    with pytest.raises(UsageError, match="a history needs several"):
        history(run.path)


def test_the_page_draws_levels_and_changes(
    worse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_page, "chart_library", str)  # it takes seconds to make
    found = history(worse)
    dots, levels, rules = history_page.chart(found.groups[0], course(found, "FLOPS"))["layer"]
    assert len(dots["data"]["values"]) == 16
    assert {row["level"] for row in levels["data"]["values"]} == {"0", "1"}
    assert [row["worse"] for row in rules["data"]["values"]] == [True]
    history_page.write_page(found, "<b>runs</b>", tmp_path / "history.html")
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
    assert (tmp_path / "h.html").is_file() and "next: open the charts" in good.stderr
    assert vflops("history", worse, "--since", "soon").returncode == 2
    nowhere = vflops("history", worse, "--page", tmp_path / "h.html" / "under-a-file")
    assert nowhere.returncode == 1 and "the page cannot be written: " in nowhere.stderr


def test_the_chance_of_an_error_is_shared_by_the_figures_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def noted(figures: Sequence[float], *, chance: float, least_change: float) -> list[int]:
        asked.append(chance)
        return []

    monkeypatch.setattr(run_history, "change_points", noted)
    dated_run(tmp_path, Dated(0, memory=2e10))
    (group,) = history(tmp_path).groups
    results = sum(each.kind == "result" for each in group.courses)
    assert results >= 4
    assert asked == pytest.approx([CHANCE / results] * results + [CHANCE])


def test_few_runs_have_no_chart_and_nothing_is_said_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_page, "chart_library", str)
    for day in range(2):
        dated_run(tmp_path, Dated(day, (1.0 + day / 100,)))
    found = history(tmp_path)
    assert history_page.drawn(found.groups[0]) == []
    assert history_text.last_change(course(found, "FLOPS"), 3) == "too few runs"
    history_page.write_page(found, "runs", tmp_path / "history.html")
    assert "No newest level is worse" not in (tmp_path / "history.html").read_text()


def test_axes_name_days_and_digits_that_tell_values_apart(worse: Path, tmp_path: Path) -> None:
    (group,) = history(worse).groups
    chart = history_page.chart(group, course(history(worse), "FLOPS"))["layer"][0]
    x, y = chart["encoding"]["x"], chart["encoding"]["y"]
    assert (x["axis"]["format"], x["scale"]["type"]) == ("%Y-%m-%d", "utc")
    assert y["axis"]["format"] == ".4~s"
    assert chart["data"]["values"][0]["when"] == "2026-01-01 00:00 UTC"
    few = group.model_copy(update={"runs": group.runs[:3]})
    assert history_page.time_format(few) == "%m-%d %H:%M"
    share = group.courses[0].model_copy(update={"unit": "share", "values": (0.008, 0.0081)})
    assert history_page.figure_format(share) == ".4%"
    quality = share.model_copy(update={"unit": None, "values": (0.531, 0.54)})
    assert history_page.figure_format(quality) == ".4~g"


def test_without_a_finished_run_there_is_no_page(tmp_path: Path, vflops: Vflops) -> None:
    run = dated_run(tmp_path / "runs", Dated(0, ends=False, cpu="x\x1b]0;y\x07"))
    done = vflops("history", tmp_path / "runs")
    assert done.returncode == 0 and not (tmp_path / "runs" / "history.html").exists()
    assert f"vflops report {run.path.relative_to(tmp_path)}" in done.stderr.replace("../", "")


def test_what_a_record_says_gives_a_terminal_no_orders(tmp_path: Path, vflops: Vflops) -> None:
    dated_run(tmp_path / "runs", Dated(0, cpu="Red\x1b]0;pwned\x07\x1b[31m \u202etxt"))
    done = vflops("history", tmp_path / "runs")
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    assert r"Red\x1b]0;pwned\x07\x1b[31m \u202etxt" in done.stdout
