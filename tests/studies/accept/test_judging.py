"""Verdicts on promised figures: from runs of known speed, by node, and from bad evidence."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.accept_runs import (
    IC,
    THROUGHPUT,
    on_nodes,
    only,
    record_host,
    reference,
    repeats,
    seeded,
    under_test,
)
from tests.support.dated_runs import DATA, SAMPLES, WORK_S, Dated, dated_run
from tests.support.paths import ROOT
from vflops.errors import UsageError
from vflops.results.check.findings import Verdict
from vflops.results.check.rule import Outcome
from vflops.results.check.rule_sets import rule_set_of
from vflops.studies.accept import accept_text, closed_task
from vflops.studies.accept.acceptance import Acceptance, JudgedFigure
from vflops.studies.accept.closed_task import TaskState
from vflops.studies.accept.judging import judge
from vflops.studies.accept.reference import Judgement, PromisedFigure, read_reference
from vflops.studies.accept.runs_under_test import read_runs

CLOSED = TaskState("closed", "c" * 12)
T_95_2 = 2.919986  # one-sided 95 % point of Student's t with 2 degrees of freedom


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handmade runs count as closed tasks."""
    monkeypatch.setattr(closed_task, "task_state", lambda score, workload: CLOSED)


def figure(acceptance: Acceptance, name: str, place: str | None = None) -> JudgedFigure:
    (one,) = [f for f in acceptance.figures if (f.name, f.place) == (name, place)]
    return one


def test_a_figure_is_judged_by_the_interval_of_its_runs(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.01, 0.99)
    made = only(reference(*runs), THROUGHPUT, tolerance=0.03)
    acceptance = judge(made, under_test(*runs))
    speed = figure(acceptance, THROUGHPUT)
    rates = [SAMPLES / (WORK_S * slower) for slower in (1.0, 1.01, 0.99)]
    centre = sum(rates) / 3
    spread = math.sqrt(sum((rate - centre) ** 2 for rate in rates) / 2)
    reach = T_95_2 * spread / math.sqrt(3)
    assert speed.mean == pytest.approx(centre)
    assert (speed.low, speed.high) == pytest.approx((centre - reach, centre + reach), rel=1e-5)
    assert (speed.basis, len(speed.values)) == ("runs", 3)
    assert (speed.verdict, acceptance.verdict) == ("accepted", "accepted")


@pytest.mark.parametrize(
    ("slower", "verdict"),
    [((1.1, 1.11, 1.09), "rejected"), ((1.02, 1.03, 1.04), "undecided")],
)
def test_slower_runs_are_rejected_or_undecided(
    tmp_path: Path, slower: tuple[float, ...], verdict: str
) -> None:
    made = only(reference(*repeats(tmp_path, 1.0)), THROUGHPUT, tolerance=0.03)
    acceptance = judge(made, under_test(*repeats(tmp_path, *slower, name="b")))
    assert acceptance.verdict == verdict
    assert figure(acceptance, THROUGHPUT).verdict == verdict
    assert accept_text.EXIT_CODES[verdict] == {"rejected": 1, "undecided": 4}[verdict]


def test_a_speed_has_no_negative_bound(tmp_path: Path) -> None:
    made = only(reference(*repeats(tmp_path, 1.0)), THROUGHPUT)
    speed = figure(judge(made, under_test(*repeats(tmp_path, 0.2, 9.0, name="b"))), THROUGHPUT)
    assert (speed.low, speed.verdict) == (0.0, "undecided")
    assert accept_text.bounds(speed).startswith("0 … ")


def test_figures_that_were_measured_once_are_counted_in_a_sentence(tmp_path: Path) -> None:
    (run,) = repeats(tmp_path, 1.0)
    made = only(reference(run), THROUGHPUT, f"{IC}.flops")
    assert list(accept_text.remarks(judge(made, under_test(run)))) == [
        "2 figures: undecided: measured in 1 of the 3 runs that the reference asks for; 2 more runs"
        " are needed"
    ]


@pytest.mark.parametrize("verdict", ["fail", "cannot tell"])
def test_a_run_on_a_machine_that_may_be_busy_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    made = only(reference(*runs), THROUGHPUT)
    rules = rule_set_of(runs[0].record.settings)
    busy = [
        replace(rule, judge=lambda _: Outcome(verdict, "the load is unknown"))
        if rule.id == "quiet"
        else rule
        for rule in rules.rules
    ]
    changed = replace(rules, rules=tuple(busy))
    monkeypatch.setattr("vflops.results.check.checking.rule_set_of", lambda _: changed)
    acceptance = judge(made, under_test(*runs))
    assert acceptance.verdict == "incomplete"
    fault = "not valid: rule quiet is not met (the load is unknown)"
    assert acceptance.runs[0].faults == (fault,) and fault in accept_text.sentence(acceptance)
    with pytest.raises(UsageError, match="is not valid: rule quiet"):
        reference(*runs)


