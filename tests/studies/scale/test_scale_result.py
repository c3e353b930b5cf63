"""The points of an experiment, their figures and efficiencies, and the page that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from tests.support.language_models import GPT2, language_graph
from tests.support.scale_points import point, scale, values
from tests.support.trained_runs import HandmadeRun, course, job, trained_graph
from vflops.cli.schemas import schemas
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.placement import Node
from vflops.machine.system.cpu_share import usable_cores
from vflops.record.folder import RunFolder
from vflops.record.formats.job import SampleUnit
from vflops.run.observer import RunObserver
from vflops.run.pipeline import conclude
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.ensemble_figures import _ceilings
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.kinds import sizes
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import HorizontalAxis, Row, lines
from vflops.studies.scale.scale_page import write_page
from vflops.studies.scale.scale_result import Kind, Point, Scale, Size
from vflops.workloads.contract.run_settings import load, profile

ONE = Size(1, 1)


def table(found: Scale) -> list[Any]:
    return axis_of(found.kind).table(found)


def figures_of(found: Scale) -> list[EnsembleFigures]:
    return [own for _, own in found.completed(EnsembleFigures)]


def experiment(folder: Path, points: list[Size], *changes: str, kind: Kind = "weak") -> Experiment:
    return Experiment.create(
        folder, "image-classification", axis_of(kind), points, settings(*changes)
    )


def settings(*changes: str) -> Settings:
    base = profile("tiny", ["image-classification"])
    return load(base, None, changes, keep_batch_per_rank=True)


def test_weak_scaling_adds_models_of_the_same_size() -> None:
    assert sizes("weak", [1, 2, 4], ranks=2) == [Size(1, 2), Size(2, 2), Size(4, 2)]


def test_a_search_adds_workers_of_the_same_size() -> None:
    assert sizes("workers", [1, 2], ranks=4) == [Size(1, 4), Size(2, 4)]


def test_bagging_and_data_parallelism_share_the_point_of_one_slot() -> None:
    pairs = [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)]
    assert sizes("bagging-vs-data", [1, 2, 4]) == [Size(*pair) for pair in pairs]


def test_bagging_of_models_with_several_ranks_shares_its_first_point_too() -> None:
    found = [str(size) for size in sizes("bagging-vs-data", [1, 2, 4], ranks=8)]
    assert found == ["1x8", "2x8", "1x16", "4x8", "1x32"]


def test_kernels_are_profiled_with_more_and_more_ranks() -> None:
    assert [str(size) for size in sizes("kernels", [1, 4])] == ["1x1", "1x4"]


def test_a_trade_off_has_every_pair_of_its_scale() -> None:
    assert [str(size) for size in sizes("trade-off", [6])] == ["6x1", "3x2", "2x3", "1x6"]


def test_a_trade_off_may_have_a_few_numbers_of_models() -> None:
    found = sizes("trade-off", [64], models=[1, 4, 8])
    assert [str(size) for size in found] == ["8x8", "4x16", "1x64"]
    with pytest.raises(UsageError, match="3 models do not divide the 8 slots") as caught:
        sizes("trade-off", [8], models=[2, 3])
    assert caught.value.hint == "choose from 1, 2, 4, 8"


def test_efficiency_is_what_a_slot_does_against_a_slot_of_the_base() -> None:
    found = scale(point(1, 2, 1e9, 0.5), point(4, 2, 3e9, 0.6))
    first, second = figures_of(found)
    assert first.efficiency == first.efficiency_valid == 1
    assert second.efficiency == pytest.approx(0.75)
    assert second.efficiency_valid == pytest.approx(0.75 * 1.2)
    assert found.ideal("rate", 8) == pytest.approx(4e9)


def test_nothing_is_compared_with_what_is_unknown_or_partial() -> None:
    unknown = scale(point(1, 1, None), point(2, 1, 3e9))
    assert [own.efficiency for own in figures_of(unknown)] == [None, None]
    own = point(2, 1, 2e9).figures
    assert own
    partial = point(2, 1, 2e9).model_copy(
        update={"figures": own.model_copy(update={"partial": True})}
    )
    last = scale(point(1, 1, 1e9), partial).points[1].figures
    assert last and last.efficiency is None
    assert table(scale(point(1, 1, 1e9), partial))[2][-1] == "0.5, partial"
    after_partial = scale(partial, point(4, 1, 4e9))
    assert [own.efficiency for own in figures_of(after_partial)] == [None, None]
    assert after_partial.ideal("rate", 8) is None


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
    monkeypatch.setattr("vflops.publish.report.report_page.write_report", lambda contents: None)
    conclude(handmade_run.folder, RunObserver())
    # By the clock that the test sets; times of day are those of the machine.
    monkeypatch.setattr("vflops.record.log.events.Event.utc_s", property(lambda each: each.time_s))
    window_s = 30 + 3 + 6 + 1.5 + 3  # from the job event on, so with 3 s of compilation
    found = Ensembles("weak").figures(handmade_run.folder, Size(1, 1))
    score = json.loads(handmade_run.folder.score_file.read_text())
    done = score["trainings"][0]["speed"]["ops_training"]
    assert found.window_s == pytest.approx(window_s)
    assert found.flops == pytest.approx(done / window_s)
    assert found.flops_epoch == pytest.approx(done / (30 + 3 + 1.5))  # no evaluations
    assert found.vflops == pytest.approx(done / window_s)  # the target was reached exactly
    assert (found.quality, found.quality_alone) == (0.8, 0.8)
    assert (found.repeats, found.attempts) == (1, 1)


def test_repeats_of_an_ensemble_become_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeat(flops: float, achieved: float, partial: bool) -> SimpleNamespace:
        return SimpleNamespace(
            window_s=10.0 * achieved,
            flops=flops,
            flops_epoch=None if partial else 5e9,
            penalty=0.5,
            achieved=achieved,
            mean_quality=achieved - 0.1,
            partial=partial,
            task="closed",
        )

    def alone(repeat: int, attempts: int, reached_s: float) -> SimpleNamespace:
        return SimpleNamespace(
            job=1,
            repeat=repeat,
            attempts=attempts,
            quality=SimpleNamespace(time_to_quality_s=reached_s),
            speed=SimpleNamespace(samples_per_s=10.0 * reached_s),
            unit=None,
            shared=None,
            kernels=(),
            emulated=None,
            task="open",
        )

    scored = SimpleNamespace(
        ceilings=(),
        ensembles=[repeat(2e9, 0.6, False), repeat(4e9, 0.8, True)],
        trainings=[alone(0, 1, 5.0), alone(0, 2, 9.0), alone(1, 1, 3.0), alone(1, 1, 1.0)],
    )
    monkeypatch.setattr("vflops.studies.scale.ensemble_figures.Score.read", lambda path: scored)
    monkeypatch.setattr("vflops.studies.scale.ensemble_figures.checks_failed", lambda folder: 3)
    folder = RunFolder.create(tmp_path, "image-classification", settings())
    found = Ensembles("weak").figures(folder, Size(2, 1))
    assert (found.flops, found.flops_least, found.flops_most) == (3e9, 2e9, 4e9)
    assert found.flops_epoch is None  # one repeat does not have it
    assert found.vflops == 1.5e9
    assert found.window_s == pytest.approx(7)
    assert found.quality == pytest.approx(0.7)
    assert found.quality_alone == pytest.approx(0.6)
    assert (found.repeats, found.attempts, found.checks_failed) == (2, 2, 3)
    assert found.partial
    assert found.penalty == 0.5
    assert found.samples_per_s == 45  # of a model: the mean of 50, 90, 30 and 10
    assert found.sent_near_b_per_s is None
    assert found.usage is None
    assert found.time_to_quality_s == 6  # the mean of the slowest models, 9 and 3
    scored.trainings[0].quality.time_to_quality_s = None
    assert Ensembles("weak").figures(folder, Size(2, 1)).time_to_quality_s is None


def test_convolutions_are_not_shown_beside_a_model_without_any() -> None:
    measured: dict[str, Any] = {"unit": "FLOPS", "precision": "fp32", "value": 1e9, "caveat": None}
    scored: Any = SimpleNamespace(
        ceilings=[
            SimpleNamespace(benchmark=name, case="peak", reason=None, node=None, **measured)
            for name in ("gemm", "convolution")
        ]
    )
    transformer, network = language_graph(GPT2), trained_graph()
    for graphs, shown in (
        ([transformer], ["gemm"]),
        ([transformer, network], ["gemm", "convolution"]),
        ([], ["gemm", "convolution"]),
    ):
        assert [ceiling.benchmark for ceiling in _ceilings(scored, graphs)] == shown


def test_slots_are_as_large_at_every_point_as_the_largest_allows(tmp_path: Path) -> None:
    cores = len(usable_cores())
    for largest in {1, cores}:
        points = [Size(1, 1), Size(largest, 1)]
        made = experiment(tmp_path, points)
        each = {made.point_settings(size).launch.cores_per_rank for size in points}
        assert each == {cores // largest}


@pytest.mark.parametrize(("given", "batch"), [(["train.batch_per_rank=32"], 64), ([], 32)])
def test_the_batch_of_a_rank_or_of_a_model_stays(
    tmp_path: Path, given: list[str], batch: int
) -> None:
    axis, size = axis_of("trade-off"), Size(1, 2)
    made = Experiment(tmp_path, "image-classification", axis, (size,), settings(*given))
    found = made.point_settings(size).workloads["image-classification"]["train"]
    assert (found["ranks"], found["batch"]) == (2, batch)


@pytest.mark.parametrize(
    ("mode", "batch"), [("sharded", 128), ("pipeline", 32), ("mixed", 64), ("data", 128)]
)
def test_the_batch_grows_with_the_copies_of_a_model_and_not_with_its_parts(
    tmp_path: Path, mode: str, batch: int
) -> None:
    sharing = {"parallel.mode": mode}
    if mode in ("pipeline", "mixed"):
        sharing |= {"train.accumulate": "4"}
    if mode == "mixed":
        sharing |= {"train.parallel.mesh": "[2, 2]"}
    axis, sizes = axis_of("bagging-vs-data", (), sharing), (Size(1, 1), Size(1, 4))
    given = settings("train.batch_per_rank=32")
    made = Experiment(tmp_path, "image-classification", axis, sizes, given)
    one, four = (
        made.point_settings(size).workloads["image-classification"]["train"] for size in sizes
    )
    assert (one["batch"], one["parallel"]["mode"]) == (32, "data")
    assert (four["batch"], four["parallel"]["mode"]) == (batch, mode)


def test_a_point_that_does_not_fit_is_refused_before_any_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no room for 4096 models"):
        experiment(tmp_path / "e", [Size(1, 1), Size(4096, 1)])
    assert not (tmp_path / "e").exists()


def on_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch, slots: list[int], *points: Size) -> int:
    """The ranks per node of an experiment on a cluster whose nodes have these slots."""
    nodes = [Node(f"node{number}", each) for number, each in enumerate(slots)]
    slurm = "vflops.launch.slurm.slurm_launcher"
    monkeypatch.setattr(f"{slurm}.require_slurm", lambda: None)
    monkeypatch.setattr(f"{slurm}.current_allocation", lambda: None)
    monkeypatch.setattr(f"{slurm}.nodes_for_ranks", lambda *launch: nodes)
    monkeypatch.setattr("vflops.run.validate.check_launch", lambda launch: None)
    given = ("launch.on=slurm", "train.device=cpu", "train.batch_per_rank=32")
    made = experiment(folder, list(points), *given)
    (found,) = {made.point_settings(size).launch.ranks_per_node for size in points}
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("slots", "points", "expected"),
    [
        ([2, 2, 2, 2], sizes("trade-off", [4]), 2),  # models of 4 ranks span nodes of 2
        ([2, 2, 2, 2], sizes("bagging-vs-data", [1, 2], 2), 2),
        ([8, 8, 8, 2], [Size(3, 8)], 8),  # the small node is left out
        ([4, 2, 2], [Size(3, 2)], 2),  # the large one is used in part
        ([4, 2, 2], [Size(1, 3)], 4),  # 3 ranks do not fill nodes of 2
    ],
)
def test_models_share_the_nodes_of_a_cluster_or_span_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slots: list[int],
    points: list[Size],
    expected: int,
) -> None:
    assert on_slurm(tmp_path, monkeypatch, slots, *points) == expected


@pytest.mark.parametrize(
    ("size", "said", "hint"),
    [
        (Size(16, 1), "no room for 16 models of 1 rank", "choose "),
        (Size(1, 3), "3 ranks of a model do not fill nodes of 2 ranks", "use a multiple of 2"),
    ],
)
def test_a_size_that_the_nodes_of_a_cluster_cannot_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Size, said: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        on_slurm(tmp_path, monkeypatch, [2, 2, 2, 2], ONE, size)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("ticks", "places", "domain"),
    [((1, 2, 4), (1,), [1, 4]), ((1, 2, 4), (0, 2), [0, 4]), ((2,), (2,), [1, 3])],
)
def test_an_axis_has_room_for_all_ticks(
    ticks: tuple[int, ...], places: tuple[int, ...], domain: list[int]
) -> None:
    """Before all points are complete, too: labels of ticks outside would overprint each other."""
    rows = [Row(place, 1.0) for place in places]
    chart = lines(rows, HorizontalAxis("slots", ticks), "FLOPS")
    across = chart["layer"][0]["encoding"]["x"]
    assert (across["scale"]["domain"], across["axis"]["values"]) == (domain, list(ticks))


def test_waves_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="do not show scaling"):
        experiment(tmp_path, [ONE], "bagging.waves=true")


def begun(made: Experiment, size: Size) -> RunFolder:
    """The run folder of a point, with nothing in it."""
    return RunFolder.create(made.folder / str(size), made.workload, made.point_settings(size))


def test_points_of_other_settings_are_refused_by_the_names_of_these(tmp_path: Path) -> None:
    begun(experiment(tmp_path, [ONE]), ONE)
    experiment(tmp_path, [ONE])
    with pytest.raises(UsageError, match=r"other settings: seed is 1 there, 2 here(?m:$)"):
        experiment(tmp_path, [ONE], "seed=2")
    with pytest.raises(UsageError, match=r"train\.epochs is \d+ there, 77 here(?m:$)"):
        experiment(tmp_path, [ONE], "train.epochs=77")
    many = ("seed=2", "micro.ranks=3", "count.batch=9", "telemetry.interval_s=2", "train.epochs=77")
    with pytest.raises(UsageError, match=r"interval_s is [^;]*; 1 more(?m:$)"):
        experiment(tmp_path, [ONE], *many)


def test_an_experiment_is_not_mixed_with_another(tmp_path: Path) -> None:
    experiment(tmp_path, [ONE]).result().write(tmp_path / "scale.json")
    with pytest.raises(UsageError, match="holds another experiment: weak of"):
        experiment(tmp_path, [ONE], kind="trade-off")


def test_a_point_that_was_only_begun_has_no_figures(tmp_path: Path) -> None:
    made = experiment(tmp_path, [ONE])
    folder = begun(made, ONE)
    found = made.result()
    assert not found.complete
    assert found.points[0].run == f"1x1/{folder.path.name}"
    assert found.points[0].figures is None
    assert table(found)[1][-1] == "not complete"


def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first point is complete, the second was broken off, the third is not begun."""
    points = [Size(1, 1), Size(2, 1), Size(1, 2)]
    made = experiment(tmp_path, points, kind="bagging-vs-data")
    done: list[tuple[str, Any]] = []

    def finish(folder: RunFolder) -> None:
        with folder.start_attempt(job=0) as log:
            log.write("end")

    def start(parent: Path, workload: str, settings: Settings, watch: RunObserver) -> RunFolder:
        folder = RunFolder.create(parent, workload, settings)
        finish(folder)
        done.append(("start", parent.name))
        return folder

    def resume(folder: RunFolder, watch: RunObserver) -> None:
        finish(folder)
        done.append(("resume", folder.path.parent.name))

    def conclude(folder: RunFolder, watch: RunObserver) -> None:
        for path in folder.result_files:
            path.touch()
        done.append(("conclude", folder.path.parent.name))

    figures = [point(size.jobs, size.ranks, 1e9).figures for size in points]
    monkeypatch.setattr("vflops.run.continued.pipeline", SimpleNamespace(**locals()))
    monkeypatch.setattr("vflops.studies.scale.scale_page.chart_library", str)
    monkeypatch.setattr(Ensembles, "figures", lambda self, folder, size: figures[0])
    first = begun(made, points[0])
    finish(first)
    conclude(first, RunObserver())
    begun(made, points[1])
    done.clear()
    found = made.run(RunObserver())
    assert done == [
        ("resume", "2x1"),
        ("conclude", "2x1"),
        ("start", "1x2"),
        ("conclude", "1x2"),
    ]
    assert found.complete
    assert Scale.read(tmp_path / "scale.json") == found
    assert "Bagging against data parallelism: image-class" in (tmp_path / "scale.html").read_text()


