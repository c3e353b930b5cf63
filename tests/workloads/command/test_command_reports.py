"""What a script says: read where it is meant for us, refused where it is wrong."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflops.errors import RunFailed
from vflops.metrics.quality import Better, Bounds
from vflops.record.formats.job import Goal
from vflops.workloads.command.reports import Reader, Report


def goal(name: str = "quality", better: Better = "higher", bounds: Bounds | None = None) -> Goal:
    return Goal(quality=name, better=better, target=0.8, exponent=5, bounds=bounds)


def reader(validation: int | None = 20) -> Reader:
    return Reader(goal(), validation)


objects = st.dictionaries(st.sampled_from(["samples", "phase", "x"]), st.integers() | st.text())


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ('{"samples": 5, "loss": 1.5}', Report(samples=5, loss=1.5)),
        ('{"samples": 0}', Report(samples=0)),
        (' {"loss": null, "samples": 5}\n', Report(samples=5)),
        ('{"samples": 5, "quality": 1}', Report(5, None, 1.0, 20)),
        ('{"samples": 5, "quality": 0.5, "evaluated": 7}', Report(5, None, 0.5, 7)),
        ('{"phase": "data"}', Report(phase="data")),
    ],
)
def test_a_report_is_read(line: str, report: Report) -> None:
    assert reader().read(line) == report


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 1: loss 0.5",
        "{",
        "{not json}",
        '{"epoch": 1, "loss": 0.5}',
        '{"info": {"samples": 3}}',
        '["samples"]',
        "5",
    ],
)
def test_other_lines_are_the_scripts_own(line: str) -> None:
    assert reader().read(line) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"samples": 5', "not a JSON object"),
        ("{'samples': 5}", "not a JSON object"),
        ('{"samples": 5.0}', "samples is 5.0"),
        ('{"samples": true}', "samples is True"),
        ('{"samples": -1}', "samples is -1"),
        ('{"samples": NaN}', "samples is nan"),
        ('{"samples": 1e400}', "samples is inf"),
        ('{"samples": "5"}', "samples is '5'"),
        ('{"samples": 5, "los": 1}', "did you mean loss"),
        ('{"samples": 5, "loss": "low"}', "loss is 'low'"),
        ('{"quality": 0.5}', "a quality needs samples"),
        ('{"samples": 5, "quality": NaN}', "quality is nan"),
        ('{"samples": 5, "quality": -0.1}', "quality is -0.1"),
        ('{"samples": 5, "quality": null}', "quality is None"),
        ('{"samples": 5, "quality": 1, "evaluated": 0}', "evaluated is 0"),
        ('{"samples": 5, "evaluated": 3}', "only valid together with quality"),
        ('{"phase": "resting"}', "expected one of compilation, data"),
        ('{"phase": "start-up"}', "expected one of"),
        ('{"phase": ["data"]}', "expected one of"),
        ('{"phase": "data", "samples": 3}', "must be the only key"),
    ],
)
def test_a_wrong_report_is_named_with_its_line(line: str, why: str) -> None:
    lines = reader()
    lines.read("hello")
    with pytest.raises(RunFailed) as caught:
        lines.read(line)
    assert "line 2" in caught.value.message
    assert why in caught.value.message


def test_samples_never_fall() -> None:
    lines = reader()
    lines.read('{"samples": 5}')
    lines.read('{"samples": 5}')
    with pytest.raises(RunFailed, match="fell from 5 to 4"):
        lines.read('{"samples": 4}')


def test_someone_must_say_how_many_were_evaluated() -> None:
    with pytest.raises(RunFailed, match="evaluated"):
        reader(validation=None).read('{"samples": 5, "quality": 1}')


def test_an_error_of_zero_is_a_valid_report() -> None:
    report = Reader(goal("error", "lower", (0.0, 1.0)), 20).read('{"samples": 5, "quality": 0}')
    assert report is not None and report.quality == 0


def test_a_quality_outside_of_its_bounds_is_refused_when_it_is_reported() -> None:
    line = '{"samples": 5, "quality": 1.7}'
    with pytest.raises(RunFailed) as caught:
        Reader(goal("accuracy", bounds=(0.0, 1.0)), 20).read(line)
    assert "the accuracy is 1.7, but it lies between 0 and 1" in caught.value.message
    assert "a share, not percent" in caught.value.message
    assert "--set 'command.bounds=[0, 100]'" in caught.value.message
    assert Reader(goal("accuracy", bounds=(0.0, 100.0)), 20).read(line) is not None


def test_a_loss_that_is_no_number_any_more_is_passed_on() -> None:
    report = reader().read('{"samples": 5, "loss": NaN}')
    assert report is not None and report.loss is not None and math.isnan(report.loss)


@given(
    st.text()
    | st.dictionaries(st.sampled_from(["samples", "phase", "x"]), st.text()).map(json.dumps)
)
def test_nothing_but_a_clear_error_comes_of_any_line(text: str) -> None:
    try:
        reader().read(text)
    except RunFailed as error:
        assert error.message.startswith("line 1 of the command's output")
