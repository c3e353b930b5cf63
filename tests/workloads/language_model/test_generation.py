"""Text that a trained model generates, and how the report shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vflops.data.text import synthetic_text
from vflops.data.text.packed_text import PackedText
from vflops.data.text.readable_text import readable
from vflops.data.text.text_recipe import TextRecipe
from vflops.data.text.token_windows import TokenWindows
from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import TransformerDesign
from vflops.workloads.language_model.exhibit import figures
from vflops.workloads.language_model.generation import TOP_K, continued, next_tokens

CPU = torch.device("cpu")
CONTEXT = 16
DESIGN = TransformerDesign(
    layers=1, width=16, heads=2, kv_heads=2, mlp_width=16, vocabulary=64, context=CONTEXT
)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> TokenWindows:
    folder = tmp_path_factory.mktemp("text") / "packed"
    text = PackedText.open(synthetic_text.pack(TextRecipe(vocabulary=64), folder, 1, 1).path)
    return TokenWindows(text.split("val"), CONTEXT)


def arrays(windows: TokenWindows, model: Transformer, seed: int = 1) -> dict[str, Any]:
    with torch.no_grad():
        text = readable(windows.split.index, "bytes")
        return dict(continued(model, windows, text, CPU, seed))


class Repeater(Transformer):
    """Is nearly certain that each token is the one ``CONTEXT // 2`` places before it."""

    def logits(self, tokens: Tensor) -> Tensor:
        return 50.0 * torch.nn.functional.one_hot(tokens[:, -CONTEXT // 2], 64).float()


def test_both_continuations_follow_the_model(windows: TokenWindows) -> None:
    found = arrays(windows, Repeater(DESIGN))
    assert found["greedy"].tolist() == found["beginnings"].tolist()
    assert found["sampled"].tolist() == found["beginnings"].tolist()


def test_the_true_continuation_is_that_of_the_text(windows: TokenWindows) -> None:
    found = arrays(windows, Transformer(DESIGN).eval())
    stored = np.empty((len(found["windows"]), CONTEXT + 1), np.int64)
    windows.read(found["windows"], stored)
    text = readable(windows.split.index, "bytes")
    assert found["beginnings"].tolist() == [text(row[:8].tolist()) for row in stored]
    assert found["true"].tolist() == [text(row[8:16].tolist()) for row in stored]
    assert found["windows"].tolist() == [0, (len(windows) - 1) // 2, len(windows) - 1]


def test_the_seed_determines_what_is_sampled(windows: TokenWindows) -> None:
    torch.manual_seed(0)
    model = Transformer(DESIGN).eval()
    one, again, other = (arrays(windows, model, seed) for seed in (1, 1, 2))
    assert one["sampled"].tolist() == again["sampled"].tolist()
    assert one["sampled"].tolist() != other["sampled"].tolist()
    assert one["greedy"].tolist() == other["greedy"].tolist()


def test_each_token_is_the_likeliest_given_all_before_it(windows: TokenWindows) -> None:
    torch.manual_seed(0)
    model = Transformer(DESIGN).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        ids = continued(model, windows, lambda tokens: " ".join(map(str, tokens)), CPU, 1)
        for beginning, greedy in zip(ids["beginnings"], ids["greedy"], strict=True):
            tokens = [int(word) for word in f"{beginning} {greedy}".split()]
            for end in range(CONTEXT // 2, CONTEXT):
                logits = model.logits(torch.tensor([tokens[:end]]))
                assert int(logits.argmax()) == tokens[end]


def test_only_the_likeliest_tokens_are_sampled() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = -torch.arange(64.0).expand(4000, 64) / 64
    drawn = next_tokens(logits, 0, generator)
    assert set(drawn.tolist()) == set(range(TOP_K))
    assert next_tokens(logits[:3], 3, generator).tolist() == [0, 0, 0]


def test_the_report_shows_passages(windows: TokenWindows) -> None:
    (figure,) = figures(arrays(windows, Repeater(DESIGN)))
    assert len(figure.passages) == 3
    passage = figure.passages[0]
    assert [name for name, _ in passage.continuations] == [
        "the text",
        "likeliest tokens",
        "sampled tokens",
    ]
    assert passage.continuations[1][1] == passage.beginning
    assert "temperature of 0.8 from the 40 likeliest" in figure.caption


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": np.array(2)}, "version 2, expected 1"),
        ({"true": np.array(3)}, "'true' is int64"),
        ({"true": None}, "'true' is missing"),
        ({"sampled": np.array(["one"])}, "shorter"),
    ],
)
def test_other_arrays_are_refused(
    windows: TokenWindows, change: dict[str, Any], words: str
) -> None:
    changed = {**arrays(windows, Repeater(DESIGN)), **change}
    with pytest.raises(ValueError, match=words):
        figures({name: array for name, array in changed.items() if array is not None})


def test_what_a_page_cannot_show_is_replaced(windows: TokenWindows) -> None:
    found = arrays(windows, Repeater(DESIGN))
    found["sampled"] = np.array(["a\x00b\x1b\nc", "", "x" * 5000])
    (figure,) = figures(found)
    texts = [passage.continuations[2][1] for passage in figure.passages]
    assert texts[0] == "a�b�\nc"
    assert len(texts[2]) == 2001


def test_ids_fit_a_context_of_one_token(tmp_path: Path, windows: TokenWindows) -> None:
    single = TokenWindows(windows.split, 1)
    found = arrays(
        single,
        Transformer(
            TransformerDesign(
                layers=1, width=16, heads=2, kv_heads=2, mlp_width=16, vocabulary=64, context=1
            )
        ).eval(),
    )
    assert all(len(text.split()) == 1 for text in found["greedy"])