def test_an_undecided_figure_says_how_many_repeats_would_decide(tmp_path: Path) -> None:
    made = only(reference(*repeats(tmp_path, 1.0)), THROUGHPUT, tolerance=0.035)
    runs = repeats(tmp_path, 1.0, 1.015, 1.03, name="b")
    speed = figure(judge(made, under_test(*runs)), THROUGHPUT)
    spread = (max(speed.values) - min(speed.values)) / 2  # nearly: the three are evenly spaced
    margin = (speed.mean or 0) - speed.threshold
    points = {4: 2.353363, 5: 2.131847, 6: 2.015048, 7: 1.943180, 8: 1.894579, 9: 1.859548}
    needed = next(n for n, t in points.items() if t * spread / math.sqrt(n) <= margin)
    assert (speed.verdict, speed.more) == ("undecided", needed - 3)


@pytest.mark.parametrize(("slower", "verdict"), [(1.0, "accepted"), (1.2, "rejected")])
def test_fewer_runs_than_asked_for_decide_nothing_in_either_direction(
    tmp_path: Path, slower: float, verdict: str
) -> None:
    promise = reference(*repeats(tmp_path, 1.0, memory=2e10))
    made = only(promise, THROUGHPUT, "memory.copy", tolerance=0.05)
    times = [slower * noise for noise in (1.0, 1.001, 0.999)]
    runs = under_test(*repeats(tmp_path, *times, name="b", memory=2e10 / slower))
    for number in (1, 2):
        acceptance = judge(made, runs[:number])
        assert acceptance.verdict == "undecided"
        for name in (THROUGHPUT, "memory.copy"):
            found = figure(acceptance, name)
            assert (found.verdict, found.basis, found.more) == ("undecided", "runs", 3 - number)
    assert judge(made, runs).verdict == verdict


def test_trainings_of_one_run_do_not_show_how_much_runs_differ(tmp_path: Path) -> None:
    runs = [dated_run(tmp_path, Dated(day, (1.0, 1.01, 0.99))) for day in range(2)]
    speed = figure(judge(only(reference(*runs), THROUGHPUT), under_test(*runs)), THROUGHPUT)
    assert (len(speed.values), speed.verdict, speed.more) == (2, "undecided", 1)


@pytest.mark.parametrize(
    ("figure_name", "basis"), [("throughput", "runs"), ("time_to_quality", "seeds")]
)
def test_seeds_of_one_run_are_no_repeats_of_each_other(
    tmp_path: Path, figure_name: str, basis: str
) -> None:
    """Six trainings whose runs differ: two values, instead of six that agree in threes."""
    runs = [
        seeded(tmp_path, Dated(day, times, seed=1 + 3 * day))
        for day, times in enumerate(((1.0, 1.001, 0.999), (1.2, 1.201, 1.199)))
    ]
    name = f"{IC}.{figure_name}"
    made = only(reference(*runs, judgement=Judgement(repeats=2)), name)
    found = figure(judge(made, under_test(*runs)), name)
    assert (len(found.values), found.basis, found.verdict) == (2, basis, "undecided")


def test_several_runs_have_one_value_per_run_for_a_ceiling(tmp_path: Path) -> None:
    runs = [
        seeded(tmp_path, Dated(day, memory=value, seed=day + 1))
        for day, value in enumerate((2.0e10, 2.02e10, 1.98e10))
    ]
    memory = figure(judge(only(reference(*runs), "memory.copy"), under_test(*runs)), "memory.copy")
    assert (memory.basis, memory.values) == ("runs", (2.0e10, 2.02e10, 1.98e10))
    assert memory.low == pytest.approx(2e10 - T_95_2 * 2e8 / math.sqrt(3), rel=1e-5)


def test_a_figure_that_depends_on_the_seed_needs_other_seeds(tmp_path: Path) -> None:
    runs = [seeded(tmp_path, Dated(day, (1 + day / 100,), seed=7)) for day in range(3)]
    name = f"{IC}.time_to_quality"
    found = figure(judge(only(reference(*runs), name), under_test(*runs)), name)
    assert (len(found.values), found.verdict, found.basis) == (1, "undecided", "seeds")


