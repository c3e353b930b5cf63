"""The report, the terminal and the studies show the compute nodes as the system."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster_runs import (
    KIND,
    SUBMITTED_FROM,
    change_node,
    cluster_run,
    contents,
    link,
    node,
    quick,
    second_kind,
)
from tests.support.forged_runs import Forger
from tests.support.forgeries import Break, judged, together
from vflops.machine.system.mlperf_system import system_desc
from vflops.publish.export.json_document import runs_json
from vflops.publish.export.run_metrics import runs_openmetrics
from vflops.publish.report.node_blocks import _BINS, distribution_rows, nodes_block
from vflops.publish.report.report_page import write_report
from vflops.publish.roofline_page import Roofline
from vflops.record.formats.measured_node import MeasuredNode
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.figures import figures
from vflops.results.score import node_text, score_tables
from vflops.results.score.scoring import score
from vflops.studies.accept.measured_figures import measured_figures
from vflops.studies.compare.run_view import read_run_view
from vflops.studies.predict.from_run import read_inputs
from vflops.studies.reproduce.reproduced_figures import _ceilings as reproduced_ceilings

Alter = Callable[[Break], Contents]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return cluster_run(tmp_path_factory.mktemp("cluster"), patch)


@pytest.fixture
def altered(cluster: Path, tmp_path: Path) -> Alter:
    def alter(harm: Break) -> Contents:
        judged(cluster, tmp_path, "practice", harm)
        return contents(tmp_path / cluster.name)

    return alter


def slow_n3(known: MeasuredNode) -> dict[str, Any]:
    return {"quick": quick("n3", 1e11)}


def with_link(case: str, ranks: int, value: float, nodes: str) -> Break:
    """Another link besides the all-reduce that the cluster has."""

    def add(forger: Forger) -> None:
        data = link(case, ranks, value, nodes).model_dump(mode="json")
        log = forger.logs[forger.attempt(0) / "events.jsonl"]
        log.insert(-1, {**log[-2], "kind": "measurement", "data": data})

    return add


def test_the_rows_and_lines_of_nodes(altered: Alter) -> None:
    kinds = score(altered(change_node("n3", slow_n3))).node_kinds
    assert node_text.node_rows(kinds)[0] == (
        KIND,
        "4",
        "gemm peak fp32",
        "190 GFLOPS",
        "100 GFLOPS",
        "190 GFLOPS",
        "11.8 %",
    )
    assert node_text.node_rows(kinds)[1][:3] == ("", "", "memory copy")
    slow = "gemm peak fp32: n3 cuda:0 (47 % below the median) is slow"
    assert node_text.node_lines(kinds) == [slow]
    assert node_text.nodes_line(kinds) == (
        f"4 nodes × ({KIND}); spread between equal nodes (interquartile) 11.8 %; {slow}"
    )


def test_a_run_on_one_machine_has_no_line_of_nodes() -> None:
    assert node_text.nodes_line([]) is None


def test_healthy_nodes_and_faults(altered: Alter) -> None:
    fault = change_node("n2", lambda known: {"faults": ("no device",)})
    kinds = score(altered(fault)).node_kinds
    assert "none is slow beyond chance" in (node_text.nodes_line(kinds) or "")
    assert node_text.node_lines(kinds) == ["not measured: n2: no device"]


def test_the_report_names_the_nodes_and_the_submitting_machine(
    cluster: Path, altered: Alter
) -> None:
    run = altered(change_node("n3", slow_n3))
    write_report(run)
    page = re.sub(r"\s+", " ", run.folder.report_file.read_text())
    kind = KIND.replace("<", "&lt;").replace(">", "&gt;")
    assert f"<h1>4 nodes × ({kind})</h1>" in page
    assert f"Measured on n1, 1 of 4 equal nodes ({kind})." in page
    assert "This describes n1, one of the compute nodes. The run was submitted from" in page
    assert SUBMITTED_FROM in page
    assert "n3 cuda:0 (47 % below the median) is slow" in page


def test_the_distribution_does_not_grow_with_the_nodes(cluster: Path) -> None:
    many = contents(cluster)
    many.measured_nodes = [node(f"n{n}", quick=quick(f"n{n}", 1e11 + n)) for n in range(500)]
    rows = distribution_rows(many)
    block = nodes_block(many, score(many))
    assert block is not None and block.distribution is not None
    # The script of the page fits the width of a single view, not of a facet.
    assert set(block.distribution["encoding"]) == {"x", "y", "size", "color", "tooltip"}
    assert len(rows) <= 2 * _BINS
    for name in ("gemm peak fp32", "memory copy"):
        assert sum(row["count"] for row in rows if row["measured"] == name) == 500


def test_a_run_without_nodes_has_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.forged_runs import trained_run

    run = contents(trained_run(tmp_path, monkeypatch))
    assert nodes_block(run, score(run)) is None
    write_report(run)
    assert "Compute nodes" not in run.folder.report_file.read_text()


def test_ceilings_name_their_nodes_if_there_are_several_kinds(
    cluster: Path, altered: Alter
) -> None:
    remarks = [row[-1] for row in score_tables.ceiling_rows(score(contents(cluster)))]
    assert remarks == ["", "", "", "between n1, n2"]
    run = altered(second_kind)
    remarks = [row[-1] for row in score_tables.ceiling_rows(score(run))]
    assert {"on n1", "on n4", "between n1, n2"} == set(remarks)
    labels = [
        figure.label
        for by_key in figures(score(run))
        for figure in by_key.values()
        if figure.key == "ceiling" and figure.subject.workload == "memory"
    ]
    assert labels == [f"copy on {KIND}", "copy on fast"]


def test_the_roofline_says_where_its_ceilings_are_from(cluster: Path) -> None:
    found = Roofline.from_trainings(contents(cluster), None)
    assert found is not None
    assert found.sentences[-1] == f"Ceilings measured on n1, 1 of 4 equal nodes ({KIND})."
    assert any("between 2 ranks on n1, n2 takes" in sentence for sentence in found.sentences)


def test_a_comparison_sees_the_nodes_as_the_machine(cluster: Path, altered: Alter) -> None:
    view = read_run_view(cluster)
    assert view.machine == f"4 nodes × ({KIND})"
    assert view.machine_text == f"4 nodes × ({KIND}); submitted from {SUBMITTED_FROM}"
    assert view.facts["hardware", "compute nodes"] == view.machine
    other = read_run_view(altered(second_kind).folder.path)
    assert other.machine == f"3 nodes × ({KIND}) + 1 node × (fast)"
    assert other.group_key != view.group_key


def test_the_ceilings_of_an_acceptance_test_are_those_of_the_measured_node(cluster: Path) -> None:
    found = measured_figures(read_run_view(cluster))
    assert list(found["gemm.peak.fp32"].by_place) == ["n1"]
    assert list(found["all-reduce.gloo-2-ranks"].by_place) == ["n1, n2"]


def test_an_export_names_the_submitting_machine(cluster: Path) -> None:
    (run,) = json.loads(runs_json([contents(cluster)]))["runs"]
    assert (run["system"]["node"], run["system"]["submitted_from"]) == ("n1", SUBMITTED_FROM)
    assert run["score"]["node_kinds"][0]["nodes"] == 4
    record = SystemRecord.read(contents(cluster).folder.system_file)
    named = system_desc(record, submitter="x", division="open", system_name="x", nodes=4)
    assert f"submitted from {SUBMITTED_FROM}" in named["sw_notes"]


def test_openmetrics_tell_the_ceilings_of_two_kinds_apart(altered: Alter) -> None:
    text = runs_openmetrics([altered(second_kind)])
    samples = [line for line in text.splitlines() if 'benchmark="memory"' in line]
    assert [re.findall('node="(.*?)"', line) for line in samples] == [["n1"], ["n4"]]


def test_a_reproduction_compares_ceilings_of_equal_kinds(cluster: Path, altered: Alter) -> None:
    once, both = score(contents(cluster)), score(altered(second_kind))
    names = [figure.name for figure in reproduced_ceilings(both, once)]
    assert names == [figure.name for figure in reproduced_ceilings(once, once)]
    assert len(list(reproduced_ceilings(both, both))) == 7


def test_a_prediction_takes_the_links_between_nodes(altered: Alter, cluster: Path) -> None:
    inputs = read_inputs(contents(cluster))
    assert inputs.values["link.bandwidth"] == 1e9
    assert inputs.sources["link.bandwidth"] == "all-reduce gloo-2-ranks"
    assert inputs.absent["node.bandwidth"] == (
        "no all-reduce between the devices of a node was measured"
    )


def test_an_all_reduce_of_several_ranks_per_node_is_not_the_link_of_a_node(
    altered: Alter,
) -> None:
    def only(forger: Forger) -> None:
        forger.drop(lambda line: line["data"].get("benchmark") != "all-reduce")

    run = altered(
        together(
            only,
            with_link("nccl-2-ranks", 2, 9e9, "n1"),
            with_link("nccl-8-ranks-4-nodes", 8, 5e9, "n1, n2, n3, n4"),
        )
    )
    inputs = read_inputs(run)
    assert inputs.values["node.bandwidth"] == 9e9
    assert inputs.absent["link.bandwidth"] == (
        "no all-reduce between one rank of each node was measured"
    )
