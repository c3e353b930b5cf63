"""What else ran while jobs trained, and what an imported power log may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.forged_runs import INTERVAL_S, MODELS, POWER_W, WORK_S, Forger
from tests.support.forged_times import busy
from tests.support.forgeries import (
    Break,
    GoodRun,
    changed,
    good_runs,
    hurried,
    judged,
    later,
    together,
)
from vflops.record.folder import RunFolder
from vflops.record.formats.node import Clock, NodeRecord
from vflops.record.installed_package import installed_package
from vflops.record.readout.contents import Contents
from vflops.results.check import background_load
from vflops.results.check.findings import Finding
from vflops.results.score.scoring import score
from vflops.run import pipeline


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def metered(power_w: float, *, every_s: float = INTERVAL_S, share: float = 1.0) -> Break:
    """A log of the node, imported: constant power over a share of the first training."""

    def imported(folder: RunFolder) -> None:
        began_s = folder.history().jobs[1][0].events[0].utc_s - every_s
        length_s = share * (WORK_S + 30 + 2 * every_s)
        times = (began_s + every_s * n for n in range(int(length_s / every_s) + 1))
        log = folder.path.parent / "meter.csv"
        log.write_text("time,power_w\n" + "".join(f"{at_s},{power_w}\n" for at_s in times))
        pipeline.import_power(folder, log)
        score(Contents(folder)).write(folder.score_file)

    return later(imported)


def on_one_node(run: Forger) -> None:
    for job in range(1, 1 + MODELS):
        clock = Clock(offset_s=0.0, uncertainty_s=0.0)
        facts = {"host": "a", "name": "a", "reference": "b", "facts": ()}
        sha256 = installed_package().sha256
        record = NodeRecord(node=0, nodes=1, clock=clock, package_sha256=sha256, **facts)
        record.write(run.attempt(job) / "node-0.json")


def finding(good: Path, place: Path, rule: str, harm: Break) -> Finding:
    findings = judged(good, place, "practice", harm)
    assert {finding.rule for finding in findings.failures} <= {rule}
    return next(finding for finding in findings.findings if finding.rule == rule)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (metered(0.001), "0.001 W on average, but training with 1 rank draws at least 1.00 W"),
        (metered(0.0), "0 W on average, but training with 1 rank draws at least 1.00 W"),
        (metered(POWER_W / 2), "150 W on average, but its parts alone draw 300 W"),
        (metered(2e6), "2.00 MW on average, but no node draws more than 1.00 MW"),
        (
            metered(2 * POWER_W, every_s=2000.0),
            "2 readings while it trained",
        ),
    ],
    ids=["next to nothing", "nothing", "less than its parts", "too much", "too few readings"],
)
def test_an_imported_log_that_cannot_be_fails(
    good: GoodRun, tmp_path: Path, harm: Break, words: str
) -> None:
    found = finding(good("one model"), tmp_path, "energy", harm)
    assert found.verdict == "fail"
    assert words in found.evidence
    assert found.where == "telemetry/imported-1.jsonl"


def test_a_line_of_an_imported_log_that_is_no_sample_fails(good: GoodRun, tmp_path: Path) -> None:
    def torn(folder: RunFolder) -> None:
        log = folder.path / "telemetry" / "imported-1.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join([*lines[:9], "{}\n", *lines[9:]]))

    harm = together(metered(2 * POWER_W), later(torn))
    failed = {
        finding.rule for finding in judged(good("one model"), tmp_path, "practice", harm).failures
    }
    assert {"energy", "powered"} <= failed


@pytest.mark.parametrize("harm", [metered(2 * POWER_W), metered(0.001, share=0.5)])
def test_a_log_that_could_be_or_does_not_count_is_no_fault(
    good: GoodRun, tmp_path: Path, harm: Break
) -> None:
    assert finding(good("one model"), tmp_path, "energy", harm).verdict == "pass"


@pytest.mark.parametrize(
    ("others", "samples", "verdict", "share"),
    [(80.0, None, "fail", "80 %"), (9.0, None, "pass", "9.0 %"), (80.0, 10, "pass", "1.0 %")],
    ids=["busy", "quiet", "too short to tell"],
)
def test_a_machine_that_is_busy_with_others_while_it_trains_is_not_quiet(
    good: GoodRun, tmp_path: Path, others: float, samples: int | None, verdict: str, share: str
) -> None:
    harm = busy(1, 95.0, others, samples)
    found = finding(good("one model"), tmp_path, "quiet", harm)
    assert found.verdict == verdict
    assert f"other programs used {share} of the CPUs while" in found.evidence
    assert found.where == ("jobs/1/0/telemetry.jsonl" if verdict == "fail" else None)


def test_a_training_of_less_than_a_minute_does_not_tell_what_else_ran(
    good: GoodRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_load, "MIN_TRAINING_S", WORK_S + 60)
    run, disturbed = good("one model"), []

    def remark(others: float) -> Break:
        def look(forger: Forger) -> None:
            busy(1, 95.0, others)(forger)
            disturbed.append(background_load.unjudged_load(Contents(forger.folder)))

        return look

    assert finding(run, tmp_path / "a", "quiet", remark(80.0)).verdict == "pass"
    assert finding(run, tmp_path / "b", "quiet", remark(20.0)).verdict == "pass"
    loud, soft = disturbed
    assert loud is not None and loud.startswith("other programs used 80 % of the CPUs while job 1")
    assert soft is None


def test_repeats_that_vary_are_reported_with_what_else_ran(good: GoodRun, tmp_path: Path) -> None:
    run = good("one model")
    harm = together(hurried, busy(1, 95.0, 80.0))
    failures = judged(run, tmp_path / "varied", "practice", harm).failures
    assert {finding.rule for finding in failures} == {"quiet", "steady"}
    (found,) = (finding for finding in failures if finding.rule == "steady")
    # Three repeats at one speed and one at twice the speed: √(3/4 · 1/4 · 4/3) = 0.5 of the speed,
    # around a mean of 1.25.
    assert found.evidence.startswith(
        "image-classification: the FLOPS of 4 seeds have a coefficient of variation of 40.0 %; "
        "at most 10 % is allowed; other programs used 80 % of the CPUs"
    )
    assert found.where and found.where.startswith("jobs/4/0/events.jsonl:")
    assert finding(run, tmp_path / "steady", "steady", lambda run: None).verdict == "pass"


@pytest.mark.parametrize(
    ("stolen", "verdict"), [(10.6, "fail"), (9.4, "pass")], ids=["crowded", "idle"]
)
def test_a_host_that_takes_time_is_named_and_not_taken_for_programs(
    good: GoodRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stolen: float,
    verdict: str,
) -> None:
    monkeypatch.setattr(background_load, "MIN_TRAINING_S", WORK_S + 60)  # short ones count too
    harm = busy(1, 80.0, 1.0, stolen=stolen)
    found = finding(good("one model"), tmp_path, "stolen", harm)  # and no other rule fails
    assert found.verdict == verdict
    assert found.evidence == (
        f"the host of this virtual machine took {stolen} % of the CPU time while job 1 trained; "
        "at most 10 % is allowed"
    )
    assert found.where == ("jobs/1/0/telemetry.jsonl" if verdict == "fail" else None)


@pytest.mark.parametrize(
    ("samples", "verdict", "evidence"),
    [
        (
            None,
            "pass",
            "no CPU time was taken by the host of a virtual machine; at most 10 % is allowed",
        ),
        (7, "not applicable", "the CPU time that a host took has too few readings (5 of 10)"),
        (0, "not applicable", "the CPU time that a host took was not recorded"),
    ],
    ids=["none", "few", "not recorded"],
)
def test_few_readings_of_the_time_that_a_host_takes_are_counted(
    good: GoodRun, tmp_path: Path, samples: int | None, verdict: str, evidence: str
) -> None:
    found = finding(good("one model"), tmp_path, "stolen", busy(1, 80.0, 1.0, samples))
    assert (found.verdict, found.evidence) == (verdict, evidence)


def test_a_machine_that_was_busy_names_the_programs(good: GoodRun, tmp_path: Path) -> None:
    programs = [{"name": "firefox", "share": 0.41}, {"name": "py\x1b", "share": 0.122}]

    def name_them(run: Forger) -> None:
        busy(1, 95.0, 63.0)(run)
        path = run.attempt(1) / "telemetry.jsonl"
        lines = path.read_text().splitlines()
        lines[-1] = json.dumps({**json.loads(lines[-1]), "programs": programs})
        path.write_text("\n".join(lines) + "\n")

    while_training = finding(good("one model"), tmp_path / "a", "quiet", name_them)
    load = changed("load", others_share=0.63, programs=programs)
    while_measuring = finding(good("one model"), tmp_path / "b", "quiet", load)
    who = "other programs used 63 % of the CPUs (firefox 41 %, py\\x1b 12 %) while "
    assert while_training.evidence == f"{who}job 1 trained; at most 10 % is allowed"
    assert while_measuring.evidence == f"{who}ceilings were measured; at most 10 % is allowed"


@pytest.mark.parametrize(("others", "verdict"), [(48.0, "pass"), (65.0, "fail")])
def test_jobs_of_one_run_side_by_side_are_no_others(
    good: GoodRun, tmp_path: Path, others: float, verdict: str
) -> None:
    """Two models on one node, each with half of what is busy: the rest is of others."""
    own = 48.0
    harm = together(on_one_node, *(busy(job, own + others, others) for job in (1, 2)))
    found = finding(good("ensembles"), tmp_path, "quiet", harm)
    assert found.verdict == verdict
    assert (found.verdict == "pass") or "other programs used 17.0 % of the CPUs" in found.evidence
