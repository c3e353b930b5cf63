"""``vflops predict`` as a user meets it: from a run, typed, the page, what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.sample_parts import MEASUREMENTS, measured
from tests.support.trained_runs import HandmadeRun, course, job, started, write_telemetry
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.measurement import Trial
from vflops.record.readout.contents import Contents
from vflops.studies.predict.forecasting import make_forecast
from vflops.studies.predict.from_run import read_inputs
from vflops.studies.predict.validation import measured_efficiencies
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_result import Point, Scale

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]

TOML = """
[step]
time_s = 0.4
batch = 128
ops_per_sample = 23e9
[model]
gradient_bytes = 102228128
[node]
accelerators = 8
bandwidth = 150e9
latency_s = 5e-6
power_w = 300
[link]
bandwidth = 1.25e9
latency_s = 5e-5
[training]
samples = 1281167
epochs = 90
quality_factor = 0.96
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(TOML)
    return path


@pytest.fixture
def alone(handmade_run: HandmadeRun) -> RunFolder:
    """A run that trained on one accelerator, and reduced between two."""
    small = Trial(setting={"size_bytes": 1000, "ranks": 2}, value=1e7)
    large = Trial(setting={"size_bytes": 1 << 20, "ranks": 2}, value=1e9)
    reduced = measured(
        "all-reduce", "nccl-2-ranks", None, 1e9, setting=large.setting, tried=(small, large)
    )
    # Faster, but predictions need the bandwidth and latency of a ring.
    tree = measured("all-reduce", "nccl-2-ranks-tree", None, 3e9, setting=large.setting)
    others = [item for item in MEASUREMENTS if item.benchmark != "all-reduce"]
    handmade_run.plan(job(1, ranks=1), ceilings=(*others, reduced, tree))
    notes = [started(ranks=1), *course(0.4, 0.85, 0.88)[1:]]
    write_telemetry(handmade_run.attempt(1, 1000.0, *notes), 1000.0, 60)
    handmade_run.end()
    return handmade_run.folder


def experiment(*points: tuple[int, int, float]) -> Scale:
    return Scale(
        workload="image-classification",
        kind="weak",
        profile="tiny",
        on="local",
        cores_per_rank=1,
        same_batch="rank",
        quality_name="top-1 accuracy",
        target=0.8,
        points=tuple(
            Point(
                jobs=jobs,
                ranks=ranks,
                run=f"{jobs}x{ranks}/run",
                figures=EnsembleFigures(
                    repeats=1,
                    partial=False,
                    attempts=1,
                    checks_failed=0,
                    window_s=100.0,
                    flops=flops,
                    flops_least=flops,
                    flops_most=flops,
                    vflops=flops,
                    quality=0.8,
                    quality_alone=0.8,
                ),
            )
            for jobs, ranks, flops in points
        ),
    ).with_efficiency()


def test_a_run_gives_what_it_measured_and_says_why_the_rest_is_missing(alone: RunFolder) -> None:
    found = read_inputs(Contents(alone))
    # 3 epochs of 1,000 samples: 30 s of steps, 3 s of waiting for data, 1.5 s of checkpoints.
    assert found.values["step.time_s"] == pytest.approx(34.5 / 30)
    assert found.values["step.batch"] == 100
    assert found.values["model.gradient_bytes"] == 4 * 1504
    # The graph that was counted: a batch of 100 passes its cuts.
    assert found.values["model.layers"] == 2
    assert found.values["model.activation_bytes"] == 100 * 4 * 8 * 4 * 4
    assert found.values["training.epochs"] == 2
    assert found.values["training.samples"] == 1000
    assert found.values["training.quality_factor"] == 1  # 0.88 exceeds the target of 0.8
    assert found.values["node.power_w"] == pytest.approx(500, rel=0.01)
    assert found.values["node.bandwidth"] == 1e9
    # The smallest message: 1,000 B at 10 MB/s, less those bytes at 1 GB/s, over two steps.
    assert found.values["node.latency_s"] == pytest.approx((1e-4 - 1e-6) / 2)
    assert found.absent == {
        "link.bandwidth": "a run measures only links within a node",
        "link.latency_s": "a run measures only links within a node",
        "node.accelerators": "system.json lists no accelerators",
    }
    assert found.sources["model.gradient_bytes"] == (
        "job 1, image-classification: 4 × 1504 parameters"
    )


