"""Careful forgeries: jobs left out, other devices, times and qualities that cannot be."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.forged_runs import Forger
from tests.support.forgeries import (
    Break,
    GoodRun,
    changed,
    good_runs,
    in_job,
    judged,
    measured,
    together,
)
from tests.support.trained_runs import job
from vflops.errors import FolderError
from vflops.record.folder import file_hash
from vflops.record.formats.job import DataFacts
from vflops.record.formats.node import Clock, NodeRecord
from vflops.record.formats.system import Fact
from vflops.record.installed_package import installed_package
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.checking import check
from vflops.results.check.paper_rules import PaperRules
from vflops.results.check.published_figures import HPCAI500_V2


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def doubtful(value: float, *names: str) -> Break:
    """Ceilings with a caveat."""
    return together(*(measured(name, value=value, caveat="it varied") for name in names))


def goals(**facts: object) -> Break:
    """Another goal of every job."""
    return lambda run: run.records(lambda data: data["goal"].update(facts))


def asked(**facts: object) -> Break:
    """Other settings of the run itself."""
    return lambda run: run.run(lambda data: data.update(facts))


def fp4(run: Forger) -> None:
    """A product in a precision of which nobody knows how exact it is, as it was planned."""
    measured("gemm", precision="fp4")(run)
    for line in run.lines("plan"):
        keys = line["data"]["measurements"]
        line["data"]["measurements"] = [
            [*key[:2], "fp4"] if key == ["gemm", "peak", "fp32"] else key for key in keys
        ]


def sooner(run: Forger) -> None:
    run.stands(1, epochs=80)


def smaller(run: Forger) -> None:
    run.records(lambda data: data["data"].update(validation=49_999))


def unpinned(run: Forger) -> None:
    run.records(lambda data: data["data"].update(fingerprint="unknown"))


def apart(run: Forger) -> None:
    """Base models whose predictions nobody put together."""
    run.drop(lambda line: line["kind"] != "ensemble")


def noted(kind: str, **facts: object) -> Break:
    """One more event of the first training, before its end."""

    def change(run: Forger) -> None:
        log = run.logs[run.attempt(1) / "events.jsonl"]
        log.insert(-1, {**log[-1], "kind": kind, "data": {"evaluated": 9, **facts}})

    return change


def moved(days: int) -> Break:
    """All of a training, to another day."""

    def change(run: Forger) -> None:
        for line in run.logs[run.attempt(1) / "events.jsonl"]:
            line["utc"] = (datetime.fromisoformat(line["utc"]) + timedelta(days)).isoformat()

    return change


def stray(run: Forger) -> None:
    """A job that nobody planned, beside the others."""
    shutil.copytree(run.folder.path / "jobs" / "1", run.folder.path / "jobs" / "9")


def beside(run: Forger) -> None:
    """A node of the job with another accelerator than that of the run's own machine."""
    model = Fact(name="accelerator 0 model", value="Other GPU", source="test")
    clock = Clock(offset_s=0.0, uncertainty_s=0.0)
    facts = {"host": "a", "name": "a", "reference": "b", "clock": clock, "facts": (model,)}
    record = NodeRecord(node=0, nodes=1, package_sha256=installed_package().sha256, **facts)
    record.write(run.attempt(1) / "node-0.json")


def without_accelerators(run: Forger) -> None:
    """A machine that says it has none, and trained on one; its ceilings name no number."""
    path = run.folder.system_file
    data = json.loads(path.read_text())
    facts = [fact for fact in data["layers"][0]["facts"] if "model" not in fact["name"]]
    data["layers"][0]["facts"] = facts
    for fact in facts:
        fact.update({"value": 0} if fact["name"] == "accelerators" else {})
    path.write_text(json.dumps(data))
    changed("described", sha256=file_hash(path))(run)
    changed("measurement", device="cuda")(run)


MOST = 1e17
"""More than any training needs, and less than what no device reaches."""
above = doubtful(1e3, "gemm", "convolution")
other_gemm = together(measured("convolution", value=1e3), doubtful(MOST, "gemm"))
unknown = changed("job", ceiling_precision=None)


