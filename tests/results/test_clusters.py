"""Results of runs on a scheduler's nodes: each job is bounded by the ceilings of its own nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_runs import (
    KIND,
    MEMORY_B,
    change_node,
    cluster_run,
    contents,
    full_set,
    link,
    node,
    quick,
    second_kind,
    system,
    trained_on,
)
from tests.support.forged_runs import Forger
from tests.support.forgeries import Break, changed, judged, together
from vflops.metrics.outliers import slow_figures
from vflops.record.formats.measured_node import MeasuredNode
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import main_ceilings
from vflops.results.check.findings import Findings
from vflops.results.check.node_rules import node_differences
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.roofline.run_ceilings import measured_where
from vflops.results.score.node_spread import MAX_LISTED, NodeKindScore, QuickSpread
from vflops.results.score.scoring import score

CEILING = 2e11
"""The matrix product of the full set."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return cluster_run(tmp_path_factory.mktemp("cluster"), patch)


@pytest.fixture
def harmed(cluster: Path, tmp_path: Path) -> Callable[[Break], Findings]:
    return lambda harm: judged(cluster, tmp_path, "hpcai500-v3", harm)


@pytest.fixture
def altered(cluster: Path, tmp_path: Path) -> Callable[[Break], Contents]:
    """The contents of a copy that was altered and sealed."""

    def alter(harm: Break) -> Contents:
        judged(cluster, tmp_path, "practice", harm)
        return contents(tmp_path / cluster.name)

    return alter


def failed(findings: Findings) -> dict[str, str]:
    return {finding.rule: finding.text for finding in findings.failures}


def test_an_ensemble_on_a_cluster_meets_all_rules_of_the_paper(
    harmed: Callable[[Break], Findings],
) -> None:
    findings = harmed(lambda run: None)
    assert failed(findings) == {}
    verdicts = {finding.rule: finding.verdict for finding in findings.findings}
    assert {verdicts[rule] for rule in ("nodes", "ceilings", "bounded", "peaks")} == {"pass"}


def test_a_run_on_one_machine_needs_no_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.forged_runs import trained_run

    path = trained_run(tmp_path, monkeypatch)
    findings = judged(path, tmp_path / "copy", "hpcai500-v2", lambda run: None)
    (nodes,) = (finding for finding in findings.findings if finding.rule == "nodes")
    assert nodes.verdict == "not applicable"
    recorded = json.loads((tmp_path / "copy" / path.name / "score.json").read_text())
    assert "node_kinds" not in recorded
    assert all({"node", "kind"}.isdisjoint(ceiling) for ceiling in recorded["ceilings"])


def test_a_node_that_trained_without_being_measured_is_named(
    harmed: Callable[[Break], Findings],
) -> None:
    findings = failed(harmed(lambda run: trained_on(run, 2, ["n9"])))
    assert set(findings) == {"nodes", "bounded", "ceilings"}
    assert "job 2 trained on n9, which is not described" in findings["nodes"]
    assert "job 2: it trained on n9, whose ceilings were not measured" in findings["bounded"]


def test_mfu_is_not_known_on_a_node_that_was_not_measured(
    altered: Callable[[Break], Contents],
) -> None:
    scored = score(altered(lambda run: trained_on(run, 1, ["n1", "n9"])))
    mfu = scored.trainings[0].mfu
    assert (mfu.value, mfu.reason) == (None, "it trained on n9, whose ceilings were not measured")
    assert scored.trainings[1].mfu.value is not None
    assert scored.models[0].bound_reason == mfu.reason


def test_each_job_is_compared_with_the_ceilings_of_its_own_kind(
    altered: Callable[[Break], Contents],
) -> None:
    scored = score(altered(second_kind))
    assert [training.mfu.ceiling_flops for training in scored.trainings[:4]] == [
        CEILING,
        CEILING,
        CEILING,
        10 * CEILING,
    ]
    assert [kind.nodes for kind in scored.node_kinds] == [3, 1]


