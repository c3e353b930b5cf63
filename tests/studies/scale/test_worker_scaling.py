"""Searches with one worker and with two, side by side: AIPerf's figure 4."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.browser import chromium
from tests.support.sample_parts import write_system
from tests.support.search_runs import HandmadeSearch, Note, one_worker, started
from vflops.cli.schemas import schemas
from vflops.cli.train import scale
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.placement import Node
from vflops.run.observer import RunObserver
from vflops.run.pipeline import conclude
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.point_figures import SearchFigures
from vflops.studies.scale.scale_page import write_page
from vflops.studies.scale.scale_result import Point, Scale, Size
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.contract.run_settings import load, profile

AXIS = axis_of("workers")
ONE, TWO = Size(1, 1), Size(2, 1)
OPS = 30 * 1000 + 10 * 200
"""Of an epoch of a handmade search, its evaluation included."""


def settings(*changes: str) -> Settings:
    return load(profile("tiny", ["automl"]), None, changes)


def other_worker(run: HandmadeSearch) -> list[Note]:
    """One candidate of two epochs, the better one."""
    own = run.propose(Turn(round=0, worker=1))
    return [(9.0, "job", started()), *run.trained(own, 20.0, 0.5, 0.9), (100.0, "end", {})]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an experiment whose two searches were written by hand."""
    place = tmp_path_factory.mktemp("experiment")
    for size, notes in ((ONE, (one_worker,)), (TWO, (one_worker, other_worker))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "vflops.publish.report.report_page.write_report",
                lambda contents: contents.folder.report_file.touch(),
            )
            run = HandmadeSearch(place / str(size), patch, workers=size.jobs)
            write_system(run.folder)
            for worker, written in enumerate(notes):
                run.worker(worker, written(run))
            conclude(run.end(), RunObserver())
    yield place


@pytest.fixture(scope="module")
def found(place: Path) -> Scale:
    return Experiment(place, "automl", AXIS, (ONE, TWO), settings()).result()


def figures_of(found: Scale) -> list[SearchFigures]:
    return [own for _, own in found.completed(SearchFigures)]


def test_both_scores_are_compared_with_those_of_the_fewest_workers(found: Scale) -> None:
    one, two = figures_of(found)
    assert one.ops_per_s and two.ops_per_s and one.regulated and two.regulated
    assert (one.efficiency, one.efficiency_valid) == (1, 1)
    assert two.efficiency == pytest.approx(two.ops_per_s / one.ops_per_s / 2)
    assert two.efficiency_valid == pytest.approx(two.regulated / one.regulated / 2)
    assert one.moments[-1].ops == 3 * OPS + 300 * 30  # the third candidate was cut
    assert two.moments[-1].ops == 5 * OPS + 300 * 30
    assert found.ideal("rate", 2) == pytest.approx(2 * one.ops_per_s)


def test_a_point_says_what_it_found_and_how(found: Scale) -> None:
    one, two = figures_of(found)
    assert one.error == pytest.approx(0.2)
    assert two.error == pytest.approx(0.1)
    assert (one.architectures, two.architectures) == (2, 2)  # workers begin with one network
    assert one.converged is False
    assert (one.partial, one.attempts) == (False, 1)
    assert (found.quality_name, found.target, found.same_batch) == ("error", 0.3, None)
    header, first, second = AXIS.table(found)
    assert (header[0], header[6], first[0], second[0]) == ("workers", "tried", "1", "2")
    assert (first[5], first[6], first[-1]) == ("0.2", "2", "no")


def test_points_that_are_no_results_are_named_with_the_reason(found: Scale) -> None:
    (one, why), (two, _), *unmeasured = AXIS.remarks(found)
    assert (one, two) == ("1 worker", "2 workers")
    assert all(remark.endswith("nothing was sampled") for _, remark in unmeasured)
    assert why.startswith("not a valid result by AIPerf's rules: it took 1 min 40 s")
    assert "images of another size: size is 8" in why  # what the paper fixes, too
    unlike = AXIS.deviations(found)
    assert len(set(unlike)) == len(unlike)
    assert any("search.inherit=false" in line for line in unlike)


def test_a_worker_that_did_not_end_leaves_nothing_to_compare(found: Scale) -> None:
    one, two = found.points
    assert two.figures
    lost = two.model_copy(
        update={"figures": two.figures.model_copy(update={"partial": True, "attempts": 3})}
    )
    broken = found.model_copy(update={"points": (one, lost)})
    for each in (broken, found.model_copy(update={"points": (lost,)})):
        assert each.with_efficiency().points[-1].figures == lost.figures
    assert AXIS.table(broken)[-1][-1] == "no, partial, 3 attempts"


def test_the_regulated_score_of_an_error_of_0_is_not_defined(found: Scale) -> None:
    one, two = found.points
    assert one.figures and two.figures
    perfect, unknown = ({"error": error, "regulated": None} for error in (0.0, None))
    points = (
        one.model_copy(update={"figures": one.figures.model_copy(update=perfect)}),
        two.model_copy(update={"figures": two.figures.model_copy(update=unknown)}),
    )
    _, first, second = AXIS.table(found.model_copy(update={"points": points}))
    assert (first[3], second[3]) == ("not defined for an error of 0", "—")


