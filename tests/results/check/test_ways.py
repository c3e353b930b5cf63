"""Rules are broken in more than one way, and some things that look like it break none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forged_runs import (
    MODELS,
    REPEATS,
    TRAIN,
    WORK_S,
    Forger,
    describe,
    stood,
)
from tests.support.forgeries import (
    Break,
    GoodRun,
    changed,
    first,
    good_runs,
    in_job,
    judged,
    later,
    measured,
    power,
    together,
)
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.counting.conventions import convention as flop_rules
from vflops.counting.count import count
from vflops.errors import FolderError
from vflops.record.folder import RunFolder, file_hash
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.published_figures import MAX_ERROR
from vflops.results.score.scoring import score


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def too_many(run: Forger) -> None:
    """More epochs than there are, up to a target that was reached."""
    for number in range(1, REPEATS + 1):
        run.stands(number, epochs=900)
    changed("finished", reason="target")(run)


def shorter(**train: int) -> Break:
    """Fewer epochs, and as many samples: everything says so."""

    def change(run: Forger) -> None:
        run.settings(lambda data: data["train"].update(train))
        for number in range(1, REPEATS + 1):
            run.stands(number, epochs=min(train.values()))

    return change


def twins(run: Forger) -> None:
    """Pairs of models that came to the same."""
    run.twins()
    for number in range(1, MODELS * REPEATS, MODELS):
        for twin in (number, number + 1):
            changed("finished", twin, weights_sha256=f"{number:064x}")(run)


early = changed("evaluation", 1, **stood(3))
boasting = first("ensemble", sizes=[{"models": 2, "quality": 5.0}])
fp8 = changed("job", 1, precision="fp8")
ceiling = changed("job", 1, ceiling_precision="fp64")
one_step = together(changed("finished", 1, step=1), changed("evaluation", 1, step=1))
unread = changed("evaluation", 1, samples=0)
other_device = changed("job", 2, device_name="Test GPU 2")
tolerant = measured("gemm", error=1e8, tolerance=1e9)


def batch(size: int) -> Break:
    """A batch in the settings that no step had."""
    return lambda run: run.settings(lambda data: data["train"].update(batch=size))


def network(run: Forger) -> None:
    run.record(2, lambda data: data["settings"]["network"].update(width=8))


def ranks(run: Forger) -> None:
    run.records(lambda data: data.update(ranks=60_000))


def lower_target(run: Forger) -> None:
    run.records(lambda data: data["goal"].update(target=0.1))


def falls(run: Forger) -> None:
    """Time that was training at first is start-up at last; the sum is what it was."""
    for kind in ("evaluation", "finished"):
        (line,) = run.lines(kind, 1)
        line["data"]["phases"].update({"training": WORK_S / 3, "checkpointing": 2 * WORK_S / 3})


def long_ago(run: Forger) -> None:
    for line in run.lines("finished"):
        line["utc"] = "1999-01-01T00:00:00+00:00"


def in_waves(run: Forger) -> None:
    """Models that find no place wait for others."""
    path = run.folder.path / "run.json"
    path.write_text(path.read_text().replace('"waves": false', '"waves": true'))
    run.folder = RunFolder.open(run.folder.path)


def power_limit(limit_w: float) -> Break:
    """A power limit in the description of the system."""

    def change(run: Forger) -> None:
        describe(run.folder.system_file, accelerator_0_power_limit=limit_w)
        for line in run.lines("described"):
            line["data"]["sha256"] = file_hash(run.folder.system_file)

    return change


def absent(run: Forger) -> None:
    """Sensors that never returned anything."""
    for number in range(1, REPEATS + 1):
        path = run.attempt(number) / "telemetry.jsonl"
        path.write_text(re.sub(r'"values":\[[^]]*\]', '"values":[null,null]', path.read_text()))


@pytest.mark.parametrize(
    ("rules", "rule", "base", "harm", "words"),
    [
        ("practice", "energy", "one model", power(-5.0), "the sensor does not work"),
        ("practice", "energy", "one model", power_limit(200.0), "its limit is 200 W"),
        ("practice", "evaluated", "one model", changed("evaluation", quality=1.5), "is 1.5, but"),
        ("practice", "evaluated", "one model", early, "followed step 3"),
        ("practice", "evaluated", "ensembles", boasting, "the top-1 accuracy is 5, but"),
        ("practice", "as-told", "one model", batch(10**9), "the batch is 256, but 1,000,000,000"),
        ("practice", "as-told", "one model", ranks, "60,000 ranks, but"),
        ("practice", "as-told", "one model", fp8, "precision is fp8, but fp32"),
        ("practice", "as-told", "one model", ceiling, "a ceiling in fp64 does not bound"),
        ("practice", "as-told", "one model", network, "network.width is 8, but 64 in run.json"),
        ("practice", "as-told", "one model", changed("finished", 1, epoch=1.0), "epoch 1 is not"),
        ("practice", "as-told", "one model", one_step, "samples are not 1 step of 256"),
        ("practice", "as-told", "one model", unread, "0 samples are not 450,411 steps"),
        ("practice", "as-told", "ensembles", in_job("bag", bootstrap="none"), "bootstrap none"),
        ("practice", "goal", "one model", lower_target, "the target of top-1 accuracy is 0.1"),
        ("practice", "goal", "one model", other_device, "its device differs from job 1"),
        ("practice", "timed", "one model", falls, "the time in training decreased"),
        ("practice", "correct", "one model", tolerant, "limit 5e-05"),
        ("practice", "clocks", "one model", long_ago, "wall clock and monotonic clock are"),
        ("practice", "evaluated", "ensembles", first("ensemble", evaluated=9), "on 9 of 50,000"),
        ("practice", "data", "one model", in_job("data", fingerprint="1" * 64), "job 2 differs"),
        ("practice", "processed", "one model", too_many, "are not 90 epochs"),
        ("hpcai500-v2", "epochs", "one model", shorter(epochs=80), "80 epochs, but the paper"),
        ("hpcai500-v2", "epochs", "one model", shorter(end_epoch=1), "end_epoch is 1, but the"),
        ("hpcai500-v2", "published-data", "one model", in_job("data", synthetic=True), "synthetic"),
        ("hpcai500-v3", "ensemble", "ensembles", in_waves, "models waited for others"),
        ("hpcai500-v3", "bootstrap", "ensembles", twins, "twins share their sample"),
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
    # Another number of epochs, other data or another sample is another task too, and states that
    # were committed to keep the times of the steps before the change.
    also = {"closed", "state-times"}
    (found,) = (finding for finding in findings.failures if finding.rule not in also)
    assert found.rule == rule
    assert words in found.text


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda phases: phases.update(data=-1.0), "phases.data: input should be greater than"),
        (lambda phases: phases.update({"hidden": 0.0}), "'hidden' is not a phase"),
    ],
)
def test_time_that_is_none_is_refused(
    handmade_run: HandmadeRun, harm: Callable[[dict[str, float]], object], words: str
) -> None:
    notes = course(0.9)
    harm(notes[-2][1]["phases"])
    handmade_run.plan(job(1))
    handmade_run.attempt(1, 1000.0, *notes)
    handmade_run.end()
    findings = check(Contents(handmade_run.folder))
    (found,) = (finding for finding in findings.findings if finding.rule == "schema")
    assert words in found.evidence
    assert found.where == f"jobs/1/0/events.jsonl:{len(notes) - 1}"
    with pytest.raises(FolderError, match="not a finished event"):
        score(Contents(handmade_run.folder))


def test_the_bounds_of_errors_are_those_that_ceilings_are_measured_with() -> None:
    from vflops.machine.ceilings.precisions import PRECISIONS

    assert {name: precision.tolerance for name, precision in PRECISIONS.items()} == MAX_ERROR


def test_a_run_of_another_problem_has_no_level(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(good("one model"), tmp_path, "hpcai500-v2", shorter(epochs=80))
    (level,) = (finding for finding in findings.findings if finding.rule == "level")
    assert level.evidence.startswith("no level: a different problem: train.epochs = 80")
    domain = findings.layers[-1]
    assert (domain.layer, domain.level) == ("problem domain", None)
    assert domain.differences == ("train.epochs = 80 (reference 90)",)


def test_a_sensor_that_returns_nothing_is_not_measured(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(good("one model"), tmp_path, "practice", absent)
    assert findings.passed
    (energy,) = (finding for finding in findings.findings if finding.rule == "energy")
    assert energy.verdict == "not applicable"
    assert energy.evidence == "no power was measured; not measured: gpu0"


def test_a_counter_that_stands_still_is_no_measurement(good: GoodRun, tmp_path: Path) -> None:
    def silent(folder: RunFolder) -> None:
        path = folder.attempt_folder(1, 0) / "telemetry.jsonl"
        path.write_text(re.sub(r'"values":\[[^]]*\]', '"values":[null,5.0]', path.read_text()))

    findings = judged(good("one model"), tmp_path, "practice", later(silent))
    told = {finding.rule: finding.text for finding in findings.failures}
    assert told["energy"].endswith("gpu0: its counter reads 0 W, so the sensor does not work")


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
    training = scored["trainings"][0]
    assert training["speed"]["flops"] > training["mfu"]["ceiling_flops"]
    assert training["mfu"]["value"] < 1


def test_the_level_is_told_with_the_setting_that_made_it(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(
        good("one model"),
        tmp_path,
        "hpcai500-v2",
        lambda run: run.settings(lambda data: data["train"].update(momentum=0.5)),
    )
    (failed,) = findings.failures
    assert failed.rule == "closed"  # another recipe
    (level,) = (finding for finding in findings.findings if finding.rule == "level")
    assert level.evidence == "level free: train.momentum = 0.5 (reference 0.875)"