def test_the_ceiling_of_a_faster_kind_does_not_hide_an_impossible_speed(
    harmed: Callable[[Break], Findings],
) -> None:
    """All jobs of the slow kind exceed its ceilings, but not those of the fast one."""

    def slower(run: Forger) -> None:
        second_kind(run, factor=1.0)
        for line in run.lines("measurement"):
            facts = line["data"]
            if facts["kind"] == KIND and facts["unit"] == "FLOPS" and facts["value"]:
                facts.update(value=1e8, samples=[1e8, 1e8, 1e8])
        own = [item for item in full_set(run) if item.kind == KIND]
        change_node("n1", lambda known: {"full": tuple(own)})(run)
        for name in ("n1", "n2", "n3"):
            change_node(name, lambda known: {"quick": ()})(run)

    findings = failed(harmed(slower))
    assert set(findings) == {"bounded"}
    assert "job 1 executed" in findings["bounded"]


def test_a_ceiling_in_the_log_that_the_node_did_not_measure_fails(
    harmed: Callable[[Break], Findings],
) -> None:
    def lower(run: Forger) -> None:
        line = next(line for line in run.lines("measurement") if line["data"]["kind"] == KIND)
        line["data"].update(value=1e9, samples=[1e9, 1e9, 1e9])

    findings = failed(harmed(lower))
    assert "of n1 is not what the node measured" in findings["nodes"]


def test_the_fastest_of_equal_nodes_is_the_ceiling(altered: Callable[[Break], Contents]) -> None:
    """A full set on a slow node would make the MFU too high."""
    contents = altered(with_speeds(1e11, 1e11, 6e11, 1e11))
    (gemm,) = [item for item in contents.measurements if item.key == ("gemm", "peak", "fp32")]
    assert (gemm.value, gemm.node, gemm.kind) == (6e11, "n3", KIND)


def test_a_ceiling_that_one_kind_lacks_is_missing_although_another_kind_has_it(
    harmed: Callable[[Break], Findings],
) -> None:
    def lacking(run: Forger) -> None:
        second_kind(run)
        run.drop(
            lambda line: (
                (line["data"].get("kind"), line["data"].get("benchmark")) != ("fast", "memory")
            )
        )

    assert set(failed(harmed(lacking))) == {"planned"}


def test_a_kind_without_ceilings_has_no_verdict(harmed: Callable[[Break], Findings]) -> None:
    findings = harmed(change_node("n4", lambda known: {"kind": "another"}))
    assert set(failed(findings)) == {"ceilings"}
    assert (
        "job 4: matrix product and convolution were not measured in fp32"
        in (failed(findings)["ceilings"])
    )


def on_cpu(run: Forger) -> None:
    changed("job", device="cpu", device_name="Test CPU <1>", threads=1)(run)
    changed("measurement", device="cpu")(run)


@pytest.mark.parametrize(
    ("nodes", "host", "devices"), [(["n1", "n2"], "", 2), (["n1", "n2"], "one", 1), ([], "", 1)]
)
def test_the_cpus_of_a_host_count_once(
    altered: Callable[[Break], Contents], nodes: list[str], host: str, devices: int
) -> None:
    def train(run: Forger) -> None:
        on_cpu(run)
        trained_on(run, 1, nodes, host)

    run = altered(train)
    assert run.training_jobs[0].devices == devices
    if nodes:
        assert score(run).trainings[0].mfu.ceiling_flops == devices * CEILING


def test_accelerators_count_by_rank(cluster: Path) -> None:
    run = contents(cluster)
    assert [job.devices for job in run.training_jobs] == [
        job.record.ranks for job in run.training_jobs
    ]


def test_a_busy_node_is_named(harmed: Callable[[Break], Findings]) -> None:
    """The last load of each node counts: another node that measured later does not hide it."""

    def busy(run: Forger) -> None:
        run.lines("load")[-1]["data"].update(others_share=0.4)
        for log in run.logs.values():
            for at in [n for n, line in enumerate(log) if line["kind"] == "load"][-1:]:
                quiet = {"others_share": 0.01, "node": "n2"}
                log.insert(at + 1, {**log[at], "data": quiet})

    words = "other programs used 40 % of the CPUs while ceilings were measured on n1"
    assert words in failed(harmed(busy))["quiet"]