def test_a_dead_worker_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflops.publish.report.report_page.write_report", lambda contents: None)
    run = HandmadeSearch(tmp_path, monkeypatch, workers=2)
    write_system(run.folder)
    run.worker(0, one_worker(run))
    run.worker(1, other_worker(run)[:-1])
    run.worker(1, [(95.0, "job", started())], began_s=94.0)
    folder = run.end()
    conclude(folder, RunObserver())
    own = AXIS.figures(folder, TWO)
    assert (own.partial, own.attempts) == (True, 2)


def rows_of(chart: dict[str, Any]) -> list[dict[str, Any]]:
    layers = [chart, *chart.get("layer", ())]
    return [row for layer in layers for row in layer.get("data", {}).get("values", ())]


def test_scores_are_drawn_over_workers_and_over_time(found: Scale) -> None:
    curves = {curve.id: curve.chart for curve in AXIS.curves(found)}
    assert list(curves) == ["ops", "ops-time", "regulated", "regulated-time", "error"]
    one, two = figures_of(found)
    for name, values in (
        ("ops", (one.ops_per_s, two.ops_per_s)),
        ("regulated", (one.regulated, two.regulated)),
    ):
        rows = {(row["series"], row["at"]): row["value"] for row in rows_of(curves[name])}
        assert (rows["measured", 1], rows["measured", 2]) == values
        assert rows["ideal", 2] == pytest.approx(2 * (values[0] or 0))
        course = [r for r in rows_of(curves[f"{name}-time"]) if r["size"] == "2 workers"]
        assert max(row["value"] for row in course if row["counts"]) == values[1]
    marks = [row.get("label") for row in rows_of(curves["error"])]
    assert "valid up to 0.3" in marks
    assert AXIS.curves(Scale(**{**dict(found), "points": ()})) == []


def test_the_page_draws_every_curve_offline(found: Scale, tmp_path: Path) -> None:
    missing = Point(jobs=4, ranks=1, run=None, figures=None)
    page = tmp_path / "scale.html"
    write_page(found.model_copy(update={"points": (*found.points, missing)}), page)
    told = page.read_text()
    assert "Score against workers: automl" in told
    assert "<b>2 workers:</b> not a valid result by AIPerf&#39;s rules" in told
    assert "This experiment is incomplete" in told
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"]
    done = subprocess.run(
        [
            chromium(),
            *options,
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    for chart in ("ops", "ops-time", "regulated", "regulated-time", "error"):
        drawn = done.stdout.split(f'id="{chart}"')[1]
        assert "<svg" in drawn[:4000], f"chart {chart} was not drawn"


def test_the_file_of_a_search_meets_its_schema(found: Scale, tmp_path: Path) -> None:
    found.write(tmp_path / "scale.json")
    jsonschema.validate(
        json.loads((tmp_path / "scale.json").read_text()), schemas()["vflops.scale.json"]
    )
    assert Scale.read(tmp_path / "scale.json") == found


def test_points_differ_in_workers_and_in_nothing_else(tmp_path: Path) -> None:
    made = Experiment.create(tmp_path, "automl", AXIS, [ONE, TWO], settings("search.duration_s=6"))
    one, two = (made.point_settings(size).workloads["automl"] for size in (ONE, TWO))
    assert (one["search"].pop("workers"), two["search"].pop("workers")) == (1, 2)
    assert one == two
    assert made.settings.seed == made.point_settings(TWO).seed
    assert one["search"]["duration_s"] == 6


@pytest.mark.parametrize(("most", "order"), [(15, "ordered"), (16, "free")])
def test_all_points_search_in_the_order_of_the_largest(most: int, order: str) -> None:
    found = AXIS.common_settings(settings(), "automl", [ONE, Size(most, 1)])
    assert found == {"search.order": order}
    told = AXIS.common_settings(settings("search.order=free"), "automl", [ONE])
    assert told == {"search.order": "free"}


def test_what_a_search_could_not_be_run_with_is_refused_first(tmp_path: Path) -> None:
    for size, change, said in (
        (Size(4096, 1), "seed=1", "4,096 workers × 1 rank do not fit"),
        (ONE, "repeat=2", "is a search, which a run cannot repeat"),
    ):
        with pytest.raises(UsageError, match=said):
            Experiment.create(tmp_path / "e", "automl", AXIS, [ONE, size], settings(change))
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("ranks", [None, 8])
def test_each_accelerator_has_the_batch_of_the_profile_at_every_point(
    ranks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Experiment] = []
    places = [Node("a", 16)]
    monkeypatch.setattr("vflops.launch.nodes.usable_nodes", lambda launch, device, ranks: places)
    monkeypatch.setattr(scale, "run_experiment", lambda experiment, **_: made.append(experiment))
    monkeypatch.setattr("vflops.run.validate._check_room", lambda *_, **__: None)
    scale.scale("automl", workers="1,2", ranks=ranks, profile="aiperf", on="local")
    for size in made[0].sizes:
        train = made[0].point_settings(size).workloads["automl"]["train"]
        assert (train["ranks"], train["batch"]) == (ranks or 1, 448 * (ranks or 1))