def test_curves_have_the_ideal_line_and_one_start() -> None:
    shown = scale(point(1, 1, 1e9), point(2, 1, 2e9), point(1, 2, 1.5e9), kind="bagging-vs-data")
    found = axis_of("bagging-vs-data").curves(shown)
    assert [each.id for each in found] == ["flops", "vflops", "efficiency", "quality", "time"]
    speed = found[0].chart
    assert values(speed, "ideal") == [(0, 0), (2, 2e9)]
    assert values(speed, "bagging, P = 1") == [(1, 1e9), (2, 2e9)]
    assert values(speed, "data parallel, M = 1") == [(1, 1e9), (2, 1.5e9)]
    assert values(found[3].chart, "ideal") == []


def test_bagging_and_data_parallelism_have_an_efficiency_at_any_p() -> None:
    points = point(1, 8, 8e9), point(2, 8, 15.2e9), point(1, 16, 12e9)
    shown = scale(*points, kind="bagging-vs-data")
    (efficiency,) = (c for c in axis_of("bagging-vs-data").curves(shown) if c.id == "efficiency")
    assert values(efficiency.chart, "bagging, P = 8") == [(8, 1), (16, 0.95)]
    assert values(efficiency.chart, "data parallel, M = 1") == [(8, 1), (16, 0.75)]
    assert values(efficiency.chart, "ideal") == [(8, 1), (16, 1)]


