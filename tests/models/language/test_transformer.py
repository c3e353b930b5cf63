"""The transformer computes what the released code of GPT-2 and Llama computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.language.transformer import Transformer
from vflops.models.language.transformer_design import PUBLISHED, TransformerDesign

GPT2 = TransformerDesign(
    layers=2, width=32, heads=4, kv_heads=4, mlp_width=128, vocabulary=101, context=24
)
LLAMA = TransformerDesign(
    style="llama",
    layers=2,
    width=32,
    heads=4,
    kv_heads=2,
    mlp_width=80,
    vocabulary=101,
    context=24,
    rope_base=500.0,
)
NORMED = replace(LLAMA, qk_norm=True, tied=False)
BOUND = 1e-11
"""In float64, where rounding stays below 1e-13."""


def built(design: TransformerDesign) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(design).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # norms start as 1, which would hide a norm that is left out
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.mul_(10)
    return model


def tokens(design: TransformerDesign, samples: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, design.vocabulary, (samples, design.context + 1), generator=generator)


def oracle_losses(oracle: Any, ids: Tensor) -> Tensor:
    logits = oracle(input_ids=ids[:, :-1]).logits
    losses = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return losses.view(len(ids), -1)


def hugging_face_gpt2(model: Transformer) -> Any:
    transformers = pytest.importorskip("transformers")
    design = model.design
    oracle = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=design.vocabulary,
            n_positions=design.context,
            n_embd=design.width,
            n_layer=design.layers,
            n_head=design.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    ).double()
    no_biases = {name: torch.zeros_like(t) for name, t in oracle.state_dict().items()}
    oracle.load_state_dict(no_biases | as_gpt2(model.state_dict(), design))
    return oracle


def as_gpt2(ours: Mapping[str, Tensor], design: TransformerDesign) -> dict[str, Tensor]:
    """Return weights, or their gradients, under the names and in the layout of GPT-2."""
    state = {
        "transformer.wte.weight": ours["embedding.weight"],
        "lm_head.weight": ours["embedding.weight"],
        "transformer.wpe.weight": ours["positions.weight"],
        "transformer.ln_f.weight": ours["norm.weight"],
    }
    for layer in range(design.layers):
        theirs, mine = f"transformer.h.{layer}", f"layers.{layer}"
        for one, other in (
            ("ln_1", "attention_norm"),
            ("ln_2", "mlp_norm"),
        ):
            state[f"{theirs}.{one}.weight"] = ours[f"{mine}.{other}.weight"]
        for one, other in (
            ("attn.c_attn", "attention.qkv"),
            ("attn.c_proj", "attention.out"),
            ("mlp.c_fc", "mlp.up"),
            ("mlp.c_proj", "mlp.down"),
        ):
            state[f"{theirs}.{one}.weight"] = ours[f"{mine}.{other}.weight"].t()
    return state


def hugging_face_llama(model: Transformer) -> Any:
    transformers = pytest.importorskip("transformers")
    design = model.design
    kind = "Qwen3" if design.qk_norm else "Llama"  # Qwen 3 is Llama with normed queries and keys
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=design.vocabulary,
        hidden_size=design.width,
        intermediate_size=design.mlp_width,
        num_hidden_layers=design.layers,
        num_attention_heads=design.heads,
        num_key_value_heads=design.kv_heads,
        head_dim=design.head_width,
        max_position_embeddings=design.context,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": design.rope_base},
        tie_word_embeddings=design.tied,
    )
    oracle = getattr(transformers, f"{kind}ForCausalLM")(config).double()
    oracle.load_state_dict(as_llama(model.state_dict(), design))
    for module in oracle.modules():
        if type(module).__name__.endswith("RMSNorm"):  # it always computes in fp32
            module.forward = partial(in_double, module)
    return oracle


def as_llama(ours: Mapping[str, Tensor], design: TransformerDesign) -> dict[str, Tensor]:
    """Return weights, or their gradients, under the names of Llama and Qwen 3."""
    state = {
        "model.embed_tokens.weight": ours["embedding.weight"],
        "lm_head.weight": ours["head.weight"],
        "model.norm.weight": ours["norm.weight"],
    }
    sizes = [h * design.head_width for h in (design.heads, design.kv_heads, design.kv_heads)]
    for layer in range(design.layers):
        theirs, mine = f"model.layers.{layer}", f"layers.{layer}"
        parts = ours[f"{mine}.attention.qkv.weight"].split(sizes)
        for name, part in zip("qkv", parts, strict=True):
            state[f"{theirs}.self_attn.{name}_proj.weight"] = part
        names = {
            "self_attn.o_proj": "attention.out",
            "mlp.gate_proj": "mlp.gate",
            "mlp.up_proj": "mlp.up",
            "mlp.down_proj": "mlp.down",
            "input_layernorm": "attention_norm",
            "post_attention_layernorm": "mlp_norm",
        }
        if design.qk_norm:
            names |= {"self_attn.q_norm": "attention.query_norm"}
            names |= {"self_attn.k_norm": "attention.key_norm"}
        for one, other in names.items():
            state[f"{theirs}.{one}.weight"] = ours[f"{mine}.{other}.weight"]
    return state


def in_double(norm: Any, x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)


@pytest.mark.parametrize(
    ("design", "oracle", "renamed"),
    [
        (GPT2, hugging_face_gpt2, as_gpt2),
        (LLAMA, hugging_face_llama, as_llama),
        (NORMED, hugging_face_llama, as_llama),
    ],
    ids=["gpt2", "llama", "qwen3"],
)
def test_losses_and_gradients_are_those_of_hugging_face(
    design: TransformerDesign, oracle: Any, renamed: Any
) -> None:
    model, ids = built(design), tokens(design)
    losses = model(ids[:, :-1], ids[:, 1:])
    reference = oracle(model)
    expected = oracle_losses(reference, ids)
    assert losses.std() > 0.5  # the inputs matter
    # Hugging Face computes the angles of rotary positions in fp32, as Transformer does.
    torch.testing.assert_close(losses, expected, rtol=0, atol=BOUND)
    losses.mean().backward()
    expected.mean().backward()
    gradients = {name: w.grad for name, w in model.state_dict(keep_vars=True).items()}
    theirs = {name: w.grad for name, w in reference.named_parameters() if "bias" not in name}
    ours = renamed(gradients, design)
    assert len(theirs) >= 6 * design.layers + 2
    torch.testing.assert_close({name: ours[name] for name in theirs}, theirs, rtol=0, atol=BOUND)
    assert all(gradient.abs().max() > 1e6 * BOUND for gradient in theirs.values())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Released parameters less the biases of linear layers and norms.
        ("gpt2-124m", 124_439_808 - 12 * 11 * 768 - 768),
        ("gpt2-355m", 354_823_168 - 24 * 11 * 1024 - 1024),
        ("gpt2-774m", 774_030_080 - 36 * 11 * 1280 - 1280),
        ("gpt2-1558m", 1_557_611_200 - 48 * 11 * 1600 - 1600),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_published_designs_have_the_released_number_of_parameters(
    name: str, parameters: int
) -> None:
    with torch.device("meta"):
        model = Transformer(PUBLISHED[name])
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("design", [GPT2, LLAMA, replace(GPT2, experts=4, capacity=100.0)])
def test_a_loss_depends_on_earlier_tokens_only(design: TransformerDesign) -> None:
    model, ids = built(design).eval(), tokens(design)
    before = model(ids[:, :-1], ids[:, 1:])
    changed = ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % design.vocabulary
    after = model(changed[:, :-1], changed[:, 1:])
    assert torch.equal(before[:, :9], after[:, :9])
    assert (before[:, 9:] != after[:, 9:]).all()


def test_scores_for_generation_are_those_of_the_last_token() -> None:
    model, ids = built(LLAMA), tokens(LLAMA)[:, :-1]
    target = torch.full_like(ids, 7)
    expected = -model(ids, target)[:, -1]
    scores = model.logits(ids).log_softmax(-1)[:, 7]
    torch.testing.assert_close(scores, expected, rtol=0, atol=BOUND)


def test_hidden_matrices_are_all_matrices_but_embeddings_and_output() -> None:
    model = Transformer(replace(GPT2, tied=False))
    matrices = {id(p) for p in model.hidden_matrices()}
    others = {name for name, p in model.named_parameters() if id(p) not in matrices}
    assert {name for name in others if "norm" not in name} == {
        "embedding.weight",
        "positions.weight",
        "head.weight",
    }