@pytest.mark.parametrize(
    ("rule", "harm", "words"),
    [
        ("bounded", above, "kFLOPS, which is in doubt: it varied"),
        ("correct", measured("gemm", error=None), "gemm peak fp32 was not compared with a"),
        ("correct", fp4, "gemm peak fp4: no error limit is known for this precision"),
        ("data", unpinned, "has no checksum: 'unknown'"),
        (
            "evaluated",
            noted("tested", quality=1.7),
            "the top-1 accuracy is 1.7, but it lies between 0 and 1",
        ),
        (
            "evaluated",
            noted("tested", quality=-0.2),
            "the top-1 accuracy is -0.2, but it lies between 0 and 1",
        ),
        (
            "evaluated",
            noted("out-of-bag", quality=1.7, available=9),
            "accuracy is 1.7, but it lies between 0 and 1",
        ),
        (
            "clocks",
            moved(-9),
            "events.jsonl:1: the job logged this 12793 min 16 s before it was planned",
        ),
        ("clocks", moved(9), "after its recorded end"),
        ("jobs", stray, "jobs/9: job 9 was not planned"),
        (
            "jobs",
            in_job(job=4, repeat=9),
            "4 jobs of image-classification were requested and 4 planned, but repeat 3",
        ),
        ("jobs", asked(repeat=3), "jobs/4/job.json: 3 jobs of image-classification were requested"),
        (
            "jobs",
            in_job(job=4, seed=40),
            "jobs/4/job.json: job 4 has seed 40, but 4 according to run.json",
        ),
        (
            "devices",
            measured("gemm", device="cuda:99"),
            "description has 1 accelerator",
        ),
        ("devices", measured("memory", device="xpu:0"), "described accelerators are of kind cuda"),
        ("devices", beside, "job 1 ran on 'Test GPU': the description names Other GPU"),
        ("devices", without_accelerators, "ran on 'Test GPU': the description has 0 accelerators"),
        ("devices", changed("job", device_name=" "), "ran on ' ': the description names Test GPU"),
    ],
)
def test_a_forgery_is_found_by_one_rule(
    good: GoodRun, tmp_path: Path, rule: str, harm: Break, words: str
) -> None:
    (found,) = judged(good("one model"), tmp_path, "practice", harm).failures
    assert found.rule == rule
    assert words in found.text


@pytest.mark.parametrize("base", ["one model", "search"])
@pytest.mark.parametrize("kind", ["evaluation", "tested", "out-of-bag"])
def test_a_quality_that_is_no_number_is_no_event(
    good: GoodRun, tmp_path: Path, base: str, kind: str
) -> None:
    """Nothing is scored that holds one; the rule of formats names the line."""
    nan = float("nan")
    more = {"available": 9} if kind == "out-of-bag" else {}
    harm = changed(kind, quality=nan) if kind == "evaluation" else noted(kind, quality=nan, **more)
    copy = tmp_path / "run"
    shutil.copytree(good(base), copy)
    forger = Forger(copy)
    harm(forger)
    with suppress(FolderError):
        forger.sealed()
    failed = {finding.rule: finding.text for finding in check(Contents(forger.folder)).failures}
    assert f"not a {kind} event: quality: input should be a finite number" in failed["schema"]
    assert failed["schema"].startswith("jobs/1/0/events.jsonl:")


