"""Small transformers of the language model, and their operation graphs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from vflops.counting.capture import InputSpec, capture
from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import TransformerDesign
from vflops.record.formats.graph import Graph

BATCH, LENGTH, WIDTH, HEADS, INNER, WORDS = 3, 16, 32, 4, 64, 50
GPT2 = TransformerDesign(
    layers=1,
    width=WIDTH,
    heads=HEADS,
    kv_heads=HEADS,
    mlp_width=INNER,
    vocabulary=WORDS,
    context=LENGTH,
)
LLAMA = replace(GPT2, style="llama", kv_heads=2, qk_norm=True, tied=False)
EXPERTS = replace(GPT2, experts=4)
DESIGNS = {"gpt2": GPT2, "llama": LLAMA, "experts": EXPERTS}
TOKENS = BATCH * LENGTH
SCORES = BATCH * HEADS * LENGTH * LENGTH


def language_graph(design: TransformerDesign) -> Graph:
    spec = InputSpec((LENGTH,), "int64")
    return capture(
        partial(Transformer, design), [spec, spec], name="t", batch=BATCH, loss=Tensor.mean
    )