def test_steps_of_several_ranks_are_no_step_of_one(trained_folder: RunFolder) -> None:
    found = read_inputs(Contents(trained_folder))
    assert "step.time_s" not in found.values
    assert "ran on 2 ranks" in found.absent["step.time_s"]
    assert found.values["step.batch"] == 50
    assert found.values["node.power_w"] == pytest.approx(250, rel=0.01)


def test_a_run_without_a_training_is_refused(run_folder: RunFolder, vflops: Vflops) -> None:
    result = vflops("predict", run_folder.path)
    assert result.returncode == 2
    assert "has no complete training" in result.stderr


def test_a_run_on_a_busy_machine_is_warned_of(alone: RunFolder) -> None:
    def warning() -> str | None:
        words = ["node.accelerators=2"]
        return make_forecast(Contents(alone), [1], [1], None, None, None, words).warning

    assert warning() is None
    with alone.start_attempt(job=0) as log:
        log.write("load", others_share=0.63, programs=[{"name": "firefox", "share": 0.41}])
    said = warning()
    assert said is not None and "other programs used 63 % of the CPUs (firefox 41 %)" in said


def test_the_command_takes_a_run_and_names_what_must_be_typed(
    alone: RunFolder, vflops: Vflops
) -> None:
    result = vflops("predict", alone.path)
    assert result.returncode == 2
    assert "node.accelerators is not known" in result.stderr
    assert "the run does not provide it: system.json lists no accelerators" in result.stderr
    words = ["--set", "node.accelerators=2", "--ranks", "1,2", "--upto", "4"]
    assert vflops("predict", alone.path, *words).returncode == 2  # two ways to say the ranks
    result = vflops("predict", alone.path, *words[:4])
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"step.time_s +1.15 s +job 1, image-classification: 100 samples", result.stdout
    )
    assert re.search(r"node.accelerators +2 +given", result.stdout)
    assert re.search(
        r"link.bandwidth +— +not known: a run measures only links within", result.stdout
    )
    assert re.search(r"1 × 2 +1.15 s", result.stdout)
    assert re.search(r"pipeline +all 2 ", result.stdout)  # the counted graph has its figures
    assert not re.search(r"(?m)^(model, .*|pipeline) +—", result.stdout)
    assert "next: vflops predict" in result.stderr and "--page predict.html" in result.stderr


def test_the_table_has_every_figure_of_every_pair(vflops: Vflops, config: Path) -> None:
    result = vflops("predict", "--config", config, "--models", "1,2", "--ranks", "8,16")
    assert result.returncode == 0, result.stderr
    # 2 · 15/16 · 102 MB at 1.25 GB/s, and 30 steps of 50 µs.
    row = re.search(r"1 × 16 .*", result.stdout)
    assert row and row[0].split() == (
        "1 × 16 16 555 ms 155 ms 3.07 GB 72.1 % 84.9 T 81.5 T 17.0 G 8.7 h 150 MJ".split()
    )
    assert re.search(r"2 × 16 +32 +555 ms", result.stdout)
    assert re.search(r"bagging +all 1,024", result.stdout)
    assert re.search(r"model, tensor +— +model.activation_bytes is not known", result.stdout)


def test_a_batch_that_is_more_than_the_data_is_told(vflops: Vflops, config: Path) -> None:
    result = vflops("predict", "--config", config, "--ranks", "100000")
    assert result.returncode == 0, result.stderr
    row = re.search(r"1 × 100,000 .*", result.stdout)
    assert row and re.search(r"27.9 P +— +—$", row[0])
    told = "no time, energy or VFLOPS from P = 100,000 on: a batch of 12,800,000 is larger than the"
    assert f"{told} data of 1,281,167 samples" in result.stdout


