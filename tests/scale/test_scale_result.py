"""The points of an experiment, their figures and efficiencies, and the page that shows them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trained_runs import HandmadeRun, course, job
from vflops.config.profiles import profile
from vflops.config.settings import Settings, load
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.scale.experiment import Experiment, pairs
from vflops.scale.page import curves, write_page
from vflops.scale.result import Figures, Kind, Pair, Point, Scale, figures, table
from vflops.schemas import schemas
from vflops.suite import Watch, conclude
from vflops.train.placement import usable_cores


def point(models: int, ranks: int, flops: float | None, quality: float = 0.5) -> Point:
    found = Figures(
        repeats=1,
        partial=False,
        attempts=1,
        checks_failed=0,
        window_s=10.0,
        flops=flops,
        flops_least=flops,
        flops_most=flops,
        vflops=None if flops is None else flops * quality,
        quality=quality,
        quality_alone=quality,
    )
    return Point(models=models, ranks=ranks, run=f"{models}x{ranks}/run", figures=found)


def scale(*points: Point, kind: Kind = "weak") -> Scale:
    return Scale(
        workload="image-classification",
        kind=kind,
        profile="tiny",
        on="local",
        cores_per_rank=1,
        same_batch="rank",
        quality_name="top-1 accuracy",
        target=0.8,
        points=points,
    ).with_efficiency()


def settings(*changes: str) -> Settings:
    return load(profile("tiny", ["image-classification"]), None, changes)


def test_weak_scaling_adds_models_of_the_same_size() -> None:
    assert pairs("weak", [1, 2, 4], ranks=2) == [(1, 2), (2, 2), (4, 2)]


def test_bagging_and_data_parallelism_share_the_point_of_one_slot() -> None:
    assert pairs("bagging-vs-data", [1, 2, 4]) == [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)]


def test_a_trade_off_has_every_pair_of_its_scale() -> None:
    assert pairs("trade-off", [6]) == [(6, 1), (3, 2), (2, 3), (1, 6)]


def test_efficiency_is_what_a_slot_does_against_a_slot_of_the_base() -> None:
    found = scale(point(1, 2, 1e9, 0.5), point(4, 2, 3e9, 0.6))
    first, second = (each.figures for each in found.points)
    assert first and second
    assert first.efficiency == first.efficiency_valid == 1
    assert second.efficiency == pytest.approx(0.75)
    assert second.efficiency_valid == pytest.approx(0.75 * 1.2)
    assert found.ideal("flops", 8) == pytest.approx(4e9)


def test_nothing_is_compared_with_what_is_unknown_or_partial() -> None:
    unknown = scale(point(1, 1, None), point(2, 1, 3e9))
    assert [each.figures.efficiency for each in unknown.points if each.figures] == [None, None]
    own = point(2, 1, 2e9).figures
    assert own
    partial = point(2, 1, 2e9).model_copy(
        update={"figures": own.model_copy(update={"partial": True})}
    )
    last = scale(point(1, 1, 1e9), partial).points[1].figures
    assert last and last.efficiency is None
    assert table(scale(point(1, 1, 1e9), partial))[2][-1] == "0.5, partial"
    after_partial = scale(partial, point(4, 1, 4e9))
    assert [each.figures.efficiency for each in after_partial.points if each.figures] == [None] * 2
    assert after_partial.ideal("flops", 8) is None


def test_a_point_that_was_broken_off_is_marked_with_its_attempts() -> None:
    own = point(2, 1, 2e9).figures
    assert own
    again = point(2, 1, 2e9).model_copy(update={"figures": own.model_copy(update={"attempts": 3})})
    assert table(scale(point(1, 1, 1e9), again))[2][-1] == "0.5, 3 attempts"


def test_one_model_is_timed_as_an_ensemble_is(
    handmade_run: HandmadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three epochs: 30 s of training, 3 s of waiting, 6 s of evaluating, 1.5 s of checkpoints."""
    handmade_run.plan(job(1))
    handmade_run.attempt(1, 100.0, *course(0.5, 0.7, 0.8))
    handmade_run.end()
    conclude(handmade_run.folder, Watch())
    # By the clock that the test sets; times of day are those of the machine.
    monkeypatch.setattr("vflops.record.events.Event.utc_s", property(lambda each: each.time_s))
    window_s = 30 + 3 + 6 + 1.5 + 3  # from the job event on, so with 3 s of compilation
    found = figures(handmade_run.folder, Pair(1, 1))
    score = json.loads(handmade_run.folder.score_file.read_text())
    done = score["trainings"][0]["speed"]["ops_training"]
    assert found.window_s == pytest.approx(window_s)
    assert found.flops == pytest.approx(done / window_s)
    assert found.vflops == pytest.approx(done / window_s)  # the target was reached exactly
    assert (found.quality, found.quality_alone) == (0.8, 0.8)
    assert (found.repeats, found.attempts) == (1, 1)


