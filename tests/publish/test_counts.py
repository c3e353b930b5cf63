"""Tables of counts on terminals of any width, as JSON and as a page."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.support.language_models import GPT2, LENGTH, language_graph
from tests.support.published_transformers import LLAMA2_7B, Decoder
from vflops.counting.capture import InputSpec, capture
from vflops.counting.conventions import convention
from vflops.counting.count import Count, count
from vflops.models.model_graph import graph_of
from vflops.publish.counts import as_json, as_tables, export

SEVERAL = ("executed", "palm", "palm-all", "causal", "causal-all", "megatron", "maxtext")


@pytest.fixture(scope="module")
def several() -> list[Count]:
    """Counts of a batch that is so large that exact counts do not fit side by side."""
    tokens = [InputSpec((2048,), "int64")]
    graph = capture(lambda: Decoder(LLAMA2_7B.with_layers(1)), tokens, name="wide", batch=4096)
    return [count(graph, convention(name)) for name in SEVERAL]


def printed(counts: Sequence[Count], width: int, by: str = "kind") -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(as_tables(counts, by, width))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("against", [False, True])
@pytest.mark.parametrize("by", ["kind", "layer"])
def test_no_number_and_no_name_is_cut(width: int, against: bool, by: str) -> None:
    graph = graph_of("resnet50")
    names = ["hpcai500", "executed"] if against else ["hpcai500"]
    text = printed([count(graph, convention(name)) for name in names], width, by)
    assert "…" not in text
    assert ("8,174,272,512" if width >= 80 else "8.17 G") in text or by == "layer"
    for name in ("convolution", "normalization") if by == "kind" else ("stem.0", "classifier"):
        assert name in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [50, 60, 80, 120])
@pytest.mark.parametrize("number", [1, 2, 3, 7])
@pytest.mark.parametrize("by", ["kind", "layer"])
def test_large_counts_of_any_number_of_conventions_fit(
    several: list[Count], width: int, number: int, by: str
) -> None:
    counts = several[:number]
    text = printed(counts, width, by)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert all(f" {counted.convention.id}" in text or number == 1 for counted in counts)
    if width >= 80:
        assert f"{counts[-1].per_token:,}" in text


def test_rows_of_conventions_that_rank_kinds_differently_are_not_mixed_up(
    several: list[Count],
) -> None:
    lines = printed(several, 120).splitlines()
    heading = next(line.split() for line in lines if "executed" in line)
    assert heading == list(SEVERAL)
    rows = {line.split()[0]: line for line in lines if line.startswith(" ") and line.split()}
    cells = rows["embedding"].replace("no rule", "none").replace(" P", "P").split()[1:]
    lookups = 6 * LLAMA2_7B.vocabulary * LLAMA2_7B.width * 4096 * 2048
    shown = f"{lookups / 1e15:.2f}P"
    assert dict(zip(heading, cells, strict=True)) == {
        name: shown if name.endswith("-all") else "none" for name in SEVERAL
    }


def test_json_has_the_operations_of_a_token(several: list[Count]) -> None:
    for data, counted in zip(json.loads(as_json(several, "kind")), several, strict=True):
        assert data["rules"]["id"] == counted.convention.id
        assert data["tokens"] == 4096 * 2048
        assert data["per_token"] == counted.total.total // data["tokens"]
    image = json.loads(as_json([count(graph_of("resnet50"), convention("executed"))], "kind"))
    assert image["tokens"] is image["per_token"] is None


def test_a_page_compares_the_conventions(several: list[Count], tmp_path: Path) -> None:
    export(several, "kind", tmp_path / "page.html", "html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<th>convention</th>") == 1
    for counted in several:
        assert f"<td>{counted.convention.id}</td>" in text
        assert f">{counted.per_token:,}</td>" in text


class Checkpointed(nn.Module):
    """A layer that runs again in the backward pass; the result may lose its gradient."""

    def __init__(self, *, ends: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)
        self.ends = ends

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.second, self.first(x), use_reentrant=True)
        return result.detach() if self.ends else result


@pytest.mark.parametrize("width", [60, 120])
def test_recomputation_has_a_column_and_a_sentence(width: int) -> None:
    graph = capture(Checkpointed, [InputSpec((8,))], name="net", batch=2, run_backward=True)
    counted = count(graph, convention("executed"))
    out = io.StringIO()
    Console(file=out, width=width).print(as_tables([counted], "layer", width))
    text = out.getvalue()
    assert "recompute" in text
    assert "the hardware executes" in " ".join(text.split())
    data = json.loads(as_json([counted], "layer"))
    assert data["recompute"] == 2 * 2 * 8 * 4
    assert [row["recompute"] for row in data["rows"]] == [0, data["recompute"]]
    assert data["notes"] == []


@pytest.mark.parametrize("names", [["executed"], ["executed", "aiperf", "hpcai500"]])
def test_a_missing_backward_pass_is_a_note_in_text_and_json(names: list[str]) -> None:
    build = partial(Checkpointed, ends=True)
    graph = capture(build, [InputSpec((8,))], name="net", run_backward=True)
    counts = [count(graph, convention(name)) for name in names]
    assert printed(counts, 100).count("note: there is no backward pass") == 1
    assert len(json.loads(as_json(counts[:1], "kind"))["notes"]) == 1


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(torch.special.bessel_j0(x))
        return result


def test_work_of_unknown_size_is_not_called_0_percent(tmp_path: Path) -> None:
    counted = count(
        capture(Unknown, [InputSpec((8,), "float32")], name="unknown"), convention("executed")
    )
    text = printed([counted], width=400)
    assert "these operators, whose work is not known (" in text
    assert ": aten.special_bessel_j0" in text
    warning = "the total is too small: executed has no rule for aten.special_bessel_j0"
    assert f"warning: {warning}" in text
    assert any(note.startswith(warning) for note in json.loads(as_json([counted], "kind"))["notes"])
    export([counted], "kind", tmp_path / "page.html", "html")
    assert warning in (tmp_path / "page.html").read_text()


def test_light_operators_without_a_kind_are_no_reason_to_warn() -> None:
    graph = capture(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.LogSigmoid(), Lgamma()),
        [InputSpec((8,), "float32")],
        name="light",
    )
    counted = count(graph, convention("executed"))
    assert "aten.lgamma.default" in [item.op for item in counted.uncounted]
    assert counted.warning is None
    shown = printed([counted], width=400)
    assert "these operators, none of which is a convolution or a matrix product (" in shown


class Lgamma(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.lgamma()


def test_the_inputs_of_a_language_model_are_tokens() -> None:
    graph = language_graph(GPT2)
    text = printed([count(graph, convention("executed"))], width=400)
    parameters = f"{graph.parameter_count:,} parameters"
    assert f"{parameters}, {LENGTH} tokens per sample, batch {graph.batch}" in text
