"""CSV, JSON and OpenMetrics of a run, read back by what others read them with."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from shutil import copyfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
from prometheus_client.parser import text_string_to_metric_families as parse_old

from tests.support.export_runs import QUALITIES, repeated
from tests.support.sample_parts import Vflops, write_system
from tests.support.search_runs import HandmadeSearch, one_worker
from tests.support.trained_runs import GPU_POWER_W, HandmadeRun
from vflops.publish.export.csv_table import runs_csv, series_csv
from vflops.publish.export.json_document import runs_json
from vflops.publish.export.metrics_text import Family, openmetrics, prometheus
from vflops.publish.export.run_metrics import runs_openmetrics
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def samples(text: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for family in parse(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.value)
    return found


def test_csv_has_a_row_a_training_and_units_in_its_header(trained_folder: RunFolder) -> None:
    contents = Contents(trained_folder)
    found, scored = rows(runs_csv([contents])), score(contents)
    assert [(row["kind"], row["job"], row["seed"]) for row in found] == [
        ("training", "1", "1"),
        ("training", "2", "2"),
    ]
    for row, training in zip(found, scored.trainings, strict=True):
        assert training.speed is not None
        assert float(row["VFLOPS [FLOPS]"]) == training.speed.vflops_capped
        assert float(row["VFLOPS as published [FLOPS]"]) == training.speed.vflops
        assert float(row["wall time [s]"]) == training.wall_s
        assert float(row["power [W]"]) == pytest.approx(sum(GPU_POWER_W))
        assert row["data"] == "synthetic"


def test_csv_leaves_empty_what_was_not_measured(handmade_run: HandmadeRun) -> None:
    (row,) = rows(runs_csv([repeated(handmade_run, QUALITIES, power=False)]))
    assert row["power [W]"] == row["energy [J]"] == ""
    assert row["quality"] == "0.88"


def test_a_search_says_what_it_was_of_and_has_a_score_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = HandmadeSearch(tmp_path, monkeypatch)
    write_system(run.folder)
    run.worker(0, one_worker(run))
    contents = Contents(run.end())
    (row,) = rows(runs_csv([contents]))
    assert (row["kind"], row["complete"], row["data"]) == ("search", "yes", "synthetic")
    assert (row["device"], row["precision"]) == ("Test CPU", "fp32")
    assert row["VFLOPS [FLOPS]"] == ""
    (search,) = score(contents).searches
    assert float(row["regulated score [OPS]"]) == search.regulated
    families = {family.name: family for family in parse(runs_openmetrics([contents]))}
    labels = families["vflops_regulated_flops"].samples[0].labels
    assert (labels["kind"], labels["job"], labels["repeat"]) == ("search", "", "0")
    assert labels["data"] == "synthetic"


def test_csv_text_is_never_a_formula(handmade_run: HandmadeRun) -> None:
    (row,) = rows(runs_csv([repeated(handmade_run, QUALITIES, workload="=1+1")]))
    assert row["workload"] == "'=1+1"


def test_series_hold_every_reading(handmade_run: HandmadeRun) -> None:
    contents = repeated(handmade_run, QUALITIES)
    attempt = contents.folder.attempt_folder(1, 0)
    copyfile(attempt / "telemetry.jsonl", attempt / "telemetry-1.jsonl")
    found = rows(series_csv([contents]))
    qualities = [float(row["value"]) for row in found if row["series"] == "top-1 accuracy"]
    assert qualities == list(QUALITIES)
    powers = [row for row in found if row["series"] == "gpu0.power"]
    assert {(row["value"], row["unit"]) for row in powers} == {("300.0", "W")}
    assert [row["node"] for row in powers] == ["0"] * 63 + ["1"] * 63
    assert len([row for row in found if row["series"] == "loss"]) == 15


def test_json_holds_each_part_as_its_own_file_does(trained_folder: RunFolder) -> None:
    contents = Contents(trained_folder)
    (run,) = json.loads(runs_json([contents]))["runs"]
    assert run["score"] == json.loads(score(contents).to_json())
    assert run["run"] == json.loads((trained_folder.path / "run.json").read_text())
    assert run["system"] == json.loads(trained_folder.system_file.read_text())
    assert run["findings"]["schema"].startswith("vflops.findings/")
    del run["score"]["schema"]
    assert Score.model_validate(run["score"]) == score(contents)


def test_openmetrics_are_taken_by_prometheus_own_parser(trained_folder: RunFolder) -> None:
    contents = Contents(trained_folder)
    text, scored = runs_openmetrics([contents]), score(contents)
    families = {family.name: family for family in parse(text)}
    assert families["vflops_valid_flops"].unit == "flops"
    assert families["vflops_run"].type == "info"
    found = samples(text)
    speeds = [training.speed for training in scored.trainings if training.speed]
    assert found["vflops_valid_flops"] == [speed.vflops_capped for speed in speeds]
    assert found["vflops_valid_as_published_flops"] == [speed.vflops for speed in speeds]
    assert found["vflops_wall_time_seconds"] == [t.wall_s for t in scored.trainings]
    assert found["vflops_ceiling_flops"] == [2e11, 1.5e11]
    ceiling = families["vflops_ceiling_flops"].samples[0].labels
    assert (ceiling["benchmark"], ceiling["precision"]) == ("gemm", "fp32")
    assert text.endswith("# EOF\n")


def test_a_run_without_trainings_has_ceilings_alone(run_folder: RunFolder) -> None:
    found = samples(runs_openmetrics([Contents(run_folder)]))
    assert "vflops_valid_flops" not in found
    assert found["vflops_ceiling_bytes_per_second"] == [2e10, 1e9]


@given(TEXT, st.floats(allow_nan=False), TEXT)
def test_any_label_and_value_come_back_as_they_were(label: str, value: float, help: str) -> None:
    family = Family("x_seconds", help, (({"name": label}, value),), unit="seconds")
    (found,) = parse(openmetrics([family]))
    (sample,) = found.samples
    assert (sample.labels, sample.value) == ({"name": label}, value)
    assert found.unit == "seconds"
    (old,) = parse_old(prometheus([family]))
    assert (old.samples[0].labels, old.samples[0].value) == ({"name": label}, value)
    assert '# HELP vflops_x_seconds say "1\\\\2\\n"\n' in prometheus(
        [replace(family, help='say "1\\2\n"')]
    )


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf")]
)
def test_what_is_no_number_is_written_as_the_formats_ask(value: float, text: str) -> None:
    family = Family("x", "", (({}, value),))
    assert f"vflops_x {text}\n" in prometheus([family])
    (found,) = parse(openmetrics([family]))
    assert str(found.samples[0].value) == str(value)


def test_the_command_writes_each_format(
    handmade_run: HandmadeRun, vflops: Vflops, tmp_path: Path
) -> None:
    path = repeated(handmade_run, QUALITIES).folder.path
    written = vflops("export", "csv", path, "--out", "runs.csv")
    assert written.returncode == 0, written.stderr
    assert len(rows((tmp_path / "runs.csv").read_text())) == 1
    assert "next: column -s, -t < runs.csv" in written.stderr
    submitted = vflops("export", "mllog", path, "--submitter", "us", "--system", "box")
    assert submitted.returncode == 0, submitted.stderr
    assert (tmp_path / "mlperf/results/box/resnet/result_0.txt").is_file()
    assert "the closed division refuses this" in submitted.stderr
    assert "python -m mlperf_logging.package_checker mlperf training 4.0.0" in submitted.stderr


def test_wrong_use_names_the_cure(handmade_run: HandmadeRun, vflops: Vflops) -> None:
    path = repeated(handmade_run, QUALITIES).folder.path
    wrong = {
        ("export", "cvs", path): "did you mean csv?",
        ("export", "csv", path, path): "is given twice",
        ("export", "json", path, "--series"): "--series is for csv",
        ("export", "mlflow", path): "--to",
    }
    for words, said in wrong.items():
        found = vflops(*words)
        assert found.returncode == 2
        assert said in found.stderr


def test_no_export_needs_torch() -> None:
    modules = [
        f"vflops.publish.export.{name}"
        for name in ("csv_table", "json_document", "run_metrics", "to_mlflow", "mlperf.submission")
    ]
    modules += ["vflops.run.metrics_file", "vflops.launch.controller"]
    code = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