def test_slots_are_as_large_at_every_point_as_the_largest_allows(tmp_path: Path) -> None:
    cores = len(usable_cores())
    for largest in {1, cores}:
        points = [Pair(1, 1), Pair(largest, 1)]
        made = Experiment.of(tmp_path, "image-classification", "weak", points, settings())
        each = {made.point_settings(pair).launch.cores_per_rank for pair in points}
        assert each == {cores // largest}


@pytest.mark.parametrize(("same", "batch"), [("rank", 64), ("model", 32)])
def test_the_batch_of_a_rank_or_of_a_model_stays(tmp_path: Path, same: Any, batch: int) -> None:
    made = Experiment(
        tmp_path, "image-classification", "trade-off", (Pair(1, 2),), settings(), same
    )
    found = made.point_settings(Pair(1, 2)).workloads["image-classification"]["train"]
    assert (found["ranks"], found["batch"]) == (2, batch)


def test_a_point_that_does_not_fit_is_refused_before_any_runs(tmp_path: Path) -> None:
    points = [Pair(1, 1), Pair(4096, 1)]
    with pytest.raises(UsageError, match="no room for 4096 models"):
        Experiment.of(tmp_path / "e", "image-classification", "weak", points, settings())
    assert not (tmp_path / "e").exists()


def test_waves_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="say nothing about scaling"):
        Experiment.of(
            tmp_path, "image-classification", "weak", [Pair(1, 1)], settings("bagging.waves=true")
        )


def test_an_experiment_is_not_mixed_with_another(tmp_path: Path) -> None:
    one = [Pair(1, 1)]
    made = Experiment.of(tmp_path, "image-classification", "weak", one, settings())
    RunFolder.create(tmp_path / "1x1", "image-classification", made.point_settings(one[0]))
    Experiment.of(tmp_path, "image-classification", "weak", one, settings())
    with pytest.raises(UsageError, match="with other settings"):
        Experiment.of(tmp_path, "image-classification", "weak", one, settings("seed=2"))
    made.result().write(tmp_path / "scale.json")
    with pytest.raises(UsageError, match="holds another experiment: weak of"):
        Experiment.of(tmp_path, "image-classification", "trade-off", one, settings())


def test_a_point_that_was_only_begun_has_no_figures(tmp_path: Path) -> None:
    made = Experiment.of(tmp_path, "image-classification", "weak", [Pair(1, 1)], settings())
    folder = RunFolder.create(
        tmp_path / "1x1", "image-classification", made.point_settings(Pair(1, 1))
    )
    found = made.result()
    assert not found.complete
    assert found.points[0].run == f"1x1/{folder.path.name}"
    assert found.points[0].figures is None
    assert table(found)[1][-1] == "not complete"


def values(chart: dict[str, Any], series: str) -> list[tuple[Any, Any]]:
    found = [row for rows in chart["layer"] for row in rows.get("data", {}).get("values", ())]
    found = found or [row for rows in chart.get("datasets", {}).values() for row in rows]
    found = found or chart["data"]["values"]
    return list(dict.fromkeys((r["at"], r["value"]) for r in found if r.get("series") == series))


def test_curves_have_the_ideal_line_and_one_start() -> None:
    found = curves(
        scale(point(1, 1, 1e9), point(2, 1, 2e9), point(1, 2, 1.5e9), kind="bagging-vs-data")
    )
    assert [each.id for each in found] == ["flops", "vflops", "time", "quality"]
    speed = found[0].chart
    assert values(speed, "ideal") == [(0, 0), (2, 2e9)]
    assert values(speed, "bagging, P = 1") == [(1, 1e9), (2, 2e9)]
    assert values(speed, "data parallel, M = 1") == [(1, 1e9), (2, 1.5e9)]
    assert values(found[3].chart, "ideal") == []


def test_the_page_draws_every_curve_offline_and_says_what_is_missing(tmp_path: Path) -> None:
    missing = Point(models=2, ranks=2, run=None, figures=None)
    shown = scale(point(4, 1, 4e9), missing, point(1, 4, 3e9), kind="trade-off")
    page = tmp_path / "scale.html"
    write_page(shown, page)
    assert "This experiment is incomplete" in page.read_text()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    done = subprocess.run(
        [browser, *options, "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    for chart in ("flops", "vflops", "time", "quality"):
        drawn = done.stdout.split(f'id="{chart}"')[1]
        assert "<svg" in drawn[:4000], f"chart {chart} was not drawn"
    cells = re.findall(r'<td class="n">([^<]*)</td>', done.stdout)
    assert cells[:4] == ["4 × 1", "4", "4.00 GFLOPS", "100.0 %"]
    assert "75.0 %" in cells


def test_the_file_meets_its_schema(tmp_path: Path) -> None:
    scale(point(1, 1, 1e9), point(2, 1, 2e9)).write(tmp_path / "scale.json")
    data = json.loads((tmp_path / "scale.json").read_text())
    jsonschema.validate(data, schemas()["vflops.scale.json"])
    assert Scale.read(tmp_path / "scale.json").points[1].pair == (2, 1)
