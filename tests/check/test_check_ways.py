"""Rules are broken in more than one way, and some things that look like it break none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from forged_runs import REPEATS, TRAIN, WORK_S, Forger
from forgeries import (
    Break,
    GoodRun,
    changed,
    first,
    good_runs,
    judged,
    later,
    measured,
    power,
    together,
    told,
)
from vflops.flops.count import count
from vflops.flops.rules import rule_set as flop_rules
from vflops.record.folder import RunFolder, file_hash
from vflops.score.contents import Contents


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


too_many = changed("finished", 1, reason="target", samples=10**9)
unknown_precision = changed("job", ceiling_precision=None)


def shorter(run: Forger) -> None:
    """80 epochs, and as many samples."""
    samples = 80 * TRAIN
    run.record(1, lambda data: data["settings"]["train"].update(epochs=80))
    for line in (*run.lines("evaluation", 1), *run.lines("finished", 1)):
        line["data"]["samples"] = samples


def in_waves(run: Forger) -> None:
    """Models that find no place wait for others."""
    path = run.folder.path / "run.json"
    path.write_text(path.read_text().replace('"waves": false', '"waves": true'))
    run.folder = RunFolder.open(run.folder.path)


def power_limit(limit_w: float) -> Break:
    """A power limit in the description of the system."""

    def change(run: Forger) -> None:
        path = run.folder.system_file
        data = json.loads(path.read_text())
        fact = {"name": "accelerator 0 power limit", "value": limit_w, "source": "test"}
        data["layers"][0]["facts"].append({**fact, "unit": "W", "reason": None})
        path.write_text(json.dumps(data))
        for line in run.lines("described"):
            line["data"]["sha256"] = file_hash(path)

    return change


def absent(run: Forger) -> None:
    """Sensors that never returned anything."""
    for job in range(1, REPEATS + 1):
        path = run.attempt(job) / "telemetry.jsonl"
        path.write_text(re.sub(r'"values":\[[^]]*\]', '"values":[null,null]', path.read_text()))


@pytest.mark.parametrize(
    ("rules", "rule", "base", "harm", "words"),
    [
        ("practice", "energy", "one model", power(-5.0), "a sensor that reads nothing"),
        ("practice", "energy", "one model", power_limit(200.0), "its limit is 200 W"),
        ("practice", "evaluated", "one model", changed("evaluation", quality=1.5), "1.5 is none"),
        ("practice", "evaluated", "one model", changed("evaluation", 1, step=3), "after step 3"),
        ("practice", "evaluated", "ensembles", first("ensemble", evaluated=9), "saw 9 of 50,000"),
        ("practice", "data", "one model", told("data", fingerprint="1" * 64), "other data than"),
        ("practice", "processed", "one model", too_many, "are not 90 epochs"),
        ("hpcai500-v2", "epochs", "one model", shorter, "80 epochs, 90 are fixed"),
        ("hpcai500-v2", "target", "one model", told("goal", exponent=10), "exponent is 10"),
        ("hpcai500-v2", "target", "one model", told("goal", quality="top-5 accuracy"), "top-5"),
        ("hpcai500-v2", "published-data", "one model", told("data", synthetic=True), "synthetic"),
        ("hpcai500-v2", "precision", "one model", unknown_precision, "does not say"),
        ("hpcai500-v3", "ensemble", "ensembles", told(ranks=2), "different numbers of ranks"),
        ("hpcai500-v3", "ensemble", "ensembles", in_waves, "models waited for others"),
        ("hpcai500-v3", "bootstrap", "ensembles", told("bag", twins=True), "twins learn from one"),
    ],
)  # fmt: skip
def test_a_rule_is_broken_in_more_than_one_way(
    good: GoodRun,
    tmp_path: Path,
    rules: str,
    rule: str,
    base: str,
    harm: Break,
    words: str,
) -> None:
    findings = judged(good(base), tmp_path, rules, harm)
    (found,) = findings.failures
    assert found.rule == rule
    assert words in found.told


def test_a_sensor_that_returns_nothing_is_not_measured(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(good("one model"), tmp_path, "practice", absent)
    assert findings.passed
    (energy,) = (each for each in findings.findings if each.rule == "energy")
    assert energy.verdict == "not applicable"
    assert energy.evidence == "no power was measured; not measured: gpu0"


def test_a_counter_that_stands_still_is_no_measurement(good: GoodRun, tmp_path: Path) -> None:
    def silent(folder: RunFolder) -> None:
        path = folder.attempt_folder(1, 0) / "telemetry.jsonl"
        path.write_text(re.sub(r'"values":\[[^]]*\]', '"values":[null,5.0]', path.read_text()))

    findings = judged(good("one model"), tmp_path, "practice", later(silent))
    told = {each.rule: each.told for each in findings.failures}
    assert told["energy"].endswith("gpu0: its counter says 0 W: a sensor that reads nothing")


def test_analytic_operations_may_exceed_the_ceiling(good: GoodRun, tmp_path: Path) -> None:
    """Counted are 1.1 times what is executed: between the two there is room for a ceiling."""
    (graph,) = Contents(RunFolder.open(good("one model"))).graphs
    samples_per_s = 90 * TRAIN / WORK_S
    analytic, executed = (
        count(graph, flop_rules(name)).total.total // graph.batch * samples_per_s
        for name in ("hpcai500", "executed")
    )
    assert analytic > 1.05 * executed
    value = (analytic + executed) / 2
    harm = together(measured("gemm", value=value), measured("convolution", value=value))
    findings = judged(good("one model"), tmp_path, "practice", harm)
    assert findings.passed
    scored = json.loads((tmp_path / good("one model").name / "score.json").read_text())
    assert scored["trainings"][0]["mfu"]["value"] > 1


def test_the_level_is_told_with_the_setting_that_made_it(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(
        good("one model"),
        tmp_path,
        "hpcai500-v2",
        lambda run: run.record(2, lambda data: data["settings"]["train"].update(momentum=0.5)),
    )
    assert findings.passed
    (level,) = (each for each in findings.findings if each.rule == "level")
    assert level.evidence == "level free: train.momentum = 0.5 (reference 0.875)"