def test_flops_and_vflops_are_one_chart_of_weak_scaling() -> None:
    shown = scale(point(1, 1, 1e9, 0.5), point(2, 1, 2e9, 0.5))
    first = axis_of("weak").curves(shown)[0].chart
    assert values(first, "FLOPS") == [(1, 1e9), (2, 2e9)]
    assert values(first, "VFLOPS") == [(1, 0.5e9), (2, 1e9)]
    assert values(first, "ideal") == [(0, 0), (2, 2e9)]


def test_a_trade_off_shows_the_speed_of_a_model_above_its_quality() -> None:
    shown = scale(point(4, 1, 4e9, 0.6), point(1, 4, 3e9, 0.5), kind="trade-off")
    above, below = axis_of("trade-off").curves(shown)[0].chart["vconcat"]
    assert values(above, "measured") == [("4 × 1", 250), ("1 × 4", 4000)]
    assert values(below, "measured") == [("4 × 1", 0.6), ("1 × 4", 0.5)]
    assert table(shown)[0][1] == "samples/s"
    assert [row[1] for row in table(shown)[1:]] == ["250", "4.00 k"]
    windows = [in_tokens(item, 64) for item in shown.points]
    shown = shown.model_copy(update={"points": tuple(windows)})
    assert table(shown)[0][1] == "tokens/s"
    assert [row[1] for row in table(shown)[1:]] == ["16.0 k", "256 k"]
    above, _ = axis_of("trade-off").curves(shown)[0].chart["vconcat"]
    assert values(above, "measured") == [("4 × 1", 16_000), ("1 × 4", 256_000)]


