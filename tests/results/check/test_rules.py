"""Every rule of every set passes on a good run, and fails alone on one that breaks just it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.challenged_runs import CHALLENGE, answer
from tests.support.cluster_runs import change_node, system
from tests.support.forged_attempts import kept_at, with_torch
from tests.support.forged_runs import MODELS, NO_DUPLICATES, POWER_W, REPEATS, Forger
from tests.support.forged_times import progress_times, timed_states
from tests.support.forgeries import (
    Break,
    GoodRun,
    changed,
    edited,
    first,
    gap,
    good_runs,
    hurried,
    in_job,
    judged,
    later,
    measured,
    power,
    replay_of,
    together,
    unmeasured,
    with_graph,
)
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import ChallengedRun
from vflops.record.formats.node import Clock, ContainerImage, NodeRecord, node_file
from vflops.record.installed_package import installed_package
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.results.check.rule_sets import RULE_SETS
from vflops.results.evidence.manifest import write_manifest
from vflops.results.score.scoring import score
from vflops.run import pipeline
from vflops.testing.conventions import sample_graph


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    return good_runs(tmp_path_factory.mktemp("good"))


def forged_power_log(folder: RunFolder) -> None:
    """A log of a meter that was imported, and one that was put beside it."""
    log = folder.path.parent / "meter.csv"
    utc_s = folder.history().jobs[1][0].events[0].utc_s
    log.write_text("time,power_w\n" + "".join(f"{utc_s + s},{500 + s}\n" for s in range(60)))
    kept = pipeline.import_power(folder, log)
    score(Contents(folder)).write(folder.score_file)
    kept.with_name("imported-2.jsonl").write_text(kept.read_text())


def duplicates(**found: int) -> dict[str, object]:
    """What packing found; 500 are accepted, because ImageNet itself has some."""
    return {**NO_DUPLICATES, **found}


def twins_that_differ(run: Forger) -> None:
    run.twins()
    for line in run.lines("job"):
        line["data"].update(device="cpu", device_name="Test CPU <1>")
    measured("gemm", device="cpu")(run)
    measured("convolution", device="cpu")(run)


def unreadable_fallback(run: Forger) -> None:
    (log,) = (log for path, log in run.logs.items() if path.parent == run.attempt(1))
    log.insert(-1, {**log[-1], "kind": "fallback", "data": {"file": 1}})


def other_seed(run: Forger) -> None:
    """The answer to a challenge, with a seed of the submitter's choice."""
    answer(run, ChallengedRun(issued=CHALLENGE, number=0))
    path = run.folder.path / "run.json"
    data = json.loads(path.read_text())
    data["challenge"]["number"] = 1
    path.write_text(json.dumps(data))
    run.folder = RunFolder.open(run.folder.path)


def dropped(*gone: int) -> Break:
    """Without some jobs: their folders, and every word of them in the log of the run."""

    def change(run: Forger) -> None:
        for job in gone:
            shutil.rmtree(run.folder.path / "jobs" / str(job))
        run.logs = {path: log for path, log in run.logs.items() if int(path.parts[-3]) not in gone}
        run.drop(lambda line: line["data"].get("job") not in gone)
        run.drop(lambda line: not set(line["data"].get("jobs", ())) & set(gone))

    return change


def fewer(*gone: int) -> Break:
    """The same, and ``run.json`` asks for one repeat less."""
    return together(dropped(*gone), lambda run: run.run(lambda data: data.update(repeat=3)))


def aimed(target: float) -> Break:
    """Another target, in the goals as in the settings."""

    def change(run: Forger) -> None:
        run.settings(lambda data: data.update(target=target))
        run.records(lambda data: data["goal"].update(target=target))

    return change


def unsmoothed(run: Forger) -> None:
    """Another recipe, in the settings of the run as in those of the jobs."""
    run.settings(lambda data: data.update(label_smoothing=0.0))


def converged_too_early(run: Forger) -> None:
    """The workers ended the search as converged, but its score still changed."""
    (log,) = (log for path, log in run.logs.items() if path.parent == run.attempt(1))
    figures = {"worker": 0, "utc_s": 1e10, "duration_s": 1.0, "ops_per_s": 1.0, "variation": 0.0}
    ended = {"worker": 0, "message": "the search has converged", "converged": figures}
    log.insert(-1, {**log[-1], "kind": "search-ended", "data": ended})