def test_only_a_closed_task_has_a_time_to_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    name = f"{IC}.time_to_quality"
    made = only(reference(*runs), name)
    assert made.task.definition == {IC: CLOSED.digest}
    assert judge(made, under_test(*runs)).verdict == "accepted"
    opened = TaskState("open", "0123456789ab", "target 0.1 instead of 0.8")
    monkeypatch.setattr(closed_task, "task_state", lambda score, workload: opened)
    acceptance = judge(made, under_test(*runs))
    assert acceptance.verdict == "incomplete"
    assert "the task is open" in (acceptance.figures[0].reason or "")
    assert "another task: 0123456789ab" in acceptance.runs[0].faults[0]
    assert not {f"{IC}.vflops", name} & {figure.name for figure in reference(*runs).figure}


def test_a_planted_slow_node_is_named(tmp_path: Path) -> None:
    good = [on_nodes(tmp_path, day, (1.0, 1.01, 0.99, 1.0)) for day in range(3)]
    made = reference(*good, tolerance=0.05)
    assert made.judgement.nodes == 4
    speed_only = only(made, THROUGHPUT)
    assert judge(speed_only, under_test(*good)).verdict == "accepted"
    noise = (0.999, 1.0, 1.001)
    slow = [on_nodes(tmp_path / "s", d, (n, n, 1.12 * n, n)) for d, n in enumerate(noise)]
    acceptance = judge(speed_only, under_test(*slow))
    assert acceptance.verdict == "rejected"
    by_node = {f.place: f.verdict for f in acceptance.figures if f.name == THROUGHPUT}
    assert by_node == {
        "node1": "accepted",
        "node2": "accepted",
        "node3": "rejected",
        "node4": "accepted",
    }
    spread = figure(acceptance, f"{THROUGHPUT}.node_spread")
    rates = [1.0, 1 / 1.12]
    expected = (rates[0] - rates[1]) / ((3 * rates[0] + rates[1]) / 4)
    assert spread.mean == pytest.approx(expected)
    assert spread.verdict == "rejected" and "lowest on node3" in (spread.reason or "")
    assert f"{THROUGHPUT} on node3" in accept_text.sentence(acceptance)


def test_the_bounds_of_a_spread_are_those_of_its_extreme_nodes(tmp_path: Path) -> None:
    noise = (0.99, 1.0, 1.01)
    runs = [on_nodes(tmp_path, d, (n, 1.02 * n)) for d, n in enumerate(noise)]
    made = only(reference(*runs), THROUGHPUT, node_spread=0.05, tolerance=0.2)
    acceptance = judge(made, under_test(*runs))
    first, second = (figure(acceptance, THROUGHPUT, node) for node in ("node1", "node2"))
    spread = figure(acceptance, f"{THROUGHPUT}.node_spread")
    centre = ((first.mean or 0) + (second.mean or 0)) / 2
    assert spread.high == pytest.approx(((first.high or 0) - (second.low or 0)) / centre)
    assert spread.low == 0  # the intervals of the nodes overlap
    assert (spread.verdict, spread.more is None) == ("undecided", False)


def test_runs_can_be_attributed_to_nodes_by_the_user(tmp_path: Path) -> None:
    fast = repeats(tmp_path, 1.0, 1.001, 0.999)
    slow = repeats(tmp_path, 1.2, 1.201, 1.199, name="b")
    made = only(reference(*fast), THROUGHPUT)
    named = read_runs([*(f"n1={run.path}" for run in fast), *(f"n2={run.path}" for run in slow)])
    verdicts = {f.place: f.verdict for f in judge(made, named).figures}
    assert verdicts == {"n1": "accepted", "n2": "rejected"}