def test_the_page_shows_predicted_beside_measured(
    vflops: Vflops, config: Path, tmp_path: Path
) -> None:
    experiment((1, 1, 7e12), (1, 8, 50e12), (4, 8, 200e12)).write(tmp_path / "scale.json")
    words = ("--measured", "scale.json", "--page", "p.html", "--upto", "64")
    result = vflops("predict", "--config", config, *words)
    assert result.returncode == 0, result.stderr
    assert re.search(r"1 × 8 +89.3 % +99.7 % +\+11.6 %", result.stdout)
    page = (tmp_path / "p.html").read_text()
    charts = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', page)
    ]
    assert len(charts) == 3
    rows = charts[0]["layer"][0]["data"]["values"]
    points = {(row["at"], row["series"]) for row in rows if row["measured"]}
    assert points == {(1, "data"), (8, "data"), (32, "bagging")}
    assert "Where each mode stops paying" in page
    assert "data is the most efficient from 2 accelerators on" in page
    assert "http://" not in page.split("<script>")[0]


def test_published_results_stand_beside_their_predictions(vflops: Vflops, tmp_path: Path) -> None:
    result = vflops("predict", "--published")
    assert result.returncode == 0, result.stderr
    assert re.search(r"fp32 +efficiency +64 +0.71 +0.77 +\+7.8 % +fitted", result.stdout)
    assert "One parameter is fitted per workload" in result.stdout
    assert "image classification 1.36, extreme weather 0.42" in result.stdout
    drawn = vflops("predict", "--published", "--page", "p.html")
    assert drawn.returncode == 0, drawn.stderr
    page = (tmp_path / "p.html").read_text()
    found = re.findall(r'<script type="application/json">(.*?)</script>', page)
    efficiency, gain = (json.loads(text)["data"]["values"] for text in found)
    told = {(row["series"], row["at"], row["measured"]): row["value"] for row in efficiency}
    assert told["image classification, fp32", 64, True] == 0.71
    assert told["image classification, fp32", 64, False] == pytest.approx(0.765, abs=1e-3)
    assert len(efficiency) == 3 + 2 * 9 and len(gain) == 2 * 10
    assert page.count(">fitted<") == 9
    refused = vflops("predict", "--published", "--ranks", "8")
    assert refused.returncode == 2 and "--ranks" in refused.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--ranks", "8,x"), "--ranks 8,x: expected integers of 1 or more"),
        (("--ranks", "0"), "--ranks 0: expected integers of 1 or more"),
        (("--ranks", "1000000"), "1 × 1,000,000 are 1,000,000 accelerators"),
        (("--set", "link.bandwidth=nan"), "link.bandwidth = nan: input should be a finite number"),
        (("--set", "link.bandwidth=-1"), "link.bandwidth = -1: input should be greater than 0"),
        (("--set", "communication.coding_bandwidth=0"), "communication.coding_bandwidth = 0"),
        (("--upto", "100001"), "--upto 100001: expected 1 to 100,000"),
        (("--measured", "none.json"), "none.json does not exist"),
    ],
)
def test_wrong_words_are_one_line_and_a_cure(
    vflops: Vflops, config: Path, words: tuple[str, ...], told: str
) -> None:
    result = vflops("predict", "--config", config, *words)
    assert result.returncode == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_an_experiment_that_begins_with_several_is_not_set_beside_one() -> None:
    with pytest.raises(UsageError, match="smallest point of this experiment is 2 × 1"):
        measured_efficiencies(experiment((2, 1, 1e12), (4, 1, 2e12)))


def test_no_torch_is_imported() -> None:
    modules = (
        "from_run inputs measured_points predict_curves predict_page predict_text published_page "
        "scaling_model stage_traffic sweeps validation"
    ).split()
    code = f"import sys, {', '.join(f'vflops.studies.predict.{name}' for name in modules)}\n"
    code += "from vflops.studies.predict.published_scaling import validate; validate()\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
