"""A graph that does not follow from the settings is found, whatever else agrees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.forged_runs import Forger, trained_run
from tests.support.forgeries import Break, graph_of_settings, in_job, with_graph
from vflops.record.folder import RunFolder
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.graph_rules import check_rebuilt_graphs
from vflops.results.check.rule import Outcome
from vflops.results.rebuild.rebuilding import rebuilt_graph
from vflops.testing.conventions import sample_graph
from vflops.workloads.automl.architecture import architecture_cost, starting_networks
from vflops.workloads.contract.registry import workload

Judge = Callable[[Break], Outcome]
GRAPH = "graphs/image-classification.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        path = trained_run(tmp_path_factory.mktemp("good"), patch)
    graph_of_settings()(Forger(path))
    return path


@pytest.fixture
def judge(good: Path, tmp_path: Path) -> Judge:
    def judged(harm: Break) -> Outcome:
        copy = tmp_path / good.name
        shutil.copytree(good, copy)
        harm(Forger(copy))
        return Outcome(*check_rebuilt_graphs(Contents(RunFolder.open(copy))))

    return judged


def with_nodes(change: Callable[[dict[str, Any]], object]) -> Break:
    """The graph with something changed in its JSON."""

    def harm(run: Forger) -> None:
        data = json.loads((run.folder.path / GRAPH).read_text())
        change(data)
        with_graph(json.dumps(data))(run)

    return harm


def earlier_version(run: Forger) -> None:
    """ResNet-50 v1: as many parameters, but 6 % less work."""
    batch = JobRecord.read(run.folder.job_file(1)).settings["train"]["batch"]
    network = starting_networks.resnet((3, 4, 6, 3), (3, 224, 224), 1000, stride_in_1x1=True)
    graph = architecture_cost.graph(network, batch, name="image-classification")
    with_graph(graph.to_json())(run)


def frozen(data: dict[str, Any]) -> None:
    """No value has a gradient, so that the backward pass does nothing."""
    for value in data["values"]:
        value["grad"] = False


def merged(data: dict[str, Any]) -> None:
    """Two parameters with as many elements as before."""
    total = sum(data["parameters"].values())
    data["parameters"] = {"one": total - 1, "two": 1}


def assert_fails(outcome: Outcome, evidence: str, graph: str) -> None:
    verdict, text, where = outcome
    assert verdict == "fail"
    assert "does not follow from the settings of job 1: " in text
    assert evidence in text
    assert where is not None
    assert where.endswith(graph)


TOY = sample_graph(batch=256).model_copy(update={"model": "image-classification"}).to_json()
NETWORK = {"blocks": [3, 4, 6, 3], "stem": "imagenet"}


@pytest.mark.parametrize(
    ("harm", "evidence"),
    [
        (graph_of_settings(size=448, resize=448), "53 convolution nodes with 25.1 TFLOP, not 53"),
        (graph_of_settings(train={"batch": 512}), "a batch of 512 samples, not 256"),
        (graph_of_settings(network={**NETWORK, "width": 128}), "parameters, not 25,557,032"),
        (with_graph(TOY), "parameters, not 25,557,032"),
        (earlier_version, "53 convolution nodes with"),
        (with_nodes(frozen), "by the rules aiperf-original"),
        (with_nodes(merged), "its parameters have other sizes"),
        (with_nodes(lambda data: data["nodes"].pop(3)), "max-pool"),
        (with_nodes(lambda data: data["nodes"].extend(data["nodes"][:1])), "54 convolution nodes"),
    ],
)
def test_another_graph_fails(judge: Judge, harm: Break, evidence: str) -> None:
    assert_fails(judge(harm), evidence, GRAPH)


def test_the_graph_of_the_settings_passes(judge: Judge) -> None:
    verdict, text, _ = judge(lambda run: None)
    assert verdict == "pass"
    assert text == "1 graph, equal to what the settings give, counted by all conventions"


def test_a_loss_of_other_operators_is_named_and_passes(judge: Judge) -> None:
    verdict, text, _ = judge(graph_of_settings(label_smoothing=0.0))
    assert verdict == "pass"
    assert "a negligible difference: it has 16 elementwise nodes" in text


def test_operations_of_our_networks_cannot_be_declared(judge: Judge) -> None:
    declared = {"ops_forward": 10**12, "ops_total": 10**13, "source": "the author"}
    verdict, text, where = judge(in_job(declared=declared))
    assert verdict == "fail"
    assert text == "job 1: operations are declared, but image-classification is counted"
    assert where == "jobs/1/job.json"


def test_data_without_classes_fails(judge: Judge) -> None:
    verdict, text, where = judge(in_job("data", facts={}))
    assert verdict == "fail"
    assert text.endswith("does not say the classes of the data, which its network depends on")
    assert where == "jobs/1/job.json"


def test_the_graph_of_another_package_is_not_judged(judge: Judge) -> None:
    outcome = judge(lambda run: run.records(lambda data: data.update(workload="their-workload")))
    assert outcome == Outcome("not applicable", "no job trains a network of vflops")


def test_a_run_without_the_graph_has_no_operations_to_judge(judge: Judge) -> None:
    verdict, text, _ = judge(lambda run: run.folder.graph_file("image-classification").unlink())
    assert (verdict, text) == ("not applicable", "image-classification has no graph")


def language_model(
    run: Forger, change: Callable[[dict[str, Any]], object] = lambda data: None, **network: Any
) -> None:
    """The run as one of a language model whose graph is that of another network, or changed."""
    settings = workload("language-model").profile("tiny").model_dump(mode="json")
    run.records(
        lambda data: data.update(
            workload="language-model",
            settings=settings,
            data={**data["data"], "facts": {"vocabulary": 64}},
        )
    )
    record = JobRecord.read(run.folder.job_file(1))
    other = {**settings, "network": {**settings["network"], **network}}
    graph = rebuilt_graph(record.model_copy(update={"settings": other}))
    assert graph is not None
    data = json.loads(graph.to_json())
    change(data)
    path = run.folder.graph_file("language-model")
    path.write_text(json.dumps(data))
    assert Graph.read(path).model == "language-model"
    (line,) = run.lines("counted")
    line["data"].update(model="language-model")
    run.sealed()


def not_causal(data: dict[str, Any]) -> None:
    """Attention that sees the future, which conventions with half of it count twice."""
    for node in data["nodes"]:
        if "causal" in node["attributes"]:
            node["attributes"]["causal"] = False


def without_lookup(data: dict[str, Any]) -> None:
    """Tokens are not looked up, so that it is no model on tokens."""
    for node in data["nodes"]:
        if node["kind"] == "embedding":
            node["kind"] = "other"


def with_frozen_mask(data: dict[str, Any]) -> None:
    """A parameter that is not trained, to which formulas per token do not apply."""
    mask = next(node["inputs"][1] for node in data["nodes"] if "causal" in node["attributes"])
    data["values"][mask]["parameter"] = "mask"


@pytest.mark.parametrize(
    ("harm", "evidence"),
    [
        (partial(language_model, layers=3), "parameters, not"),
        (partial(language_model, heads=8), "MFLOP, not 11 elementwise nodes"),
        (partial(language_model, change=frozen), "by the rules"),
        (partial(language_model, change=not_causal), "by the rules causal"),
        (partial(language_model, change=without_lookup), "0 product nodes with 0 FLOP, not 4"),
        (partial(language_model, change=with_frozen_mask), "cannot be counted by the rules palm"),
        (
            partial(language_model, change=lambda data: data["nodes"].extend(data["nodes"][-4:-3])),
            "by the rules",
        ),
    ],
)
def test_another_graph_of_a_language_model_fails(judge: Judge, harm: Break, evidence: str) -> None:
    assert_fails(judge(harm), evidence, "graphs/language-model.json")


def test_the_graph_of_a_language_model_passes(judge: Judge) -> None:
    verdict, text, _ = judge(language_model)
    assert verdict == "pass"
    assert text == "1 graph, equal to what the settings give, counted by all conventions"


def test_text_without_a_vocabulary_fails(judge: Judge) -> None:
    def harm(run: Forger) -> None:
        language_model(run)
        run.records(lambda data: data["data"].update(facts={}))

    verdict, text, _ = judge(harm)
    assert verdict == "fail"
    assert text.endswith("does not say the vocabulary of the data, which its network depends on")
