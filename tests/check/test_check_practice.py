"""Every rule of ``practice`` passes on a good run and fails on one that breaks just it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vflops.check.practice import PRACTICE, check
from vflops.record.folder import RunFolder
from vflops.score.contents import Contents
from vflops.score.score import score


def log_file(folder: RunFolder) -> Path:
    return folder.path / "jobs" / "0" / "0" / "events.jsonl"


def rewrite(folder: RunFolder, change: Callable[[list[dict[str, object]]], None]) -> None:
    """Change the events and chain them anew, as a careful forger would."""
    events = [json.loads(line) for line in log_file(folder).read_text().splitlines()]
    change(events)
    log_file(folder).unlink()
    log_file(folder).parent.rmdir()
    with folder.start_attempt(job=0) as writer:
        for event in events:
            writer.write(str(event["kind"]), **event["data"])


def edit_measurement(**fields: object) -> Callable[[RunFolder], None]:
    def change(events: list[dict[str, object]]) -> None:
        first = next(event for event in events if event["kind"] == "measurement")
        first["data"].update(fields)  # type: ignore[attr-defined]

    return lambda folder: rewrite(folder, change)


def drop_end(folder: RunFolder) -> None:
    def change(events: list[dict[str, object]]) -> None:
        del events[-1]

    rewrite(folder, change)


def drop_line(folder: RunFolder) -> None:
    lines = log_file(folder).read_bytes().splitlines(keepends=True)
    del lines[1]  # "counted": nothing else rests on it once it is gone
    log_file(folder).write_bytes(b"".join(lines))


def drop_measurement(folder: RunFolder) -> None:
    def change(events: list[dict[str, object]]) -> None:
        del events[3]

    rewrite(folder, change)


def edit_graph(folder: RunFolder) -> None:
    path = folder.graph_files[0]
    path.write_text(path.read_text().replace('"framework": "none"', '"framework": "other"'))


def edit_score(folder: RunFolder) -> None:
    text = folder.score_file.read_text()
    folder.score_file.write_text(text.replace("200000000000.0", "900000000000.0"))


def busy(folder: RunFolder) -> None:
    def change(events: list[dict[str, object]]) -> None:
        next(e for e in events if e["kind"] == "load")["data"] = {"others_share": 0.4}

    rewrite(folder, change)


BREAKS: dict[str, Callable[[RunFolder], None]] = {
    "complete": drop_end,
    "chain": drop_line,
    "system": lambda folder: folder.system_file.unlink(),
    "planned": drop_measurement,
    "correct": edit_measurement(error=0.5),
    "sampled": edit_measurement(samples=[2e11]),
    "quiet": busy,
    "plausible": edit_measurement(value=2e10),
    "recounted": edit_graph,
    "score": edit_score,
}


def test_a_good_run_passes_every_rule(run_folder: RunFolder) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    findings = check(Contents(run_folder))
    assert {finding.verdict for finding in findings.findings} == {"pass"}
    assert findings.passed


@pytest.mark.parametrize("rule", [rule.id for rule in PRACTICE])
def test_a_run_that_breaks_just_one_rule_fails_just_that(run_folder: RunFolder, rule: str) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    BREAKS[rule](run_folder)
    if rule != "score":  # the score follows the record, also a broken one
        score(Contents(run_folder)).write(run_folder.score_file)
    findings = check(Contents(run_folder))
    assert [finding.rule for finding in findings.findings if finding.failed] == [rule]
    assert not findings.passed


def test_an_error_that_is_not_a_number_is_not_below_the_tolerance(run_folder: RunFolder) -> None:
    text = log_file(run_folder).read_text().replace('"error": 1e-07', '"error": "NaN"')
    log_file(run_folder).write_text(text)
    verdicts = {finding.rule: finding.verdict for finding in check(Contents(run_folder)).findings}
    assert verdicts["correct"] == "fail"


def test_a_measurement_that_is_none_is_named_with_its_line(run_folder: RunFolder) -> None:
    edit_measurement(value="fast")(run_folder)
    evidence = {finding.rule: finding.evidence for finding in check(Contents(run_folder)).findings}
    assert "events.jsonl:4: not a measurement: value" in evidence["planned"]