@pytest.mark.parametrize(
    ("rules", "rule", "base", "harm", "words"),
    [
        ("practice", "seeds", "one model", in_job(job=2, seed=1), "jobs 1 and 2 have the seed 1"),
        ("hpcai500-v2", "epochs", "one model", sooner, "it ended after epoch 80"),
        ("hpcai500-v2", "published-data", "one model", smaller, "1,281,167 + 49,999 samples, "),
        ("hpcai500-v2", "target", "one model", goals(exponent=10), "10, but the paper requires 5"),
        ("hpcai500-v2", "target", "one model", goals(quality="top-5 accuracy"), "is top-5"),
        ("hpcai500-v2", "target", "one model", goals(better="lower"), "its quality is top-1"),
        ("hpcai500-v3", "target", "ensembles", goals(exponent=10), "10, but the paper requires 5"),
        ("hpcai500-v2", "precision", "one model", unknown, "the precision was not recorded"),
        ("aiperf", "precision", "search", unknown, "does not say in which precision"),
        ("hpcai500-v3", "ensemble", "ensembles", in_job(job=2, ranks=2), "different numbers of"),
        ("hpcai500-v3", "ensemble", "ensembles", apart, "0: the predictions were not combined"),
    ],
)  # fmt: skip
def test_what_a_workload_itself_fixes_breaks_the_rule_of_the_paper_too(
    good: GoodRun, tmp_path: Path, rules: str, rule: str, base: str, harm: Break, words: str
) -> None:
    findings = judged(good(base), tmp_path, rules, harm)
    failed = {finding.rule: finding for finding in findings.failures}
    assert words in failed[rule].evidence
    assert failed[rule].where


@pytest.mark.parametrize(
    ("harm", "doubted"),
    [
        (doubtful(MOST, "gemm", "convolution"), "gemm"),
        (other_gemm, "gemm"),
        (doubtful(MOST, "convolution"), None),
    ],
)
def test_who_is_below_a_ceiling_in_doubt_is_below_the_true_one(
    good: GoodRun, tmp_path: Path, harm: Break, doubted: str | None
) -> None:
    findings = judged(good("one model"), tmp_path, "practice", harm)
    assert findings.passed
    (found,) = (finding for finding in findings.findings if finding.rule == "bounded")
    doubt = f"was reached; the ceiling {doubted} fp32 is in doubt: it varied"
    assert found.evidence.endswith(doubt if doubted else "was reached")


def test_every_job_that_breaks_a_rule_of_a_paper_is_named(good: GoodRun, tmp_path: Path) -> None:
    same = together(*(in_job("data", job=job, skipped=1 + job // 4) for job in (1, 2, 3, 4)))
    findings = judged(good("one model"), tmp_path / "a", "hpcai500-v2", same)
    (found,) = (finding for finding in findings.failures if finding.rule == "published-data")
    words = "jobs 1, 2, 3: 1 sample left out; job 4: 2 samples left out"
    assert (found.where, found.evidence) == ("jobs/1/job.json", words)
    each_its_own = together(*(in_job("data", job=job, skipped=job) for job in (1, 2, 3, 4)))
    findings = judged(good("one model"), tmp_path / "b", "hpcai500-v2", each_its_own)
    (found,) = (finding for finding in findings.failures if finding.rule == "published-data")
    assert found.evidence.endswith("; job 3: 3 samples left out and 1 more")


def test_one_model_is_no_ensemble(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(good("one model"), tmp_path, "hpcai500-v3", lambda run: None).findings
    verdicts = {finding.rule: finding.verdict for finding in findings}
    assert (verdicts["ensemble"], verdicts["bootstrap"]) == ("not applicable", "not applicable")


def test_a_search_is_not_judged_by_a_paper_of_trainings(good: GoodRun, tmp_path: Path) -> None:
    findings = judged(good("search"), tmp_path, "hpcai500-v2", lambda run: None).findings
    verdicts = {finding.rule: finding.verdict for finding in findings}
    own = ("epochs", "target", "published-data", "precision", "repeats", "ceilings", "level")
    assert {verdicts[rule] for rule in own} == {"not applicable"}


def test_frames_of_another_split_are_not_the_published_data() -> None:
    sizes = {"height": 768, "width": 1152}
    facts = {"path": "/frames", "synthetic": False, "fingerprint": "0" * 64}
    data = DataFacts(**facts, train=9, validation=9, facts={**sizes, "split": "own"})
    trained = TrainedJob(job(1, data=data).model_copy(update={"workload": "extreme-weather"}), ())
    found = PaperRules(HPCAI500_V2).check_published_data(
        cast("Contents", SimpleNamespace(training_jobs=[trained]))
    )
    assert (found.verdict, found.evidence) == (
        "fail",
        "job 1: split own, but the published data has reference",
    )
