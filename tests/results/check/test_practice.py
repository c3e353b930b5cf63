"""What ``practice`` says of damaged folders and of runs that were altered by hand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Finding, Findings, Verdict
from vflops.results.check.rule_sets import RULE_SETS
from vflops.results.evidence.manifest import write_manifest
from vflops.results.score.scoring import score


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


def test_a_ceiling_in_doubt_is_named_where_it_cannot_be_compared(run_folder: RunFolder) -> None:
    edit_measurement(caveat="it varied by 40 %")(run_folder)
    findings = {finding.rule: finding for finding in check(Contents(run_folder)).findings}
    assert findings["plausible"].verdict == "not applicable"
    assert findings["plausible"].evidence == "gemm peak fp32 is in doubt: it varied by 40 %"


@pytest.mark.parametrize(
    ("verdicts", "tally"),
    [
        (("pass", "pass"), "2 pass"),
        (("fail", "pass", "not applicable"), "1 passes, 1 fails, 1 does not apply"),
        (("cannot tell", *["not applicable"] * 2), "1 cannot tell, 2 do not apply"),
    ],
)
def test_the_summary_counts_every_verdict(verdicts: tuple[Verdict, ...], tally: str) -> None:
    findings = tuple(Finding(rule="r", title="", verdict=v, evidence="") for v in verdicts)
    found = Findings(run="x", rule_set="practice", rule_set_version=1, findings=findings)
    assert found.tally == tally


def edit_system(folder: RunFolder) -> None:
    text = folder.system_file.read_text()
    folder.system_file.write_text(text.replace("Test CPU", "Cray-99"))


def test_a_stray_graph_changes_no_score_and_is_found(run_folder: RunFolder) -> None:
    before = score(Contents(run_folder)).to_json()
    forged = run_folder.graph_files[0].read_text()
    (run_folder.path / "graphs" / "zz.json").write_text(forged)
    assert score(Contents(run_folder)).to_json() == before
    evidence = {f.rule: f.text for f in check(Contents(run_folder)).findings if f.failed}
    assert "zz.json: the graph does not belong to a model of this run" in evidence["recounted"]


def lines_of(folder: RunFolder) -> list[bytes]:
    return log_file(folder).read_bytes().splitlines(keepends=True)


def test_an_edited_system_is_found(run_folder: RunFolder) -> None:
    edit_system(run_folder)
    verdicts = {finding.rule: finding.verdict for finding in check(Contents(run_folder)).findings}
    assert verdicts["system"] == "fail"


def test_a_value_that_is_not_the_median_of_its_samples_is_found(run_folder: RunFolder) -> None:
    edit_measurement(value=9e15)(run_folder)
    evidence = {f.rule: f.text for f in check(Contents(run_folder)).findings if f.failed}
    assert "the value is not the median of its samples" in evidence["correct"]


def test_the_last_line_of_an_attempt_is_chained_to_the_next(run_folder: RunFolder) -> None:
    log_file(run_folder).write_bytes(b"".join(lines_of(run_folder)[:-1]))  # killed before its end
    with run_folder.start_attempt(job=0) as events:
        events.write("start", workload="suite")
        events.write("end")
    score(Contents(run_folder)).write(run_folder.score_file)
    assert check(Contents(run_folder)).passed
    lines = lines_of(run_folder)
    log_file(run_folder).write_bytes(b"".join(lines[:-1]) + lines[-1].replace(b"0.02", b"0.01"))
    failed = {f.rule: f.text for f in check(Contents(run_folder)).findings if f.failed}
    assert "1/events.jsonl:1: does not follow" in failed["chain"]


def test_a_torn_line_that_a_later_attempt_made_good_is_no_fault(run_folder: RunFolder) -> None:
    log_file(run_folder).write_bytes(log_file(run_folder).read_bytes()[:-20])
    assert not check(Contents(run_folder)).passed
    with run_folder.start_attempt(job=0) as events:
        events.write("end")
    score(Contents(run_folder)).write(run_folder.score_file)
    assert check(Contents(run_folder)).passed


NOT_A_NUMBER = b'"value": NaN'


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder.path / "jobs" / "tmp").mkdir(),
        lambda folder: (folder.path / "jobs" / "0" / "old").mkdir(),
        lambda folder: log_file(folder).write_bytes(b"\0" * 100 + b"\n"),
        lambda folder: log_file(folder).write_bytes(
            b"".join(lines_of(folder)).replace(b'"value": 200000000000.0', NOT_A_NUMBER)
        ),
        lambda folder: log_file(folder).write_bytes(
            b"".join(lines_of(folder)).replace(b'"sha256"', b'"sha265"')
        ),
        lambda folder: log_file(folder).write_bytes(b"[" * 100_000 + b"\n"),
        lambda folder: folder.score_file.mkdir(),
        lambda folder: folder.graph_files[0].write_text("[" * 100_000),
        lambda folder: folder.graph_files[0].write_text(
            folder.graph_files[0].read_text().replace('"function"', '"funktion"')
        ),
        lambda folder: folder.graph_files[0].write_text(
            folder.graph_files[0].read_text().replace('"groups": 1', '"groups": 0')
        ),
        lambda folder: folder.system_file.write_bytes(b"\xff"),
        lambda folder: folder.graph_files[0].write_text(
            re.sub(r'"shape": \[[^\]]*\]', '"shape": []', folder.graph_files[0].read_text())
        ),
    ],
)
def test_a_damaged_folder_is_judged_never_a_crash(run_folder: RunFolder, damage: object) -> None:
    damage(run_folder)  # type: ignore[operator]
    findings = check(Contents(RunFolder.open(run_folder.path)))
    assert len(findings.findings) == len(RULE_SETS["practice"].rules)
    assert not findings.passed  # at the least, score.json is missing


def _linked(folder: RunFolder) -> None:
    elsewhere = folder.path.parent / "elsewhere.json"
    folder.system_file.rename(elsewhere)
    folder.system_file.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("odd", "where", "words"),
    [
        (_linked, "system.json", "a link, not a file"),
        (lambda folder: os.mkfifo(folder.path / "jobs/0/x"), "jobs/0/x", "not a file"),
    ],
)
def test_links_and_pipes_are_no_part_of_a_run_without_a_manifest_too(
    run_folder: RunFolder, odd: Callable[[RunFolder], None], where: str, words: str
) -> None:
    odd(run_folder)
    found = {finding.rule: finding for finding in check(Contents(run_folder)).failures}
    assert found["schema"].where == where
    assert found["schema"].evidence.startswith(words)


def _another_id(folder: RunFolder) -> None:
    text = folder.manifest_file.read_text()
    folder.manifest_file.write_text(text.replace(folder.record.id, "20260101T000000Z-x-abcdef"))


def _edited_line(folder: RunFolder) -> None:
    log_file(folder).write_bytes(b"".join(lines_of(folder)).replace(b"0.02", b"0.01"))


@pytest.mark.parametrize(
    ("harm", "where", "words"),
    [
        (
            _another_id,
            "manifest.json",
            "the manifest belongs to run 20260101T000000Z-x-abcdef, but run.json to run ",
        ),
        (_edited_line, "jobs/0/0/events.jsonl:10", "line 10 was changed"),
        (edit_system, "system.json", "changed"),
        (lambda folder: folder.system_file.unlink(), "system.json", "missing"),
    ],
)
def test_what_contradicts_the_manifest_is_named_with_its_place(
    run_folder: RunFolder, harm: Callable[[RunFolder], None], where: str, words: str
) -> None:
    write_manifest(run_folder)
    harm(run_folder)
    found = {finding.rule: finding for finding in check(Contents(run_folder)).failures}["manifest"]
    assert (found.where, found.evidence[: len(words)]) == (where, words)


def test_a_measurement_that_is_none_is_named_with_its_line(run_folder: RunFolder) -> None:
    edit_measurement(value="fast")(run_folder)
    evidence = {finding.rule: finding.text for finding in check(Contents(run_folder)).findings}
    assert "events.jsonl:5: not a measurement event: value" in evidence["planned"]


def test_without_ceilings_and_a_plan_of_them_there_is_little_to_judge(
    run_folder: RunFolder,
) -> None:
    def change(events: list[dict[str, object]]) -> None:
        events[:] = [event for event in events if event["kind"] not in ("plan", "measurement")]

    rewrite(run_folder, change)
    verdicts = {finding.rule: finding.verdict for finding in check(Contents(run_folder)).findings}
    assert verdicts["planned"] == "cannot tell"
    ceilings = ("correct", "sampled", "quiet", "plausible", "peaks", "bounded", "devices", "jobs")
    assert {verdicts[rule] for rule in ceilings} == {"not applicable"}


@pytest.mark.parametrize(("measured_again", "verdict"), [(False, "pass"), (True, "fail")])
def test_the_load_of_a_resumed_attempt_counts_only_if_it_measured(
    run_folder: RunFolder, measured_again: bool, verdict: str
) -> None:
    items = run_folder.history(0).events("measurement")
    item = next(item for item in items if (item.data["value"] is not None) is measured_again)
    with run_folder.start_attempt(job=0) as events:
        events.write("measurement", **item.data)
        events.write("load", others_share=0.9)
        events.write("end")
    found = {finding.rule: finding for finding in check(Contents(run_folder)).findings}["quiet"]
    assert found.verdict == verdict
    assert (found.where or "").startswith("jobs/0/1/") is measured_again


def test_a_log_that_does_not_say_what_else_ran_leaves_that_open(run_folder: RunFolder) -> None:
    def change(events: list[dict[str, object]]) -> None:
        events[:] = [event for event in events if event["kind"] not in ("load", "described")]

    rewrite(run_folder, change)
    found = {finding.rule: finding for finding in check(Contents(run_folder)).findings}
    assert (found["quiet"].verdict, found["quiet"].where) == (
        "cannot tell",
        "jobs/0/0/events.jsonl",
    )
    assert (found["system"].verdict, found["system"].where) == (
        "cannot tell",
        "jobs/0/0/events.jsonl",
    )
