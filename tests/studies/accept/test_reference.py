"""References: written from runs, read again, and refused with the value and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.accept_runs import THROUGHPUT, reference, repeats, seeded, under_test
from tests.support.dated_runs import Dated, dated_run
from tests.support.paths import ROOT
from vflops.config.profiles import for_single_workload
from vflops.errors import UsageError
from vflops.studies.accept import closed_task, reference_writer
from vflops.studies.accept.closed_task import TaskState
from vflops.studies.accept.measured_figures import is_measured
from vflops.studies.accept.promise_units import UNITS, base_unit, readable_unit
from vflops.studies.accept.reference import PromisedFigure, read_reference, with_max_repeats
from vflops.studies.accept.reference_writer import reference_from, write_reference
from vflops.studies.accept.repeating import RepeatedTask
from vflops.studies.accept.runs_under_test import judge_run
from vflops.studies.accept.task_settings import task_settings
from vflops.workloads.contract.run_settings import profile

MINIMAL = """
name = "M"
[task]
profile = "tiny"
[[figure]]
name = "gemm.peak.fp32"
at_least = 1
unit = "TFLOPS"
"""


def test_a_reference_round_trips_through_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = TaskState("closed", "c" * 12)
    monkeypatch.setattr(closed_task, "task_state", lambda score, workload: closed)
    runs = under_test(*repeats(tmp_path, 1.0, 1.02, 0.98, memory=2e10))
    made = reference_from(
        runs, name='Node "A"\n', contract="§ 7\\", tolerances={"*": 0.04, "memory.*": 0.2}
    )
    path = tmp_path / "reference.toml"
    write_reference(path, made, runs)
    assert read_reference(path) == made
    promised = {figure.name: figure for figure in made.figure}
    assert promised["memory.copy"].model_dump(exclude_none=True) == {
        "name": "memory.copy",
        "at_least": 20.0,
        "unit": "GB/s",
        "tolerance": 0.2,
    }
    assert promised[THROUGHPUT].tolerance == 0.04
    assert promised["image-classification.time_to_quality"].at_most is not None
    assert made.task.definition == {"image-classification": "c" * 12}
    text = path.read_text()
    assert "such a machine needs about" in text
    assert "# Not promised, because the runs have no value:" in text


def test_the_task_of_a_reference_has_the_settings_of_its_runs(tmp_path: Path) -> None:
    (run,) = repeats(tmp_path, 1.0)
    task = reference(run).task
    assert "image-classification.train.batch=100" in task.settings
    train = task_settings(task).workloads["image-classification"]["train"]
    assert (train["batch"], train["ranks"]) == (100, 2)
    assert task.data == {"image-classification": "0" * 64}


def test_a_reference_needs_valid_runs_of_one_task(tmp_path: Path) -> None:
    (run,) = repeats(tmp_path, 1.0)
    unfinished = dated_run(tmp_path, Dated(3, ends=False))
    with pytest.raises(UsageError, match="is not valid: rule complete"):
        reference(unfinished)
    other_rate = {"settings": {"target": 0.8, "train": {"learning_rate": 0.7}}}
    other = dated_run(tmp_path, Dated(4, job=other_rate))
    with pytest.raises(UsageError, match="not repeats of one task"):
        reference(run, other)


def test_a_run_that_was_disturbed_is_no_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = repeats(tmp_path, 1.0)
    monkeypatch.setattr(reference_writer, "unjudged_load", lambda contents: "50 % by others")
    with pytest.raises(UsageError, match="was disturbed: 50 % by others"):
        reference(run)


def test_a_value_of_0_is_not_promised(tmp_path: Path) -> None:
    runs = under_test(*repeats(tmp_path, 1.0, memory=0.0))
    made = reference_from(runs, name="x", tolerances={"*": 0.1})
    assert "memory.copy" not in {figure.name for figure in made.figure}
    write_reference(tmp_path / "r.toml", made, runs)
    assert "- memory.copy: its mean is not above 0" in (tmp_path / "r.toml").read_text()


def test_a_threshold_is_the_promise_less_the_tolerance() -> None:
    speed = PromisedFigure(name="x", at_least=2, unit="TFLOPS", tolerance=0.1)
    assert (speed.promised, speed.better) == (2e12, "higher")
    assert speed.threshold == pytest.approx(1.8e12)
    time = PromisedFigure(name="x", at_most=2, unit="min", tolerance=0.1)
    assert (time.promised, time.better, time.base_unit) == (120.0, "lower", "s")
    assert time.threshold == pytest.approx(132.0)


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "tolerance = 5",
            "figure gemm.peak.fp32 tolerance = 5: input should be less than 1",
            "5 %",
        ),
        ("at_most = 2", "both of at_least and at_most are given", "docs/how-to/accept.md"),
        ('color = "red"', "unknown key 'color' of figure gemm.peak.fp32", "one of: at_least"),
        ("atleast = 2", "unknown key 'atleast' of figure gemm.peak.fp32", "did you mean at_least"),
        ("confidence = 95", "confidence = 95: input should be less than 1", "0.95"),
        ("node_spread = -1", "node_spread = -1", "share"),
    ],
)
def test_a_wrong_figure_is_named_with_its_value(
    tmp_path: Path, line: str, message: str, hint: str
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(MINIMAL + line + "\n")
    with pytest.raises(UsageError) as raised:
        read_reference(path)
    assert message in raised.value.message and str(path) in raised.value.message
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unit = "TFLOPS"', 'unit = "TFLOP"', "unknown unit 'TFLOP'"),
        ('profile = "tiny"', "", "task.profile"),
        ('name = "M"', 'name = "M"\njudgement = {repeats = 5, max_repeats = 4}', "max_repeats = 4"),
        ('profile = "tiny"', 'profile = "tiny"\nfill_nodes = true', "fill_nodes"),
        ("[[figure]]", "[figure]", "figure"),
        ("at_least = 1", "at_least = 0", "at_least = 0: input should be greater than 0"),
        ("at_least = 1", "at_most = inf", "at_most = inf: input should be a finite number"),
        ("at_least = 1", "", "neither of at_least and at_most is given"),
        ("at_least = 1", "at_least = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "r.toml"
    assert old in MINIMAL
    path.write_text(MINIMAL.replace(old, new))
    with pytest.raises(UsageError) as raised:
        read_reference(path)
    assert message in raised.value.message


def test_a_figure_is_promised_once(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(MINIMAL + MINIMAL[MINIMAL.index("[[figure]]") :])
    with pytest.raises(UsageError, match=r"'gemm\.peak\.fp32' is promised 2 times"):
        read_reference(path)


def test_the_largest_number_of_repeats_can_be_changed(tmp_path: Path) -> None:
    made = reference(*repeats(tmp_path, 1.0))
    changed: Any = with_max_repeats(made, 30).judgement
    assert (changed.repeats, changed.max_repeats) == (3, 30)
    with pytest.raises(UsageError, match="--max-repeats 2: the reference asks for 3 repeats"):
        with_max_repeats(made, 2)


@pytest.mark.parametrize(
    ("unit", "value", "readable"),
    [
        ("FLOPS", 7.3e14, "TFLOPS"),
        ("B/s", 4.1e9, "GB/s"),
        ("share", 0.4, "%"),
        ("s", 4000.0, "s"),
        ("W", 650.0, "W"),
        ("", 0.9, ""),
    ],
)
def test_values_are_written_in_a_readable_unit(unit: str, value: float, readable: str) -> None:
    shown, scale = readable_unit(unit, value)
    assert shown == readable and base_unit(shown) == (unit, scale) == UNITS[readable]


EXAMPLES = sorted((ROOT / "examples" / "references").glob("*.toml"))


def test_there_are_example_references() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_an_example_reference_can_be_run_here(path: Path) -> None:
    example = read_reference(path)
    assert task_settings(example.task).profile == example.task.profile
    assert example.machine and example.runs and example.vflops


HAND_WRITTEN = """
name = "Cluster X"
[task]
workload = "image-classification"
profile = "tiny"
[[figure]]
name = "image-classification.throughput"
at_least = 1
unit = "samples/s"
"""


@pytest.mark.parametrize("writes_runs", [False, True])
def test_a_hand_written_reference_leaves_the_ceilings_open(
    tmp_path: Path, writes_runs: bool
) -> None:
    """``vflops run image-classification`` measures fewer ceilings than the profile's suite."""
    path = tmp_path / "r.toml"
    path.write_text(('runs = ["other"]\n' if writes_runs else "") + HAND_WRITTEN)
    made = read_reference(path)
    base = for_single_workload(profile("tiny", ["image-classification"]))
    assert base.micro != profile("tiny").micro and base.count != profile("tiny").count
    (run,) = under_test(seeded(tmp_path, Dated(0, (1.0,), settings=base)))
    faults = " ".join(judge_run(made, run, [run]).faults)
    assert ("count.models is []" in faults) == ("micro.benchmarks is" in faults) == writes_runs


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("image-classification.troughput", "did you mean image-classification.throughput"),
        ("image-classification.2-models.flops", "image-classification.flops"),
        ("gem.peak.fp32", "gemm.peak.fp32"),
        ("all-reduced.gloo-2-ranks", "all-reduce"),
    ],
)
def test_a_figure_that_the_task_does_not_have_is_refused_before_it_runs(
    tmp_path: Path, name: str, hint: str
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(HAND_WRITTEN.replace("image-classification.throughput", name))
    with pytest.raises(UsageError, match=f"unknown figure '{name}'") as raised:
        RepeatedTask.create(tmp_path / "out", read_reference(path))
    assert hint in (raised.value.hint or "")
    assert not (tmp_path / "out").exists()


def test_every_figure_of_a_run_is_known_before_it_runs(tmp_path: Path) -> None:
    (run,) = under_test(*repeats(tmp_path, 1.0))
    settings = run.view.record.settings
    assert len(run.figures) > 5 and all(is_measured(name, settings) for name in run.figures)
