"""Tables of counts on terminals of any width."""

from __future__ import annotations

import io
import json
from functools import partial

import pytest
from rich.console import Console
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vflops.counting.capture import InputSpec, capture
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.models.model_graph import graph_of
from vflops.publish.counts import as_json, as_tables


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("against", [False, True])
@pytest.mark.parametrize("by", ["kind", "layer"])
def test_no_number_and_no_name_is_cut(width: int, against: bool, by: str) -> None:
    graph = graph_of("resnet50")
    names = ["hpcai500", "executed"] if against else ["hpcai500"]
    out = io.StringIO()
    tables = as_tables([count(graph, convention(name)) for name in names], by, width)
    Console(file=out, width=width).print(tables)
    text = out.getvalue()
    assert "…" not in text
    assert ("8,174,272,512" if width >= 80 else "8.17 G") in text or by == "layer"
    for name in ("convolution", "normalization") if by == "kind" else ("stem.0", "classifier"):
        assert name in text
    assert max(map(len, text.splitlines())) <= width


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


def test_a_missing_backward_pass_is_a_note_in_text_and_json() -> None:
    build = partial(Checkpointed, ends=True)
    graph = capture(build, [InputSpec((8,))], name="net", run_backward=True)
    counted = count(graph, convention("executed"))
    out = io.StringIO()
    Console(file=out, width=100).print(as_tables([counted], "kind", 100))
    assert "note: there is no backward pass" in out.getvalue()
    assert len(json.loads(as_json([counted], "kind"))["notes"]) == 1