def attention_in_the_graph(run: Forger) -> None:
    """A product of two activations, which the rules of the workload do not count."""
    path = run.folder.graph_file("image-classification")
    with_graph(path.read_text().replace('"kind": "dense"', '"kind": "product"'))(run)


def another_package(run: Forger) -> None:
    """The node of a job ran other code than the process that started the run."""
    facts = {"host": "a", "name": "a", "reference": None, "facts": ()}
    clock = Clock(offset_s=0.0, uncertainty_s=0.0)
    record = NodeRecord(node=0, nodes=1, clock=clock, package_sha256="0" * 64, **facts)
    record.write(run.attempt(1) / "node-0.json")


def other_image(run: Forger) -> None:
    """One job ran in another image than the others."""
    for job in (1, 2):
        image = ContainerImage(image="vflops", runtime="podman", sha256=f"{job}" * 64)
        clock = Clock(offset_s=0.0, uncertainty_s=0.0)
        facts: dict[str, Any] = {"host": "n1", "name": "n1", "reference": "n1", "facts": ()}
        facts["package_sha256"] = installed_package().sha256
        node = NodeRecord(node=0, nodes=1, clock=clock, image=image, **facts)
        node.write(node_file(run.attempt(job), 0))


def added(folder: RunFolder) -> None:
    write_manifest(folder)
    (folder.path / "jobs" / "0" / "more.json").write_text("{}")


def recorded_as(phase: str) -> Break:
    """Half of the time of every training, recorded as that of a phase that is not work."""

    def change(run: Forger) -> None:
        for line in (line for kind in PROGRESS_EVENTS for line in run.lines(kind)):
            phases = line["data"]["phases"]
            phases.update({"training": phases["training"] / 2})
            phases.update({phase: phases[phase] + phases["training"]})

    return change