def in_tokens(item: Point, count: int) -> Point:
    """Return the point of a model whose samples are windows of ``count`` tokens."""
    assert item.figures is not None
    unit = SampleUnit(name="tokens", count=count)
    figures = item.figures.model_copy(update={"unit": unit})
    return item.model_copy(update={"figures": figures})


def test_the_page_shows_every_pair_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflops.studies.scale.scale_page.chart_library", str)
    missing = Point(jobs=2, ranks=2, run=None, figures=None)
    shown = scale(point(4, 1, 4e9), missing, point(1, 4, 3e9), kind="trade-off")
    write_page(shown, tmp_path / "scale.html")
    page = (tmp_path / "scale.html").read_text()
    assert "This experiment is incomplete" in page
    for chart in ("trade-off", "flops", "vflops", "time"):
        assert f'id="{chart}"' in page
    cells = re.findall(r'<td class="n">([^<]*)</td>', page)
    assert cells[:5] == ["4 × 1", "250", "4.00 GFLOPS", "—", "100.0 %"]
    assert "75.0 %" in cells


def test_the_file_meets_its_schema(tmp_path: Path) -> None:
    scale(point(1, 1, 1e9), point(2, 1, 2e9)).write(tmp_path / "scale.json")
    data = json.loads((tmp_path / "scale.json").read_text())
    jsonschema.validate(data, schemas()["vflops.scale.json"])
    assert Scale.read(tmp_path / "scale.json").points[1].size == Size(2, 1)