def test_too_few_nodes_are_not_accepted(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    made = only(reference(*runs, judgement=Judgement(nodes=2)), THROUGHPUT)
    acceptance = judge(made, under_test(*runs))
    assert acceptance.verdict == "incomplete"
    assert "2 nodes are promised, and the runs used 1" in acceptance.faults[0]


def test_one_host_does_not_pass_as_two_nodes(tmp_path: Path) -> None:
    runs = [record_host(run, "h1") for run in repeats(tmp_path, 1.0, 1.001, 0.999, 1.0)]
    made = only(reference(*runs, judgement=Judgement(nodes=2)), THROUGHPUT)
    labels = ("n1", "n1", "n2", "n2")
    named = read_runs([f"{label}={run.path}" for label, run in zip(labels, runs, strict=True)])
    acceptance = judge(made, named)
    assert acceptance.verdict == "incomplete"
    assert acceptance.runs[0].faults == ("host h1 is given as node n1, and also as n2",)
    assert (acceptance.runs[2].nodes, acceptance.runs[2].hosts) == (("n2",), ("h1",))
    assert acceptance.faults == ("2 nodes are promised, and the runs used 1: h1",)
    for run in runs[2:]:
        record_host(run, "h2")
    apart = judge(made, read_runs([f"{n}={r.path}" for n, r in zip(labels, runs, strict=True)]))
    assert not apart.all_faults
    assert "Nodes by the host that their runs recorded: n1 is h1, n2 is h2." in apart.notes


def test_a_run_of_two_hosts_is_not_one_node(tmp_path: Path) -> None:
    run = on_nodes(tmp_path, 0, (1.0, 1.1))
    acceptance = judge(only(reference(run), THROUGHPUT), read_runs([f"n1={run.path}"]))
    assert acceptance.verdict == "incomplete"
    assert "given as node n1, but recorded the hosts node1, node2" in acceptance.runs[0].faults[0]


def test_nodes_of_runs_without_a_host_are_counted_by_name_and_not_proven(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.001)
    made = only(reference(*runs, judgement=Judgement(nodes=2)), THROUGHPUT)
    acceptance = judge(made, read_runs([f"n{n}={run.path}" for n, run in enumerate(runs)]))
    assert not acceptance.all_faults
    assert any("record no host" in note and runs[0].path.name in note for note in acceptance.notes)


def test_a_run_of_the_reference_is_no_evidence_for_it(tmp_path: Path) -> None:
    first, *others = repeats(tmp_path, 1.0, 1.001, 0.999, 1.0)
    made = only(reference(first, *others, runs=(first.path.name,)), THROUGHPUT)
    assert judge(made, under_test(*others)).verdict == "accepted"
    acceptance = judge(made, under_test(first, *others))
    assert acceptance.verdict == "incomplete"
    assert [len(run.faults) for run in acceptance.runs] == [1, 0, 0, 0]
    assert "the reference was written from this run" in accept_text.sentence(acceptance)


def test_a_short_training_on_a_busy_machine_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    made = only(reference(*runs), THROUGHPUT)
    load = "vflops.studies.accept.runs_under_test.unjudged_load"
    monkeypatch.setattr(load, lambda contents: "other programs used 50 %")
    acceptance = judge(made, under_test(*runs))
    assert acceptance.verdict == "incomplete"
    assert acceptance.runs[0].faults == ("the machine was not quiet: other programs used 50 %",)


def test_repeats_are_counted_on_each_node(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    made = only(reference(*runs), THROUGHPUT)
    once = judge(made, read_runs([f"n{n}={run.path}" for n, run in enumerate(runs)]))
    assert (once.repeats, once.more_repeats, once.needed_repeats) == (1, 2, 3)
    assert "at least 2 more runs on each node are needed" in accept_text.sentence(once)
    single = judge(made, under_test(runs[0]))
    assert "at least 3 repeats are needed" in accept_text.sentence(single)
    uneven = judge(made, read_runs([f"{n}={r.path}" for n, r in zip("aab", runs, strict=True)]))
    assert (uneven.repeats, uneven.needed_repeats) == (2, 3)


def test_a_run_without_a_manifest_is_noted(tmp_path: Path) -> None:
    sealed, open_run = repeats(tmp_path, 1.0, 1.001)
    sealed.manifest_file.touch()
    notes = judge(only(reference(open_run), THROUGHPUT), under_test(sealed, open_run)).notes
    (note,) = [note for note in notes if "without a manifest" in note]
    assert note.endswith(f": {open_run.path.name}.")


def test_a_missing_figure_is_not_accepted_and_named(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    promised = (
        PromisedFigure(name="gemm.peak.fp32", at_least=1, unit="GFLOPS"),
        PromisedFigure(name=f"{IC}.througput", at_least=1, unit="samples/s"),
        PromisedFigure(name=THROUGHPUT, at_least=1, unit="W"),
        PromisedFigure(name=f"{IC}.flops", at_most=1, unit="FLOPS"),
        PromisedFigure(name=f"{IC}.mfu", at_least=1, unit="%"),
    )
    acceptance = judge(reference(*runs, figure=promised), under_test(*runs))
    reasons = [f.reason or "" for f in acceptance.with_verdict("missing")]
    assert acceptance.verdict == "incomplete" and len(reasons) == 5
    assert "has no figure of this name" in reasons[0]
    assert f"similar: {THROUGHPUT}" in reasons[1]
    assert "measured in samples/s, and promised in W" in reasons[2]
    assert "needs at_least" in reasons[3]
    assert "ceiling" in reasons[4]  # why there is no MFU
    assert "gemm.peak.fp32 is missing" in accept_text.sentence(acceptance)


def test_a_run_that_is_not_valid_is_evidence_of_nothing(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.001)
    unfinished = seeded(tmp_path, Dated(5, (1.5,), seed=9, ends=False))
    made = only(reference(*runs), THROUGHPUT)
    acceptance = judge(made, under_test(*runs, unfinished))
    assert acceptance.verdict == "incomplete"
    (fault,) = [text for run in acceptance.runs for text in run.faults if "complete" in text]
    assert "not valid: rule complete is not met" in fault


def test_a_run_of_another_task_is_not_accepted(tmp_path: Path) -> None:
    runs = repeats(tmp_path, 1.0, 1.001, 0.999)
    made = only(reference(*runs), THROUGHPUT)
    changed = [
        {"settings": {"target": 0.8, "train": {"learning_rate": 0.7}}},
        {"data": DATA.model_copy(update={"fingerprint": "1" * 64})},
    ]
    others = [
        repeats(tmp_path, 1.0, 1.001, name=f"o{number}", job=job)
        for number, job in enumerate(changed)
    ]
    faults = [judge(made, under_test(*runs)).runs[0].faults for runs in others]
    assert "train.learning_rate is 0.7, and " in faults[0][0]
    assert "other data: 111111111111, and 000000000000 in the reference" in faults[1][0]
    assert judge(made, under_test(*others[0])).verdict == "incomplete"
    older = made.model_copy(update={"vflops": "0.0.1"})
    assert "written by vflops 0.0.1" in judge(older, under_test(*others[0])).runs[0].faults[0]


def test_nothing_is_accepted_without_runs(tmp_path: Path) -> None:
    made = reference(*repeats(tmp_path, 1.0))
    assert judge(made, []).verdict == "incomplete"


def test_a_copy_is_no_repeat(tmp_path: Path) -> None:
    (run,) = repeats(tmp_path, 1.0)
    with pytest.raises(UsageError, match="is given 2 times"):
        under_test(run, run)


def test_more_vflops_than_flops_are_neither_accepted_nor_rejected(tmp_path: Path) -> None:
    """As promised by references from before the quality factor was capped at 1."""
    runs = repeats(tmp_path, 1.0, 1.01, 0.99)
    made = reference(*runs)
    flops = next(figure.promised for figure in made.figure if figure.name == f"{IC}.flops")
    keys = {"vflops": "VFLOPS", "vflops_per_watt": "VFLOPS/W"}

    def judged(promised: float) -> list[tuple[str, str | None]]:
        valid = tuple(
            PromisedFigure(name=f"{IC}.{key}", at_least=promised, unit=unit)
            for key, unit in keys.items()
        )
        others = tuple(figure for figure in made.figure if figure.name == f"{IC}.flops")
        acceptance = judge(made.model_copy(update={"figure": (*others, *valid)}), under_test(*runs))
        found = [figure(acceptance, f"{IC}.{key}") for key in keys]
        return [(item.verdict, item.reason) for item in found]

    for verdict, reason in judged(1.8 * flops):
        assert verdict == "missing"
        assert reason is not None and reason.startswith("promised before the quality factor was")
    assert not any("capped" in (reason or "") for _, reason in judged(flops))


@pytest.mark.parametrize("name", ["cpu-2-cores", "h200"])
def test_the_example_references_promise_at_most_the_flops(name: str) -> None:
    promised = {
        figure.name: figure.promised
        for figure in read_reference(ROOT / "examples" / "references" / f"{name}.toml").figure
    }
    valid = [key for key in promised if key.endswith(".vflops")]
    assert valid
    for key in valid:
        subject = key.removesuffix(".vflops")
        assert promised[key] <= promised[f"{subject}.flops"]
        if f"{subject}.power" in promised:
            per_watt = promised[f"{subject}.flops"] / promised[f"{subject}.power"]
            assert promised[f"{subject}.vflops_per_watt"] == pytest.approx(per_watt, rel=1e-3)
