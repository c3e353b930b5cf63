"""MLPerf's logs and folder, judged by MLCommons' own checkers."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.package_checker.package_checker import check_training_package
from mlperf_logging.result_summarizer import result_summarizer
from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc

from tests.support.export_runs import QUALITIES, describe, repeated
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.errors import UsageError
from vflops.publish.export.mlperf import RESULTS, RULE_SET
from vflops.publish.export.mlperf.closed import closed_faults
from vflops.publish.export.mlperf.course import Course
from vflops.publish.export.mlperf.mllog_lines import TOKEN, Line
from vflops.publish.export.mlperf.result import STATUSES
from vflops.publish.export.mlperf.submission import Submission, write_submission
from vflops.record.formats.job import BagRecord
from vflops.record.readout.contents import Contents

POWER_W = 500.0
_OF_KEY = re.compile(r"Failed checks for (\w+)")


def faults(result: Path) -> dict[str, str]:
    """What the compliance checker has against a result log, by key."""
    checker = mlp_compliance.make_checker("training", RULE_SET, quiet=True, werror=True)
    checker.check_file(str(result), f"training_{RULE_SET}/common.yaml")
    whole = (str(message) for message in checker.not_overwritable)
    named = ((found[1] if (found := _OF_KEY.match(each)) else each, each) for each in whole)
    return {**checker.overwritable, **dict(named)}


def accepted(submission: Submission, caplog: pytest.LogCaptureFixture) -> bool:
    with caplog.at_level(logging.INFO):
        check_training_package(
            str(submission.folder), "training", RULE_SET, False, False, False, False, False, "-"
        )
    return "PACKAGE CHECKER FOUND NO ERRORS" in caplog.text


def summary(submission: Submission) -> dict[str, Any]:
    """The one row of the summary with all its columns."""
    _, _, detailed, _ = result_summarizer.summarize_results(
        str(submission.folder), "training", RULE_SET
    )
    (row,) = detailed.to_dict("records")
    return dict(row)


def written(contents: Contents, folder: Path, **facts: Any) -> Submission:
    return write_submission([contents], folder, **{"org": "a centre", **facts})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(TOKEN)) for line in path.read_text().splitlines()]


def test_five_repeats_are_a_submission_that_the_checkers_accept(
    handmade_run: HandmadeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    submission = written(repeated(handmade_run, *[QUALITIES] * RESULTS), tmp_path / "out")
    assert [faults(result) for result in submission.results] == [{}] * RESULTS
    assert accepted(submission, caplog)
    row = summary(submission)
    assert row["division"] == "open"
    assert row["submitter"] == "a centre"
    assert row["accelerators_count"] == 2
    # To the second evaluation: compilation, two epochs, two evaluations, a checkpoint between.
    seconds = 3.0 + 20 * 1.1 + 2 * 2.0 + 0.5
    assert row["resnet:time_to_train"] == pytest.approx(seconds / 60, abs=1e-4)
    assert row["resnet:Energy"] == pytest.approx(POWER_W * seconds, rel=1e-4)


def test_four_repeats_are_too_few(
    handmade_run: HandmadeRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    submission = written(repeated(handmade_run, *[QUALITIES] * 4), tmp_path / "out")
    assert not accepted(submission, caplog)
    assert any(
        "there are 4 results, but a submission of resnet needs 5" in n for n in submission.notes
    )


def test_the_log_ends_with_the_evaluation_that_reached_the_target(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    submission = written(repeated(handmade_run, QUALITIES), tmp_path / "out")
    log = lines(submission.results[0])
    accuracies = [each for each in log if each["key"] == "eval_accuracy"]
    assert [accuracy["value"] for accuracy in accuracies] == [0.4, 0.85]
    assert [each["metadata"]["epoch_num"] for each in accuracies] == [1.0, 2.0]
    assert log[-1]["key"] == "run_stop"
    assert log[-1]["metadata"]["status"] == "success"
    assert accuracies[0]["metadata"]["file"] == "jobs/1/0/events.jsonl"
    events = (handmade_run.folder.path / "jobs/1/0/events.jsonl").read_text().splitlines()
    assert '"evaluation"' in events[accuracies[0]["metadata"]["lineno"] - 1]
    times = [each["time_ms"] for each in log]
    assert times == sorted(times)
    known = {each["key"]: each["value"] for each in log}
    assert known["cache_clear"] is False
    assert (known["global_batch_size"], known["train_samples"]) == (100, 1000)


def test_a_target_that_was_missed_is_an_aborted_run(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    submission = written(repeated(handmade_run, (0.1, 0.2, 0.3)), tmp_path / "out")
    stop = lines(submission.results[0])[-1]
    assert stop["metadata"]["status"] == "aborted"
    assert "result_0 did not reach its target, so its status is aborted" in submission.notes


def test_an_interruption_counts_and_lost_evaluations_do_not(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    run = handmade_run
    describe(run.folder)
    run.plan(job(1))
    run.attempt(1, 1000.0, *course(0.3, 0.5, 0.9)[:-2])
    run.attempt(1, 1100.0, *course(0.6, first_step=10))
    run.end()
    submission = written(Contents(run.folder), tmp_path / "out")
    log = lines(submission.results[0])
    qualities = [each["value"] for each in log if each["key"] == "eval_accuracy"]
    assert qualities == [0.3, 0.6]
    assert log[-1]["metadata"]["status"] == "aborted"
    assert [each["time_ms"] for each in log] == sorted(each["time_ms"] for each in log)
    assert faults(submission.results[0]) == {}
    assert any("was interrupted, so its power has a gap" in note for note in submission.notes)
    assert not list(submission.folder.glob("**/power"))


@pytest.mark.parametrize(
    ("train", "quality"),
    [
        ({}, 0.85),
        ({"schedule": "polynomial", "weight_decay": 5e-5, "learning_rate": 0.0015}, 0.75),
        ({"optimizer": "lars", "weight_decay": 2e-4, "schedule": "polynomial"}, 0.85),
    ],
)
def test_what_closed_refuses_is_what_its_checker_refuses(
    handmade_run: HandmadeRun, tmp_path: Path, train: dict[str, Any], quality: float
) -> None:
    settings = {"train": {"epochs": 3, "batch": 100, **train}}
    contents = repeated(handmade_run, (0.4, 0.5, quality), settings=settings)
    closed = written(contents, tmp_path / "closed", division="closed")
    ours = closed_faults(Course(contents.training_jobs[0], contents.folder.path))
    assert ours.pop("data") == "the data is synthetic, but closed requires ImageNet"
    assert set(ours) == set(faults(closed.results[0]))
    assert ours
    note = next(note for note in closed.notes if "closed" in note)
    assert all(why in note for why in ours.values())
    assert faults(written(contents, tmp_path / "open").results[0]) == {}


def test_each_result_is_named_with_what_it_reached(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    contents = repeated(handmade_run, (0.4, 0.65625), (0.4, 0.6875))
    note = next(n for n in written(contents, tmp_path / "x").notes if "closed" in n)
    assert "it reached 0.65625, but closed requires 0.759 or more (result_0)" in note
    assert "it reached 0.6875, but closed requires 0.759 or more (result_1)" in note
    assert note.count("the data is synthetic, but closed requires ImageNet") == 1


def test_an_optimizer_that_closed_does_not_know_is_a_fault(handmade_run: HandmadeRun) -> None:
    settings = {"train": {"epochs": 3, "batch": 100, "optimizer": "adam"}}
    contents = repeated(handmade_run, QUALITIES, settings=settings)
    found = closed_faults(Course(contents.training_jobs[0], contents.folder.path))
    assert found["opt_name"] == "the optimizer is adam, but closed allows only sgd and lars"


def test_power_that_was_not_measured_leaves_no_log_and_a_reason(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    contents = repeated(handmade_run, QUALITIES, power=False)
    submission = written(contents, tmp_path / "out")
    assert not list(submission.folder.glob("**/power"))
    assert any(note.startswith("no power logs: ") for note in submission.notes)


def test_power_logs_say_what_they_include(handmade_run: HandmadeRun, tmp_path: Path) -> None:
    submission = written(repeated(handmade_run, QUALITIES), tmp_path / "out")
    (log,) = submission.folder.glob("results/*/resnet/power/result_0/node_0.txt")
    first, *rest = lines(log)
    assert first["metadata"]["includes"] == "accelerators"
    readings = [each["value"] for each in rest if each["key"] == "power_reading"]
    assert len(readings) > 25
    assert set(readings) == {POWER_W}
    assert any("MLPerf requires the whole node" in note for note in submission.notes)


def test_what_is_no_result_is_left_out_or_refused(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    bag = BagRecord(model=0, models=2, bootstrap="poisson", seed=1)
    contents = repeated(handmade_run, QUALITIES, bag=bag)
    with pytest.raises(UsageError, match="MLPerf has no ensembles") as error:
        written(contents, tmp_path / "out")
    assert "--repeat 5" in str(error.value.hint)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_not_written_to(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    contents = repeated(handmade_run, QUALITIES)
    written(contents, tmp_path / "out")
    with pytest.raises(UsageError, match="already exists"):
        written(contents, tmp_path / "out")


def test_names_cannot_lead_out_of_the_folder_or_forge_a_line(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    contents = repeated(handmade_run, QUALITIES)
    name = '../../ü "x"\n:::MLLOG {}'
    submission = written(contents, tmp_path / "out", org=name, system_name=name)
    assert {path.parent for path in submission.results} == {
        tmp_path / "out" / "results" / "x-mllog" / "resnet"
    }
    assert faults(submission.results[0]) == {}
    known = {line["key"]: line["value"] for line in lines(submission.results[0])}
    assert known["submission_org"] == name


def test_every_availability_is_known_to_the_checkers(
    handmade_run: HandmadeRun, tmp_path: Path
) -> None:
    contents = repeated(handmade_run, QUALITIES)
    for status, title in STATUSES.items():
        submission = written(contents, tmp_path / status, status=status)
        assert faults(submission.results[0]) == {}
        (system,) = submission.folder.glob("systems/*.json")
        assert json.loads(system.read_text())["status"] == title
        assert check_system_desc(str(system), "training", RULE_SET)[0]
    with pytest.raises(UsageError, match="unknown status 'onprm'"):
        written(contents, tmp_path / "none", status="onprm")


def test_runs_of_two_systems_are_not_mixed(
    handmade_run: HandmadeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repeated(handmade_run, QUALITIES)
    other = HandmadeRun(tmp_path / "others", monkeypatch)
    second = repeated(other, QUALITIES)
    describe(other.folder, "Another GPU")
    with pytest.raises(UsageError, match="2 systems"):
        write_submission([first, second], tmp_path / "out", org="us")


def test_an_interval_is_known_by_its_key() -> None:
    kinds = [Line(1, key).event_type for key in ("run_start", "run_stop", "seed")]
    assert kinds == ["INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"]
