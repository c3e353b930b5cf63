"""Measurements beside predictions: files of steps, crosses where modes stop paying, coding."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.links_measure import Coding, step_s
from benchmarks.links_result import Links, Measured, markdown, predicted, record
from vflops.errors import FolderError
from vflops.record.formats.job_events import Progressed
from vflops.studies.predict.inputs import Inputs, parse_inputs
from vflops.studies.predict.measured_points import MeasuredStep, MeasuredSteps, read_measurements
from vflops.studies.predict.predict_curves import measured_curve, mode_chart
from vflops.studies.predict.predict_text import describe_training
from vflops.studies.predict.scaling_model import predict
from vflops.studies.predict.sweeps import Line, edges, scales_up_to

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]

BASE: dict[str, Any] = {
    "step": {"time_s": 1.0, "batch": 8},
    "model": {"gradient_bytes": 1e9, "activation_bytes": 1e7, "layers": 64},
    "node": {"accelerators": 4, "bandwidth": 100e9, "latency_s": 0.0},
    "link": {"bandwidth": 10e9, "latency_s": 1e-3},
}


def inputs(**sections: dict[str, Any]) -> Inputs:
    return parse_inputs(BASE).with_changes(**sections)


def test_coding_is_computed_beside_the_exchange_and_nothing_hides_it() -> None:
    coded = {"precision": "int8", "coding_bandwidth": 5e9}
    plain = predict(inputs(communication={"precision": "int8"}), 1, 8).step
    step = predict(inputs(communication=coded), 1, 8).step
    assert (plain.coding_s, step.coding_s) == (0.0, 0.2)
    assert step.total_s == pytest.approx(plain.total_s + 0.2)
    hidden = {**coded, "overlap": 1.0, "buckets": 100}
    assert predict(inputs(communication=hidden), 1, 8).step.coding_s == 0.2
    halves = inputs(communication=coded, parallel={"mode": "mixed", "sharing": 2})
    assert predict(halves, 1, 8).step.coding_s == pytest.approx(0.1)


def test_fp32_and_one_rank_code_nothing_and_a_silent_zero_is_told() -> None:
    fp32 = inputs(communication={"coding_bandwidth": 5e9})
    assert predict(fp32, 1, 8).step.coding_s == 0.0
    int8 = inputs(communication={"precision": "int8", "coding_bandwidth": 5e9})
    assert predict(int8, 1, 1).step.total_s == 1.0
    assert "coding" not in describe_training(fp32) and "coding: 200 ms" in describe_training(int8)
    assert "assumed to cost nothing" in describe_training(
        inputs(communication={"precision": "int8"})
    )


def test_of_buckets_that_differ_the_last_is_waited_for() -> None:
    hidden = {"overlap": 1.0, "buckets": 2}
    alike = predict(inputs(communication=hidden), 1, 8).step.exchange_s
    most = predict(inputs(communication={**hidden, "last_bucket": 0.9}), 1, 8).step.exchange_s
    whole = predict(inputs(communication={"buckets": 2}), 1, 8).step.exchange_s
    assert [alike, most] == pytest.approx([whole / 2, 0.9 * whole])


def test_a_pipeline_has_four_micro_batches_a_stage_where_nobody_says() -> None:
    step = predict(inputs(parallel={"mode": "pipeline"}), 1, 4).step
    assert step.bubble_s == pytest.approx(3 / 16)
    odd = inputs(step={"batch": 6}, parallel={"mode": "pipeline"})
    assert predict(odd, 1, 4).step.bubble_s == pytest.approx(3 / 8)


def test_a_tensor_split_sends_what_layers_give_where_that_is_known() -> None:
    cut = predict(inputs(parallel={"mode": "model", "split": "tensor"}), 1, 4).step.exchange_s
    own = inputs(parallel={"mode": "model", "split": "tensor"}, model={"layer_bytes": 5e6})
    assert predict(own, 1, 4).step.exchange_s == pytest.approx(cut / 2)


def layers(chart: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    found = [each for each in chart["layer"] if each["mark"].get("shape") == mark]
    return [row for each in found for row in each["data"]["values"]]


def test_a_cross_is_where_a_line_stops_paying() -> None:
    """2(n−1)/n · 0.1 s of bytes and 2(n−1) of 1 ms are 1 s at n = 401.2; nodes are of 4."""
    line = Line("data", inputs())
    never = Line("never", inputs(link={"latency_s": 0.0}))
    scales = scales_up_to(inputs(), 4096)
    assert [(edge.name, edge.prediction.accelerators) for edge in edges([line, never], scales)] == [
        ("data", 400)
    ]
    chart = mode_chart([line, never], scales)
    assert chart is not None
    (cross,) = layers(chart, "cross")
    assert (cross["at"], cross["series"]) == (400, "data")
    assert cross["value"] == line.predict_at(400).efficiency


def steps(**inputs_of: dict[str, Any]) -> MeasuredSteps:
    found = [
        MeasuredStep(name=name, models=1, ranks=8, step_s=1.25, alone_s=1.0, inputs={**BASE, **own})
        for name, own in inputs_of.items()
    ]
    return MeasuredSteps(points=tuple(found))


def test_steps_of_other_links_have_lines_and_predictions_of_their_own(
    vflops: Vflops, tmp_path: Path
) -> None:
    slow = {"link": {"bandwidth": 1e9, "latency_s": 0.0}}
    file = tmp_path / "links.json"
    steps(fast={}, slow=slow).write(file)
    found = read_measurements(file)
    assert [each.efficiency for each in found] == [0.8, 0.8]
    curve = measured_curve(found, [1, 2, 4, 8, 16])
    assert curve is not None
    rows = curve.chart["layer"][0]["data"]["values"]
    told = {(row["series"], row["measured"]) for row in rows}
    assert told == {("fast", False), ("fast", True), ("slow", False), ("slow", True)}
    # Without anything else the figures are those of the first point.
    result = vflops("predict", "--measured", "links.json", "--page", "p.html", "--upto", "64")
    assert result.returncode == 0, result.stderr
    assert re.search(r"link.bandwidth +10.0 GB/s +links.json: fast, 1 × 8", result.stdout)
    assert re.search(r"slow +1 × 8 +80.0 % +36.4 % +-54.5 %", result.stdout)
    page = (tmp_path / "p.html").read_text()
    assert "Measured, and predicted from inputs of the same links" in page


def test_a_file_of_steps_that_cannot_be_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    steps(bad={"link": {"bandwidth": -1.0}}).write(file)
    with pytest.raises(FolderError, match=r"point 'bad' are wrong: setting link.bandwidth = -1.0"):
        read_measurements(file)
    file.write_text(json.dumps({"schema": "vflops.measured-steps/1", "points": []}))
    with pytest.raises(FolderError, match="points"):
        read_measurements(file)
    file.write_text("{}")
    with pytest.raises(FolderError, match=r"is not a vflops\.scale file"):
        read_measurements(file)


def note(step: int, training_s: float) -> Progressed:
    return Progressed(step=step, samples=step, epoch=0.1, phases={"training": training_s}, loss=1.0)


def test_a_step_of_the_bench_is_the_median_after_the_warm_ones() -> None:
    times = [9.0, 10.0, 11.0, 12.0, 19.0, 20.0, 21.0]
    assert step_s([note(at + 1, each) for at, each in enumerate(times)], 2) == 1.0


def point(precision: str, step_s: float, *, bagging: bool = False) -> Measured:
    return Measured(
        figure="bagging" if bagging else "compression",
        series="bagging" if bagging else precision,
        hosts=2,
        wires="1 Gb/s",
        bagging=bagging,
        precision=precision,
        mode="all-reduce",
        step_s=step_s,
        rounds_s=(step_s - 0.01, step_s, step_s + 0.02),
        samples_per_s=32 / step_s,
        parameters=25_000_000,
        wire_bytes=0.0 if bagging else 51e6,
        counted_bytes=0.0 if bagging else 50e6,
    )


def test_the_bench_predicts_from_links_and_codecs_alone() -> None:
    """1e8 B of gradients: 0.25 s in int8 over 1e8 B/s, 95 % of it exposed; and 0.3 s of coding."""
    found = Links(
        links={
            "2, 1 Gb/s": {
                "fp32": {"bandwidth": 1e9, "latency_s": 0.0},
                "int8": {"bandwidth": 1e8, "latency_s": 0.0},
            }
        },
        codings={2: Coding({"int8": 0.3, "powersgd": 0.1}, [5_000_000, 95_000_000], 0.1)},
    )
    points = [point("fp32", 1.0, bagging=True), point("int8", 1.5), point("powersgd", 1.2)]
    beside = predicted(points, found)
    assert set(beside) == {1, 2}
    assert beside[1].predicted_s == pytest.approx(1.0 + 0.95 * 0.25 + 0.3)
    # PowerSGD sends a tenth, in fp32.
    assert beside[2].predicted_s == pytest.approx(1.0 + 0.95 * 0.01 + 0.1)
    table = markdown(points, found)
    assert "| int8 | 1500 ± 15 | +3 % | 51.0 |" in table
    assert "2.0 to 2.0 % more than counted" in table
    (first, second) = record(points, found).efficiencies(Path("links.json"))
    assert first.inputs is not None and first.efficiency == pytest.approx(1 / 1.5)
    assert predict(first.inputs, 1, 2).step.total_s == pytest.approx(beside[1].predicted_s)
    assert second.name == "powersgd, 1 Gb/s"