DIFFERENCES: dict[str, tuple[dict[str, Any], str]] = {
    "kernel": ({"kernel": "6.2"}, "kernel: n3 has 6.2, others 6.1"),
    "memory": ({"memory": MEMORY_B // 2}, "memory: n3 has 2 GiB, others 4 GiB"),
    "accelerator": (
        {"accelerator_0_model": "Test GPU (slow)"},
        "accelerator 0 model: n3 has Test GPU (slow), others Test GPU",
    ),
    "unread": ({"nvidia_driver": "550"}, "nvidia driver: n3 has 550, others not described"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_fact_in_which_equal_nodes_differ_is_named_with_its_node(
    harmed: Callable[[Break], Findings], name: str
) -> None:
    facts, words = DIFFERENCES[name]
    found = failed(harmed(change_node("n3", lambda known: {"system": system(**facts)})))
    assert found == {"nodes": f"nodes/n3.json: {words}"}


def test_all_differing_facts_are_named() -> None:
    nodes = [
        node("n1"),
        node("n2"),
        node("n3", system=system(kernel="6.2", memory=MEMORY_B // 2)),
    ]
    assert [text for _, text in node_differences(nodes)] == [
        "memory: n3 has 2 GiB, others 4 GiB",
        "kernel: n3 has 6.2, others 6.1",
    ]


def test_many_odd_nodes_are_counted() -> None:
    odd = [node(f"odd{number}", system=system(kernel="6.2")) for number in range(8)]
    nodes = [node(f"n{number}") for number in range(9)]
    (found,) = node_differences([*odd, *nodes])
    assert found[1] == "kernel: odd0, odd1, odd2 and 5 more have 6.2, others 6.1"


def test_a_fact_that_every_node_has_otherwise_is_shortened() -> None:
    nodes = [node(f"n{number}", system=system(kernel=f"6.{number}")) for number in range(9)]
    (found,) = node_differences(nodes)
    assert found == (
        "n1",
        "kernel: n1 has 6.1, n2 has 6.2, n3 has 6.3, 5 other values, others 6.0",
    )


def test_equal_nodes_may_differ_in_what_changes_all_the_time() -> None:
    facts = {"cpu_clock_now": 3000.0, "allocation_node": 3, "memory": MEMORY_B - (4 << 20)}
    assert not list(node_differences([node("n1"), node("n2", system=system(**facts))]))


def kinds(run: Contents) -> tuple[NodeKindScore, ...]:
    return score(run).node_kinds


def product(run: Contents) -> QuickSpread:
    (kind,) = kinds(run)
    (gemm,) = (item for item in kind.quick if item.benchmark == "gemm")
    return gemm


def _replaced(facts: dict[str, Any], known: MeasuredNode) -> dict[str, Any]:
    return facts


def with_speeds(*speeds: float, hosts: tuple[str, ...] = ()) -> Break:
    changes = []
    for number, speed in enumerate(speeds, start=1):
        facts: dict[str, Any] = {"quick": quick(f"n{number}", speed)}
        if hosts:
            facts["host"] = hosts[number - 1]
        changes.append(change_node(f"n{number}", partial(_replaced, facts)))
    return together(*changes)


def test_the_spread_between_equal_nodes(altered: Callable[[Break], Contents]) -> None:
    gemm = product(altered(with_speeds(1.90e11, 1.91e11, 1.92e11, 1.93e11)))
    assert (gemm.measured, gemm.smallest, gemm.largest) == (4, 1.90e11, 1.93e11)
    assert gemm.median == pytest.approx(1.915e11)
    assert gemm.spread == pytest.approx((1.9225e11 - 1.9075e11) / 1.915e11)
    assert (gemm.slow, gemm.reason, gemm.note) == ((), None, None)


def test_a_slow_node_is_named(altered: Callable[[Break], Contents]) -> None:
    gemm = product(altered(with_speeds(1.90e11, 1.91e11, 1.0e11, 1.9e11)))
    (slow,) = gemm.slow
    assert (slow.node, slow.device, slow.value) == ("n3", "cuda:0", 1e11)
    assert slow.below == pytest.approx(1 - 1e11 / 1.9e11)
    assert gemm.slow_count == 1


def test_three_nodes_are_too_few_to_name_a_slow_one(
    cluster: Path, altered: Callable[[Break], Contents]
) -> None:
    gemm = product(altered(change_node("n4", lambda known: {"quick": ()})))
    assert gemm.reason == "at least 4 are needed, and there are 3"


def test_nodes_that_share_a_host_are_not_mistaken_for_a_low_ceiling(
    altered: Callable[[Break], Contents],
) -> None:
    run = altered(with_speeds(*(5e10,) * 4, hosts=("one",) * 4))
    gemm, (kind,) = product(run), kinds(run)
    assert (kind.nodes, kind.hosts, gemm.of_full) == (4, 1, 0.25)
    assert gemm.note == (
        "on n1, it reaches 25 % of the full measurement: 4 nodes share that host and measure at "
        "the same time; it compares nodes, and is not used as a ceiling"
    )
    assert measured_ceilings(main_ceilings(run)).compute["gemm", "fp32"] == CEILING


def test_a_short_measurement_that_is_low_without_sharing_is_explained_too(
    altered: Callable[[Break], Contents],
) -> None:
    gemm = product(altered(with_speeds(*(5e10,) * 4)))
    assert gemm.note is not None
    assert "it is shorter, and all nodes measure at the same time" in gemm.note


def test_a_full_measurement_below_the_short_one_is_in_doubt(
    altered: Callable[[Break], Contents],
) -> None:
    gemm = product(altered(with_speeds(*(5e11,) * 4)))
    assert gemm.note == (
        "on n1, it is 2.5 times the full measurement, which was disturbed or too short: the "
        "highest value counts as ceiling"
    )


def test_thousands_of_slow_nodes_are_counted_not_listed() -> None:
    speeds = [1.0 + 1e-4 * (number % 7) for number in range(3000)] + [0.5] * 40
    assert slow_figures(speeds) == list(range(3000, 3040))
    assert MAX_LISTED < 40


def test_healthy_nodes_are_not_named() -> None:
    assert slow_figures([1.0 + 1e-2 * (number % 7) for number in range(2000)]) == []


def test_the_network_is_that_between_the_ranks_of_a_job() -> None:
    links = [
        link("nccl-8-ranks-4-nodes", 8, 9e9, "n1, n2, n3, n4"),
        link("nccl-2-ranks", 2, 5e9, "n1"),
        link("nccl-4-ranks-2-nodes", 4, 3e9, "n1, n2"),
    ]
    compute = quick("n1")
    by_ranks = {
        ranks: (found.network, found.network_nodes)
        for ranks in (4, 2, 8, None, 3)
        for found in [measured_ceilings([*compute, *links], ranks)]
    }
    assert by_ranks == {
        4: (3e9, "n1, n2"),
        2: (5e9, None),
        8: (9e9, "n1, n2, n3, n4"),
        None: (5e9, None),
        3: (5e9, None),
    }


def test_where_ceilings_were_measured(cluster: Path, altered: Callable[[Break], Contents]) -> None:
    assert measured_where(contents(cluster)) == (f"measured on n1, 1 of 4 equal nodes ({KIND})")
    assert measured_where(altered(second_kind)) == (
        f"measured on n1, 1 of 3 equal nodes ({KIND}); on n4 (fast)"
    )


def test_equal_facts_of_nodes_are_one_object_and_keep_their_types() -> None:
    text = node("n1", system=system(usable_cpus=1)).to_json()
    first, second = (MeasuredNode.parse(json.loads(text), Path("n.json")) for _ in range(2))
    layers = zip(first.system.layers, second.system.layers, strict=True)
    assert all(a is b for one, other in layers for a, b in zip(one.facts, other.facts, strict=True))
    values = [system(usable_cpus=value).fact("hardware", "usable cpus").value for value in (1, 1.0)]
    assert [type(value) for value in values] == [int, float]
    assert first.to_json() == text
