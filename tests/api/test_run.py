"""``vflops.Run``: every table agrees with the files, and loads into pandas."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pandas
import pytest

import vflops
from vflops.record.folder import RunFolder
from vflops.record.log.imported_power import import_power
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score


@pytest.fixture
def run(trained_folder: RunFolder) -> vflops.Run:
    return vflops.Run(str(trained_folder.path))


def test_a_run_says_what_it_is(run: vflops.Run, trained_folder: RunFolder) -> None:
    assert (run.path, run.id) == (trained_folder.path, trained_folder.record.id)
    assert run.version == vflops.__version__
    assert run.created == datetime.fromisoformat(trained_folder.record.created_utc)
    assert run.settings()["profile"] == "tiny"
    assert run.id in repr(run)


def test_a_run_without_an_end_is_incomplete(run_folder: RunFolder) -> None:
    assert vflops.Run(run_folder.path).complete
    (log,) = run_folder.path.glob("jobs/0/0/events.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    assert not vflops.Run(run_folder.path).complete
    assert "incomplete" in repr(vflops.Run(run_folder.path))


def test_the_score_is_that_of_the_score_file(run: vflops.Run) -> None:
    expected = score(Contents(RunFolder.open(run.path))).trainings
    rows = run.score()
    assert [row["job"] for row in rows] == [1, 2]
    for row, training in zip(rows, expected, strict=True):
        assert training.speed is not None
        assert (row["kind"], row["workload"]) == ("training", training.workload)
        assert row["task"] == training.task in ("closed", "open")
        closed = row["task"] == "closed"
        capped, other = ("vflops", "open_vflops") if closed else ("open_vflops", "vflops")
        assert (row[capped], row[other]) == (training.speed.vflops_capped, None)
        assert row["vflops_published"] == (training.speed.vflops if closed else None)
        assert row["flops"] == training.speed.flops
        assert row["quality"] == training.quality.achieved
        assert row["power"] == training.power.power_w == pytest.approx(500)
    assert [row["quality"] for row in rows] == [0.9, 0.88]


def test_figures_have_units_and_include_the_ceilings(run: vflops.Run) -> None:
    figures = run.figures()
    power = [row for row in figures if row["key"] == "power"]
    assert [(row["job"], row["unit"], row["better"]) for row in power] == [
        (1, "W", "lower"),
        (2, "W", "lower"),
    ]
    assert {row["value"] for row in figures if row["kind"] == "ceiling"} > {None}
    wide = {key: value for row in run.score() for key, value in row.items() if row["job"] == 2}
    assert all(
        wide[row["key"]] == row["value"]
        for row in figures
        if row["job"] == 2 and row["kind"] == "training"
    )


def test_events_are_those_of_the_logs(run: vflops.Run) -> None:
    files = sorted(run.path.glob("jobs/*/*/events.jsonl"))
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    events = run.events()
    assert [(row["kind"], row["time_s"]) for row in events] == [
        (line["kind"], line["time_s"]) for line in lines
    ]
    evaluations = run.events("evaluation")
    assert [(row["job"], row["attempt"], row["data.quality"]) for row in evaluations] == [
        (1, 0, 0.3),
        (1, 1, 0.6),
        (1, 1, 0.9),
        (2, 0, 0.4),
        (2, 0, 0.85),
        (2, 0, 0.88),
    ]
    assert evaluations[0]["utc"].tzinfo is UTC
    assert evaluations[0]["data.phases.training"] > 0


def test_an_unknown_kind_of_event_is_an_error_that_names_the_nearest(run: vflops.Run) -> None:
    with pytest.raises(vflops.VflopsError, match="unknown kind of event 'evalution'") as unknown:
        run.events("evalution")
    assert "did you mean evaluation" in str(unknown.value.hint)
    assert run.events("failed") == run.events("out-of-bag") == []


def test_telemetry_has_one_column_per_series(run: vflops.Run, tmp_path: Path) -> None:
    columns = run.telemetry()
    series = {row["id"]: row for row in run.series()}
    assert series["gpu0.power"]["unit"] == "W"
    assert list(columns) == ["job", "attempt", "node", "utc", "time_s", *series]
    assert {len(column) for column in columns.values()} == {33 + 43 + 63}
    assert set(columns["gpu0.power"]) == {300.0}
    samples = set(zip(columns["job"], columns["attempt"], strict=True))
    assert samples == {(1, 0), (1, 1), (2, 0)}
    log = tmp_path / "pdu.csv"
    log.write_text("time,power_w\n2026-01-01T00:00:00Z,700\n2026-01-01T00:00:05Z,710\n")
    import_power(run.path, log)
    columns = run.telemetry()
    assert columns["node.power"][-2:] == [700.0, 710.0]
    assert columns["utc"][-1] == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert columns["job"][-1] is columns["gpu0.power"][-1] is columns["node.power"][0] is None


def test_findings_are_the_verdicts_of_the_check(run: vflops.Run) -> None:
    verdicts = {row["rule"]: row["verdict"] for row in run.findings()}
    expected = check(Contents(RunFolder.open(run.path)))
    assert verdicts == {finding.rule: finding.verdict for finding in expected.findings}
    assert {"pass", "fail"} <= set(verdicts.values())
    with pytest.raises(vflops.VflopsError, match="practise"):
        run.findings("practise")


def test_every_table_loads_into_pandas(run: vflops.Run) -> None:
    events = pandas.DataFrame(run.events("evaluation"))
    assert events.groupby("job")["data.quality"].max().to_dict() == {1: 0.9, 2: 0.88}
    telemetry = pandas.DataFrame(run.telemetry())
    assert telemetry.set_index("utc")["gpu1.power"].resample("1h").mean().dropna().iloc[0] == 200
    assert pandas.DataFrame(run.score())["quality"].max() == 0.9
    for table in (run.figures(), run.series(), run.findings()):
        assert len(pandas.DataFrame(table)) == len(table) > 0


def test_damaged_lines_are_warned_of(run: vflops.Run) -> None:
    before = len(run.events())
    (log,) = run.path.glob("jobs/2/0/events.jsonl")
    log.write_text(log.read_text().replace('"kind": "progress"', '"kind": 7', 1))
    (samples,) = run.path.glob("jobs/2/0/telemetry.jsonl")
    samples.write_text(samples.read_text().replace('"values":[', '"values":["x",', 1))
    again = vflops.Run(run.path)
    with pytest.warns(UserWarning, match=r"the run is damaged: .*events.jsonl:\d+: not an event"):
        assert len(again.events()) == before - 1
    with pytest.warns(UserWarning, match=r"telemetry.jsonl:2: not a sample"):
        again.telemetry()
