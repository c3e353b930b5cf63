"""One training in several ways: what is compared, what is refused, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.cli.schemas import schemas
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.run.observer import RunObserver
from vflops.run.pipeline import conclude
from vflops.studies.scale.axis import Axis, axis_of
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.kinds import sizes
from vflops.studies.scale.point_figures import CeilingFigure, EnsembleFigures
from vflops.studies.scale.scale_page import write_page
from vflops.studies.scale.scale_result import Kind, Point, Scale, Size, Variant
from vflops.studies.scale.variant_choice import optimisations, parse_variants, precisions
from vflops.workloads.contract.run_settings import load, profile

WORKLOAD = "image-classification"
NO_TF32 = "precision tf32 is not available here: a CPU has no tf32"


def settings(*changes: str) -> Settings:
    return load(profile("tiny", [WORKLOAD]), None, ["train.device=cpu", *changes])


def made(
    place: Path, variants: tuple[Variant, ...], scales: list[int], kind: Kind = "precisions"
) -> Experiment:
    axis = axis_of(kind, variants)
    return Experiment.create(place, WORKLOAD, axis, sizes(kind, scales, 1, variants), settings())


def point(variant: str, ranks: int, flops: float | None, quality: float, **own: Any) -> Point:
    figures = EnsembleFigures(
        repeats=1,
        partial=own.pop("partial", False),
        attempts=1,
        checks_failed=0,
        window_s=100.0,
        flops=flops,
        flops_least=flops,
        flops_most=flops,
        vflops=None if flops is None else flops * min((quality / 0.8) ** 5, 1),
        vflops_published=None if flops is None else flops * (quality / 0.8) ** 5,
        quality=quality,
        quality_alone=quality,
        quality_factor=min((quality / 0.8) ** 5, 1),
        penalty=(quality / 0.8) ** 5,
        **own,
    )
    run = f"{variant}/1x{ranks}/run"
    return Point(jobs=1, ranks=ranks, variant=variant, run=run, figures=figures)


def scale(variants: tuple[Variant, ...], *points: Point, kind: Kind = "precisions") -> Scale:
    return Scale(
        workload=WORKLOAD,
        kind=kind,
        profile="tiny",
        on="local",
        cores_per_rank=1,
        same_batch="rank",
        quality_name="top-1 accuracy",
        target=0.8,
        variants=variants,
        points=points,
    ).with_efficiency()


def axis(found: Scale) -> Axis:
    return axis_of(found.kind, found.variants)


@pytest.fixture
def by_precision() -> Scale:
    refused = Point(jobs=1, ranks=1, variant="tf32", refused=NO_TF32, run=None, figures=None)
    return scale(
        precisions(["fp32", "mixed-bf16", "tf32"]),
        point("fp32", 1, 1e9, 0.803),
        point("mixed-bf16", 1, 2e9, 0.8),
        refused,
        point("fp32", 2, 2e9, 0.75),
        point("mixed-bf16", 2, 3e9, 0.76),
        refused.model_copy(update={"ranks": 2}),
    )


@pytest.fixture
def by_optimisation() -> Scale:
    return scale(
        optimisations("fp32"),
        point("original", 2, 1e9, 0.8, time_to_quality_s=90.0, exchanged_bytes=4e6),
        point("mixed", 2, 2e9, 0.79, exchanged_bytes=4e6, emulated="emulated: no bf16"),
        point("compression", 2, 1.2e9, 0.8, time_to_quality_s=80.0, exchanged_bytes=2e6),
        point("mixed+compression", 2, 2.5e9, 0.8, time_to_quality_s=40.0, exchanged_bytes=2e6),
        kind="optimisations",
    )


def test_the_original_is_plain_and_mixed_as_the_profile_has_it() -> None:
    original, mixed, compression, both = optimisations("mixed-fp16")
    assert original.settings == {
        "train.precision": "fp32",
        "train.communication.mode": "all-reduce",
        "train.communication.precision": "fp32",
    }
    assert mixed.settings == {**original.settings, "train.precision": "mixed-fp16"}
    assert compression.settings == {**original.settings, "train.communication.precision": "fp16"}
    assert both.settings == {**mixed.settings, "train.communication.precision": "fp16"}
    assert optimisations("tf32")[1].settings["train.precision"] == "mixed-bf16"


def test_variants_of_ones_own_are_any_settings() -> None:
    found = parse_variants(["plain", "torus=parallel.mesh=[2, 2],communication.mode=torus"])
    assert found == (
        Variant(name="plain", settings={}),
        Variant(
            name="torus",
            settings={"parallel.mesh": "[2, 2]", "communication.mode": "torus"},
        ),
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["../up=seed=2"], "is not a valid folder name"),
        (["a=seed"], "'seed' has no '='"),
        (["a=train.ranks=4"], "train.ranks is the same for all variants"),
        (["a=models=4"], "models is the same for all variants"),
        (["a=seed=1", "b", "a=seed=2"], "--variant a is given 2 times"),
    ],
)
def test_variants_that_are_none_are_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_variants(texts)


def test_fp32_is_what_other_precisions_are_compared_with() -> None:
    found = precisions(["mixed-fp16", "fp32"])
    assert [each.name for each in found] == ["fp32", "mixed-fp16"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["fp32", "fp32"], "--precisions fp32 is given 2 times"),
        ([""], "--precisions '' is empty"),
        (["fp32", ""], "'fp32,' has an empty name"),
        (["fp31"], "unknown training precision 'fp31'"),
    ],
)
def test_precisions_that_are_none_or_there_twice_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        precisions(names)


def test_each_point_has_the_settings_of_its_variant_and_a_folder(tmp_path: Path) -> None:
    experiment = made(tmp_path, precisions(["fp32", "mixed-bf16"]), [1])
    trained = [experiment.point_settings(size).workloads[WORKLOAD] for size in experiment.sizes]
    assert [each["train"].pop("precision") for each in trained] == ["fp32", "mixed-bf16"]
    assert trained[0] == trained[1]
    assert [str(size) for size in experiment.sizes] == ["fp32/1x1", "mixed-bf16/1x1"]


def test_what_a_machine_lacks_is_listed_with_the_reason(tmp_path: Path) -> None:
    experiment = made(tmp_path, precisions(["fp32", "tf32"]), [1])
    assert experiment.refused == {Size(1, 1, "tf32"): NO_TF32}
    fp32, tf32 = experiment.result().points
    assert (fp32.refused, tf32.refused, tf32.figures) == (None, NO_TF32, None)


def test_what_does_not_go_together_at_a_size_is_listed(tmp_path: Path) -> None:
    experiment = made(tmp_path, optimisations("fp32"), [1], kind="optimisations")
    assert [size.variant for size in experiment.refused] == ["compression", "mixed+compression"]
    why = experiment.refused[Size(1, 1, "compression")]
    assert "communication all-reduce in fp16 needs 2 or more ranks" in why


def test_wrong_words_are_no_refused_variant(tmp_path: Path) -> None:
    for text, said in (
        ("a=train.precison=fp32", "unknown setting 'train.precison'"),
        ("a=train.precision=fp33", "train.precision = 'fp33'"),
    ):
        with pytest.raises(UsageError, match=said):
            made(tmp_path / "e", parse_variants(["plain", text]), [1], kind="optimisations")
    with pytest.raises(UsageError, match="no point of this experiment can be run here: prec"):
        made(tmp_path / "e", precisions(["tf32"]), [1])
    with pytest.raises(UsageError, match="no room for 4096 models"):
        made(tmp_path / "e", parse_variants(["plain"]), [4096], kind="optimisations")
    assert not (tmp_path / "e").exists()


def test_only_what_can_be_had_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = made(tmp_path, precisions(["fp32", "tf32", "mixed-bf16"]), [1])
    ran: list[str] = []

    def start(parent: Path, workload: str, wanted: Settings, watch: RunObserver) -> RunFolder:
        folder = RunFolder.create(parent, workload, wanted)
        with folder.start_attempt(job=0) as log:
            log.write("end")
        ran.append(str(parent.relative_to(tmp_path)))
        return folder

    def conclude(folder: RunFolder, watch: RunObserver) -> None:
        for path in folder.result_files:
            path.touch()

    figures = point("fp32", 1, 1e9, 0.8).figures
    monkeypatch.setattr("vflops.run.continued.pipeline", SimpleNamespace(**locals()))
    monkeypatch.setattr("vflops.studies.scale.scale_page.write_page", lambda scale, path: None)
    monkeypatch.setattr(Ensembles, "figures", lambda self, folder, size: figures)
    for _ in range(2):  # the same command goes on: there is nothing left
        found = experiment.run(RunObserver())
        assert ran == ["fp32/1x1", "mixed-bf16/1x1"]
    assert found.complete
    assert [each.refused for each in found.points] == [None, NO_TF32, None]
    with pytest.raises(UsageError, match=r"train\.precision is fp32 there, fp16 here"):
        made(tmp_path, parse_variants(["fp32=train.precision=fp16"]), [1], kind="precisions")


def test_a_variant_is_compared_with_the_first_at_the_same_size(by_precision: Scale) -> None:
    own = {point.size: figures for point, figures in by_precision.completed(EnsembleFigures)}
    assert own[Size(1, 1, "fp32")].speedup == 1
    assert own[Size(1, 1, "mixed-bf16")].speedup == 2
    assert own[Size(1, 2, "mixed-bf16")].speedup == 1.5
    assert own[Size(1, 1, "mixed-bf16")].quality_change == pytest.approx(-0.003)
    assert own[Size(1, 2, "mixed-bf16")].quality_change == pytest.approx(0.01)
    # Each variant is compared with its own smallest size, not with the first variant's.
    assert own[Size(1, 1, "mixed-bf16")].efficiency == own[Size(1, 2, "fp32")].efficiency == 1
    assert own[Size(1, 2, "mixed-bf16")].efficiency == 0.75


def test_nothing_is_compared_with_what_is_missing() -> None:
    both = precisions(["fp32", "mixed-bf16"])
    for found in (
        scale(both, point("mixed-bf16", 1, 2e9, 0.8)),
        scale(both, point("fp32", 1, 1e9, 0.8, partial=True), point("mixed-bf16", 1, 2e9, 0.8)),
    ):
        own = found.points[-1].figures
        assert isinstance(own, EnsembleFigures)
        assert (own.speedup, own.quality_change) == (None, None)
    unknown = scale(both, point("fp32", 1, None, 0.8), point("mixed-bf16", 1, 2e9, 0.8))
    own = unknown.points[-1].figures
    assert isinstance(own, EnsembleFigures)
    assert (own.speedup, own.quality_change) == (None, 0)


def test_the_table_shows_the_quality_that_a_precision_costs(by_precision: Scale) -> None:
    names, fp32, mixed, tf32, *_, last = axis(by_precision).table(by_precision)
    assert names[:5] == ("precision", "P", "top-1 accuracy", "against fp32", "factor")
    assert (fp32[3], fp32[-1]) == ("0", "1.00 ×")
    assert (mixed[0], mixed[3], mixed[4], mixed[-1]) == ("mixed-bf16", "−0.003", "1", "2.00 ×")
    assert tf32 == ("tf32", "1", *("—",) * 5, "refused")
    assert len({len(row) for row in (names, fp32, tf32, last)}) == 1
    assert axis(by_precision).remarks(by_precision) == [("tf32", f"refused: {NO_TF32}")]


def test_the_table_of_optimisations_has_speed_efficiency_and_time(by_optimisation: Scale) -> None:
    names, original, mixed, compression, both = axis(by_optimisation).table(by_optimisation)
    assert names[-4:] == ("VFLOPS", "speed-up", "top-1 accuracy", "to target")
    assert original[3:] == ("100.0 %", "1.00 GVFLOPS", "1.00 ×", "0.8", "1 min 30 s")
    assert mixed[5:] == ("2.00 ×", "0.79 (−0.01)", "—")
    assert (compression[0], compression[5]) == ("compression", "1.20 ×")
    assert both[5:] == ("2.50 ×", "0.8", "40 s")
    assert axis(by_optimisation).remarks(by_optimisation) == [("mixed", "emulated: no bf16")]


def rows_of(chart: dict[str, Any]) -> list[dict[str, Any]]:
    layers = [chart, *chart.get("layer", ())]
    rows = [row for layer in layers for row in layer.get("data", {}).get("values", ())]
    return rows + [row for panel in chart.get("vconcat", ()) for row in rows_of(panel)]


def test_quality_over_ranks_and_speed_of_a_precision_are_one_picture(by_precision: Scale) -> None:
    curves = {each.id: rows_of(each.chart) for each in axis(by_precision).curves(by_precision)}
    assert list(curves) == ["picture", "factor", "flops", "vflops", "efficiency", "time"]
    found = {
        (row["series"], row["at"]): row["value"] for row in curves["picture"] if "series" in row
    }
    assert found == {
        ("fp32", "training, P = 1"): 1,
        ("mixed-bf16", "training, P = 1"): 2,
        ("fp32", "training, P = 2"): 1,
        ("mixed-bf16", "training, P = 2"): 1.5,
        ("fp32", 1): 0.803,
        ("fp32", 2): 0.75,
        ("mixed-bf16", 1): 0.8,
        ("mixed-bf16", 2): 0.76,
    }
    factors = [row["value"] for row in curves["factor"] if row.get("series") == "mixed-bf16"]
    assert factors[0] == pytest.approx(1)


def ceiling(benchmark: str, case: str, precision: str, flops: float | None, **own: Any) -> Any:
    facts = {"benchmark": benchmark, "case": case, "precision": precision, "flops": flops, **own}
    return CeilingFigure.model_validate(facts)


def with_ceilings(*measured: CeilingFigure) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """Return the labels of the bars by place and series, and the remarks."""
    found = scale(
        precisions(["fp32", "mixed-bf16"]),
        point("fp32", 1, 1e9, 0.8, ceilings=measured),
        point("mixed-bf16", 1, 2e9, 0.8),
    )
    (picture,) = (each for each in axis(found).curves(found) if each.id == "picture")
    bars = {(r["at"], r["series"]): r["words"] for r in rows_of(picture.chart) if "words" in r}
    return bars, dict(axis(found).remarks(found))


def test_precisions_are_compared_in_the_same_operation() -> None:
    """The fastest in fp32 is forward, in bf16 the input gradient: neither is over the other."""
    bars, remarks = with_ceilings(
        ceiling("convolution", "forward", "fp32", 4e12),
        ceiling("convolution", "input-gradient", "fp32", 1e12),
        ceiling("convolution", "forward", "bf16", 2e12),
        ceiling("convolution", "input-gradient", "bf16", 8e12, doubt="unsteady"),
        ceiling("gemm", "peak", "fp32", 1e12),
        ceiling("gemm", "peak", "bf16", 3e9),
    )
    assert bars["convolution", "fp32"] == "1.00"
    assert bars["convolution", "mixed-bf16"] == "2.00"  # of 0.5 and 8
    assert bars["matrix product", "mixed-bf16"] == "< 0.01"
    assert remarks == {
        "convolution": "geometric mean of the relative speeds of forward, input-gradient",
        "convolution input-gradient, bf16": "in doubt: unsteady",
    }


def test_an_operation_that_one_precision_lacks_is_left_out_with_the_reason() -> None:
    bars, remarks = with_ceilings(
        ceiling("gemm", "peak", "fp32", 1e12, node="a"),
        ceiling("gemm", "peak", "bf16", 3e12, node="a"),
        ceiling("gemm", "peak", "bf16", 9e12, node="b"),  # never over another node's
        ceiling("convolution", "forward", "fp32", 1e12),
        ceiling("convolution", "forward", "bf16", None, doubt="out of memory"),
        ceiling("convolution", "input-gradient", "fp32", 1e12),
    )
    assert bars["matrix product", "mixed-bf16"] == "3.00"
    assert not any(place == "convolution" for place, _ in bars)
    left_out = "so this operation is not compared"
    assert remarks == {
        "matrix product peak, fp32": f"not measured, {left_out}",
        "convolution forward, bf16": f"not measured: out of memory, {left_out}",
        "convolution input-gradient, bf16": f"not measured, {left_out}",
    }


def test_only_the_first_precision_measures_ceilings_and_only_those_that_it_needs(
    tmp_path: Path,
) -> None:
    variants = precisions(["fp32", "mixed-bf16"])
    points, without = sizes("precisions", [1], 1, variants), settings("micro.benchmarks=[]")
    axis = axis_of("precisions", variants)
    experiment = Experiment.create(tmp_path, WORKLOAD, axis, points, without)
    first, second = (experiment.point_settings(size).micro for size in points)
    assert (first.benchmarks, first.precisions) == (("gemm", "convolution"), ("fp32", "bf16"))
    assert second.benchmarks == ()
    assert axis.base_settings(settings("micro.benchmarks=['memory']")) == {}
    on_nodes = settings("micro.benchmarks=[]", "launch.on=slurm")
    assert axis.base_settings(on_nodes)["micro.benchmarks"] == ["gemm", "convolution"]


def test_an_optimisation_is_a_bar_or_a_line_over_slots(by_optimisation: Scale) -> None:
    curves = {
        each.id: rows_of(each.chart) for each in axis(by_optimisation).curves(by_optimisation)
    }
    assert list(curves) == ["flops", "vflops", "time-to-quality", "quality"]
    bars = {row["label"]: (row["value"], row["words"]) for row in curves["time-to-quality"]}
    assert bars["original"] == (90, "1 min 30 s")
    assert bars["mixed"] == (0, "not reached")
    empty = by_optimisation.model_copy(update={"points": ()})
    assert axis(by_optimisation).curves(empty) == []
    twice = [each.model_copy(update={"jobs": 2}) for each in by_optimisation.points]
    both = {"points": (*by_optimisation.points, *twice)}
    more = by_optimisation.model_copy(update=both).with_efficiency()
    lines = {each.id: rows_of(each.chart) for each in axis(more).curves(more)}
    assert list(lines) == ["flops", "efficiency", "vflops", "quality", "time"]
    efficiency = {(r["series"], r["at"]): r["value"] for r in lines["efficiency"] if "series" in r}
    # Twice the slots at the same speed: half the efficiency, in every variant.
    assert efficiency[("compression", 2)] == 1
    assert efficiency[("compression", 4)] == efficiency[("mixed", 4)] == 0.5


def test_a_size_that_a_variant_cannot_have_is_not_its_base() -> None:
    refused = Point(
        jobs=1, ranks=1, variant="compression", refused="needs 2 ranks", run=None, figures=None
    )
    found = scale(
        tuple(v for v in optimisations("fp32") if v.name in ("original", "compression")),
        point("original", 1, 1e9, 0.8),
        refused,
        point("original", 2, 1.5e9, 0.8),
        point("compression", 2, 1.6e9, 0.8),
        point("compression", 4, 2.4e9, 0.8),
        kind="data-parallel",
    )
    own = {point.size: figures for point, figures in found.completed(EnsembleFigures)}
    assert own[Size(1, 2, "original")].efficiency == 0.75
    assert own[Size(1, 2, "compression")].efficiency == 1
    assert own[Size(1, 4, "compression")].efficiency == pytest.approx(0.75)
    remarks = dict(axis(found).remarks(found)[-1:])
    assert remarks["compression"].startswith("its smallest size is 1 × 2, so its efficiency is")


def test_pages_show_variants_and_what_was_refused(
    by_precision: Scale,
    by_optimisation: Scale,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vflops.studies.scale.scale_page.chart_library", str)
    for name, shown in (("p", by_precision), ("o", by_optimisation)):
        write_page(shown, tmp_path / f"{name}.html")
    page = (tmp_path / "p.html").read_text()
    assert "Quality against scale: image-classification" in page
    assert f"<b>tf32:</b> refused: {NO_TF32}" in page
    assert "<td>mixed-bf16</td>" in page
    assert "This experiment is incomplete" not in page
    page = (tmp_path / "o.html").read_text()
    assert "<code>train.communication.precision=fp16</code>" in page


def test_the_file_of_variants_meets_its_schema(by_precision: Scale, tmp_path: Path) -> None:
    by_precision.write(tmp_path / "scale.json")
    data = json.loads((tmp_path / "scale.json").read_text())
    jsonschema.validate(data, schemas()["vflops.scale.json"])
    assert Scale.read(tmp_path / "scale.json") == by_precision


@pytest.mark.parametrize("target", [0.8, 0.75])  # of a closed and of an open task
def test_vflops_of_a_point_are_capped(
    handmade_run: HandmadeRun, monkeypatch: pytest.MonkeyPatch, target: float
) -> None:
    monkeypatch.setattr("vflops.publish.report.report_page.write_report", lambda contents: None)
    handmade_run.plan(job(1, target=target))
    handmade_run.attempt(1, 100.0, *course(0.5, 0.9))
    handmade_run.end()
    conclude(handmade_run.folder, RunObserver())
    found = axis_of("weak").figures(handmade_run.folder, Size(1, 2))
    assert isinstance(found, EnsembleFigures) and found.flops is not None
    assert found.penalty == pytest.approx((0.9 / target) ** 5)
    assert found.vflops_published == pytest.approx(found.flops * (0.9 / target) ** 5)
    assert found.vflops == found.flops
    assert found.quality_factor == 1


def test_figures_of_a_run_have_time_factor_and_bytes(
    handmade_run: HandmadeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its target after three epochs: 4 + 3 + 30 + 3 + 6 + 1 s; two stages tell their bytes."""
    monkeypatch.setattr("vflops.publish.report.report_page.write_report", lambda contents: None)
    handmade_run.plan(job(1))
    sent = {
        "mode": "all-reduce",
        "precision": "fp16",
        "ranks": 2,
        "near": 2,
        "backend": "gloo",
        "algorithm": "ring",
        "bytes_near": 3000,
        "bytes_far": 600,
        "steps": 30,
    }
    *notes, end = course(0.5, 0.7, 0.8)
    handmade_run.attempt(1, 100.0, *notes, ("exchange", sent), ("exchange", sent), end)
    handmade_run.end()
    conclude(handmade_run.folder, RunObserver())
    variants = precisions(["fp32"])
    found = axis_of("precisions", variants).figures(handmade_run.folder, Size(1, 2, "fp32"))
    assert isinstance(found, EnsembleFigures)
    assert found.time_to_quality_s == pytest.approx(47)
    assert found.penalty == pytest.approx(1)
    assert found.exchanged_bytes == 2 * 3600 / 30
    assert found.emulated is None