OTHER_GRAPH = sample_graph(batch=8).model_copy(update={"model": "image-classification"}).to_json()
CASES: dict[str, dict[str, tuple[str, Break]]] = {
    "practice": {
        "complete": ("one model", lambda run: run.drop(lambda line: line["kind"] != "end")),
        "schema": ("one model", unreadable_fallback),
        "chain": ("one model", edited("jobs/0/0/events.jsonl", '"workload": "', '"workload": "x')),
        "clocks": ("one model", lambda run: run.lines("described")[0].update(time_s=1e9)),
        "manifest": ("one model", later(added)),
        "package": ("one model", another_package),
        "system": ("one model", edited("system.json", "Test CPU", "Cray-99")),
        "devices": ("one model", changed("job", device_name="Cray-99")),
        "rehearsal": ("one model", changed("job", rehearsal=True)),
        "nodes": (
            "cluster",
            change_node("n2", lambda known: {"system": system(kernel="7.0")}),
        ),
        "image": ("one model", other_image),
        "planned": ("one model", unmeasured("memory", planned=True)),
        "correct": ("one model", measured("gemm", error=0.5)),
        "sampled": ("one model", measured("memory", samples=[2e10, 2e10])),
        "quiet": ("one model", changed("load", others_share=0.4)),
        "stolen": ("one model", changed("load", stolen_share=0.11)),
        "plausible": ("one model", measured("gemm", value=2e10)),
        "data-sheets": ("one model", measured("memory", value=2e14)),
        "peaks": ("one model", measured("gemm", device="cpu")),
        "bounded": (
            "one model",
            together(measured("gemm", value=1e8), measured("convolution", value=1e8)),
        ),
        "recounted": (
            "one model",
            edited("graphs/image-classification.json", '"none"', '"other"'),
        ),
        "rebuilt": ("one model", with_graph(OTHER_GRAPH)),
        "operations": ("one model", changed("job", 1, parameters=7)),
        "uncounted": ("one model", attention_in_the_graph),
        "jobs": ("one model", dropped(REPEATS)),
        "challenge": ("one model", other_seed),
        "seeds": ("one model", changed("finished", weights_sha256="0" * 64)),
        "data": ("one model", in_job("data", fingerprint="unknown")),
        "synthetic": ("one model", in_job("settings", data=None)),
        "contents": ("one model", in_job("data", contents={"train": "3" * 64})),
        "leaks": ("one model", in_job("data", duplicates=duplicates(leaked=501))),
        "labels": ("one model", in_job("data", duplicates=duplicates(contradictory=501))),
        "trained": ("one model", edited("jobs/1/job.json", "{", "{ ")),
        "committed": ("one model", lambda run: run.drop(lambda line: line["kind"] != "commitment")),
        "parts": ("one model", kept_at(7)),
        "state-times": ("one model", together(timed_states, progress_times(0.85))),
        "stack": ("one model", with_torch("2.1")),
        "as-told": ("one model", changed("job", 1, batch=1_000_000)),
        "goal": (
            "one model",
            lambda run: run.records(lambda data: data["goal"].update(exponent=1)),
        ),
        "processed": ("one model", lambda run: run.stands(1, epochs=80)),
        "evaluated": ("one model", changed("evaluation", 1, evaluated=100)),
        "timed": (
            "one model",
            lambda run: run.lines("finished", 1)[0]["data"]["phases"].update(training=4e3),
        ),
        "compilation": ("one model", recorded_as("compilation")),
        "evaluation-time": ("one model", recorded_as("evaluation")),
        "progress": ("one model", lambda run: run.drop(lambda line: line["kind"] != "progress")),
        "steady": ("one model", hurried),
        "telemetry": ("one model", gap),
        "energy": ("one model", power(3 * POWER_W)),
        "powered": ("one model", later(forged_power_log)),
        "score": ("one model", edited("score.json", "200000000000.0", "900000000000.0")),
        "twins": ("ensembles", twins_that_differ),
        "searched": ("search", first("candidate", digest="0" * 64)),
        "first-network": ("search from another network", lambda run: None),
        "charged": ("search", first("candidate", ops_total=10**9)),
        "results": ("search", first("candidate-trained", accuracy=0.9)),
        "ledger": ("search", edited("ledger.json", '"seed": 7', '"seed": 8')),
        "replayed": ("search", replay_of(lambda data: data["candidates"][1].update(samples=1))),
    },
    "hpcai500-v2": {
        "workload": ("search", lambda run: None),
        "epochs": ("one model", changed("finished", 1, reason="target")),
        "target": ("one model", aimed(0.7)),
        "closed": ("one model", unsmoothed),
        "published-data": ("one model", in_job("data", skipped=3)),
        "precision": ("one model", changed("job", ceiling_precision="fp8")),
        "ceilings": ("one model", unmeasured("convolution", planned=False)),
        "level": ("one model", in_job("settings", width=3)),
    },
    "hpcai500-v3": {
        "workload": ("search", lambda run: None),
        "epochs": ("ensembles", changed("finished", 1, reason="patience")),
        "target": ("ensembles", aimed(0.9)),
        "closed": ("ensembles", unsmoothed),
        "published-data": ("ensembles", in_job("data", synthetic=True)),
        "precision": ("ensembles", changed("job", ceiling_precision=None)),
        "ceilings": ("ensembles", unmeasured("gemm", planned=False)),
        "level": ("ensembles", in_job("settings", width=3)),
        "ensemble": ("ensembles", first("ensemble", jobs=[1])),
        "bootstrap": (
            "ensembles",
            lambda run: run.bags(bootstrap="none"),
        ),
    },
    "aiperf": {
        "workload": ("one model", lambda run: None),
        "closed": (
            "search",
            lambda run: run.settings(lambda data: data["search"].update(score_from_round=9)),
        ),
        "duration": ("short search", lambda run: None),
        "precision": ("search", changed("job", ceiling_precision="fp8")),
        "error": ("poor search", lambda run: None),
        "new-weights": ("search", first("candidate", inherited=True)),
        "table-iv": (
            "search",
            lambda run: run.settings(lambda data: data["search"].update(searcher="random")),
        ),
        "ended": ("search", converged_too_early),
        "search-space": ("no search", lambda run: None),
        "rounds": ("hasty search", lambda run: None),
        "tuned": ("search tuned early", lambda run: None),
    },
}
ALSO = {
    "uncounted": {"rebuilt"},
    "precision": {"as-told"},
    "level": {"goal", "closed"},
    "processed": {"state-times"},
    **{key: {"closed"} for key in ("target", "published-data", "bootstrap")},
}
"""What else such a run must break: no settings of a workload ask for such a precision, what its
settings are not, its goal cannot be told from, another target or other data is another task, states
that were committed to keep the times of their steps, and what our networks compute is counted."""
NEVER_FAIL = {"repeats"}
"""Rules that never fail."""
OWN = {
    "practice": "one model",
    "hpcai500-v2": "one model",
    "hpcai500-v3": "ensembles",
    "aiperf": "search",
}