def test_short_points_and_missing_ones_are_warned_of() -> None:
    short = scale(point(1, 1, 1e9), Point(jobs=2, ranks=1, run=None, figures=None))
    assert [headline for headline, _ in short.warnings] == [
        "This experiment is incomplete",
        "Points took only seconds",
    ]


def test_a_copy_as_published_has_the_vflops_and_efficiency_of_the_papers() -> None:
    def exceeding(models: int, factor: float) -> Point:
        plain = point(models, 1, models * 1e9)
        assert isinstance(plain.figures, EnsembleFigures)
        update = {"vflops": models * 1e9, "vflops_published": factor * models * 1e9}
        return plain.model_copy(update={"figures": plain.figures.model_copy(update=update)})

    own = scale(exceeding(1, 2.0), exceeding(2, 1.5))
    published = own.as_published()
    assert (own.vflops_name, published.vflops_name) == ("VFLOPS", "VFLOPS as published")
    for found, vflops, efficiency in ((own, 2e9, 1.0), (published, 3e9, 0.75)):
        figures = found.points[1].figures
        assert isinstance(figures, EnsembleFigures)
        assert figures.vflops == vflops
        assert figures.efficiency_valid == pytest.approx(efficiency)
    curves = {curve.id: curve for curve in axis_of("weak").curves(published)}
    assert curves["flops"].title == "FLOPS and VFLOPS as published"
    assert values(curves["flops"].chart, "VFLOPS as published") == [(1, 2e9), (2, 3e9)]