def test_every_rule_of_every_set_has_a_run_that_breaks_it() -> None:
    practice = {rule.id for rule in RULE_SETS["practice"].rules}
    for name, rules in RULE_SETS.items():
        ids = [rule.id for rule in rules.rules]
        assert len(ids) == len(set(ids))
        assert practice <= set(ids)
        own = set(ids) if name == "practice" else set(ids) - practice
        assert {*CASES[name]} == own - NEVER_FAIL


@pytest.mark.parametrize("rules", OWN)
def test_a_good_run_meets_every_rule(good: GoodRun, tmp_path: Path, rules: str) -> None:
    findings = judged(good(OWN[rules]), tmp_path, rules, lambda run: None)
    assert {finding.rule: finding.text for finding in findings.failures} == {}
    own = {rule.id for rule in RULE_SETS[rules].rules} - {r.id for r in RULE_SETS["practice"].rules}
    assert {finding.verdict for finding in findings.findings if finding.rule in own} <= {"pass"}


@pytest.mark.parametrize(
    ("rules", "rule"), [(name, rule) for name, cases in CASES.items() for rule in cases]
)
def test_a_run_that_breaks_just_one_rule_fails_just_that(
    good: GoodRun, tmp_path: Path, rules: str, rule: str
) -> None:
    base, harm = CASES[rules][rule]
    findings = judged(good(base), tmp_path, rules, harm)
    failed = {finding.rule: finding.text for finding in findings.failures}
    assert failed.keys() == {rule} | ALSO.get(rule, set())
    assert not findings.passed
    for finding in findings.failures:
        assert finding.where, finding
        file, _, line = finding.where.partition(":")
        assert (tmp_path / good(base).name / file).exists()
        assert line.isdigit() or not file.endswith("events.jsonl"), "a log is named with its line"
    for finding in findings.findings:
        assert str(tmp_path) not in json.dumps(finding.model_dump()), "findings can be moved"


@pytest.mark.parametrize(
    ("rules", "base", "lost", "done"),
    [
        ("hpcai500-v2", "one model", (REPEATS,), f"{REPEATS - 1} times"),
        ("hpcai500-v3", "ensembles", (MODELS * REPEATS - 1, MODELS * REPEATS), "3 times"),
    ],
)
def test_fewer_repeats_are_advised_against_and_no_fault(
    good: GoodRun, tmp_path: Path, rules: str, base: str, lost: tuple[int, ...], done: str
) -> None:
    """V2.0, section 3.2, is about choosing workloads; no paper requires repeats of a result."""
    findings = judged(good(base), tmp_path, rules, fewer(*lost))
    (found,) = (finding for finding in findings.findings if finding.rule == "repeats")
    assert (found.verdict, found.section) == ("pass", "")
    assert done in found.evidence
    assert "--repeat 4" in found.evidence


@pytest.mark.parametrize(
    ("ranks", "threads", "measured_with", "passes"),
    [(1, 2, 2, True), (1, 3, 2, False), (2, 1, 2, True), (2, 1, 1, False)],
)
def test_more_threads_than_the_ceiling_had_are_no_fair_comparison(
    good: GoodRun, tmp_path: Path, ranks: int, threads: int, measured_with: int, passes: bool
) -> None:
    job = changed("job", ranks=ranks, threads=threads)
    harm = together(job, measured("gemm", threads=measured_with))
    findings = judged(good("one model"), tmp_path, "practice", harm)
    failed = {finding.rule: finding.evidence for finding in findings.failures}
    used = f"with {ranks * threads} CPU threads"
    expected = f"{used}, but its fp32 gemm was measured with {measured_with}"
    # The settings of the run have one rank, and its machine one accelerator.
    assert failed.keys() - {"as-told", "devices"} == (set() if passes else {"peaks"})
    assert passes or expected in failed["peaks"]
