"""Recurrent networks, attention of all kinds, transformers and state-space models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention.flex_attention import flex_attention

from tests.support.counted_models.definition import (
    VOCABULARY,
    applied,
    built,
    heads,
    joined,
    linear,
    real,
    tokens,
)


def cells(m: Any, x: Tensor) -> Any:
    state = x.new_zeros(x.shape[0], 4)
    for step in x.unbind(1):
        state = m.cell(step, state)
    return state


def long_cells(m: Any, x: Tensor) -> Any:
    state = memory = x.new_zeros(x.shape[0], 4)
    for step in x.unbind(1):
        state, memory = m.cell(step, (state, memory))
    return state


def convolutional_memory(m: Any, x: Tensor) -> Any:
    state = x.new_zeros(x.shape[0], 2, *x.shape[3:])
    for frame in x.unbind(1):
        gate, update = m.gates(torch.cat([frame, state], 1)).chunk(2, 1)
        state = gate.sigmoid() * update.tanh()
    return state


def sequence_to_sequence(m: Any, source: Tensor, target: Tensor) -> Any:
    states, last = m.encoder(m.table(source))
    decoded, _ = m.decoder(m.table(target), last)
    weights = (decoded @ states.mT).softmax(-1)
    return m.head(torch.cat([decoded, weights @ states], -1))


def packed(m: Any, x: Tensor) -> Any:
    lengths = torch.tensor([3, 2])
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    return m.lstm(sequence)[1][0]


def self_attention(m: Any, x: Tensor) -> Any:
    return m.attention(x, x, x)[0]


def masked_attention(m: Any, x: Tensor) -> Any:
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
    return m.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def cross_attention(m: Any, x: Tensor, memory: Tensor) -> Any:
    return m.attention(x, memory, memory, need_weights=False)[0]


def fused_attention(m: Any, x: Tensor) -> Any:
    query, key, value = (heads(part, 2) for part in m.qkv(x).chunk(3, -1))
    return m.out(joined(F.scaled_dot_product_attention(query, key, value, is_causal=True)))


def grouped_queries(m: Any, x: Tensor) -> Any:
    query, key, value = heads(m.query(x), 4), heads(m.key(x), 2), heads(m.value(x), 2)
    return joined(F.scaled_dot_product_attention(query, key, value, enable_gqa=True))


def one_key_head(m: Any, x: Tensor) -> Any:
    query, key, value = heads(m.query(x), 4), m.key(x)[:, None], m.value(x)[:, None]
    return joined(F.scaled_dot_product_attention(query, key, value))


def flexible(m: Any, x: Tensor) -> Any:
    query, key, value = (heads(part, 2) for part in m.qkv(x).chunk(3, -1))
    return joined(flex_attention(query, key, value))


def linear_attention(m: Any, x: Tensor) -> Any:
    query, key, value = m.qkv(x).chunk(3, -1)
    query, key = F.elu(query) + 1, F.elu(key) + 1
    scale = (query @ key.sum(1)[:, :, None]).clamp(min=1e-3)
    return query @ (key.mT @ value) / scale


def random_features(m: Any, x: Tensor) -> Any:
    query, key, value = m.qkv(x).chunk(3, -1)
    projected = [torch.exp(part @ m.features) for part in (query, key)]
    return projected[0] @ (projected[1].mT @ value)


def low_rank_keys(m: Any, x: Tensor) -> Any:
    query, key, value = m.qkv(x).chunk(3, -1)
    return (query @ (m.project @ key).mT).softmax(-1) @ (m.project @ value)


def windows(m: Any, x: Tensor) -> Any:
    """Attention in windows of 2×2, with a bias for relative positions and a shift."""
    x = x.roll((-1, -1), (1, 2))
    batch, height, width, channels = x.shape
    x = x.view(batch, height // 2, 2, width // 2, 2, channels).transpose(2, 3)
    query, key, value = (heads(part, 2) for part in m.qkv(x.reshape(-1, 4, channels)).chunk(3, -1))
    weights = (query @ key.mT + m.bias).softmax(-1)
    return m.out(joined(weights @ value)).view(batch, -1, channels)


def rotary(m: Any, x: Tensor) -> Any:
    angles = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None] * m.speeds

    def turned(part: Tensor) -> Tensor:
        even, odd = part[..., ::2], part[..., 1::2]
        return torch.cat([even * angles.cos() - odd * angles.sin(), even + odd * angles.sin()], -1)

    query, key, value = m.qkv(x).chunk(3, -1)
    return F.scaled_dot_product_attention(turned(query), turned(key), value)


def sloped(m: Any, x: Tensor) -> Any:
    positions = torch.arange(x.shape[1], device=x.device)
    distance = -(positions[:, None] - positions).abs().float()
    query, key, value = m.qkv(x).chunk(3, -1)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=distance)


def talking_heads(m: Any, x: Tensor) -> Any:
    query, key, value = (heads(part, 2) for part in m.qkv(x).chunk(3, -1))
    scores = torch.einsum("bhij,hg->bgij", query @ key.mT, m.before).softmax(-1)
    return joined(torch.einsum("bhij,hg->bgij", scores, m.after) @ value)


def latent_attention(m: Any, x: Tensor) -> Any:
    """Keys and values from a small latent vector."""
    latent = m.compress(x)
    query, key, value = heads(m.query(x), 2), heads(m.key(latent), 2), heads(m.value(latent), 2)
    return joined(F.scaled_dot_product_attention(query, key, value))


def perceiver(m: Any, x: Tensor) -> Any:
    latents = m.latents.expand(x.shape[0], -1, -1)
    latents = latents + m.read(latents, x, x)[0]
    return latents + m.think(latents)


def differential(m: Any, x: Tensor) -> Any:
    first, second, key, value = m.parts(x).chunk(4, -1)
    return ((first @ key.mT).softmax(-1) - m.share * (second @ key.mT).softmax(-1)) @ value


def relative_keys(m: Any, x: Tensor) -> Any:
    query, key, value = m.qkv(x).chunk(3, -1)
    return (query @ key.mT + torch.einsum("bid,ijd->bij", query, m.positions)).softmax(-1) @ value


def pointer(m: Any, x: Tensor) -> Any:
    return (m.score(torch.tanh(m.query(x)[:, None] + m.key(x)[:, :, None]))).squeeze(-1)


def vision_transformer(m: Any, x: Tensor) -> Any:
    patches = m.patches(x).flatten(2).mT
    x = torch.cat([m.token.expand(x.shape[0], -1, -1), patches], 1) + m.positions
    return m.head(m.layers(x)[:, 0])


def mixer(m: Any, x: Tensor) -> Any:
    x = x + m.tokens(m.norm(x).mT).mT
    return x + m.channels(x)


def spatial_gate(m: Any, x: Tensor) -> Any:
    left, right = m.expand(x).gelu().chunk(2, -1) if False else F.gelu(m.expand(x)).chunk(2, -1)
    return m.shrink(left * m.mix(right.mT).mT)


def language_model(m: Any, words: Tensor) -> Any:
    mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
    logits = m.head(m.layers(m.table(words), mask=mask, is_causal=True))
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def translation(m: Any, source: Tensor, target: Tensor) -> Any:
    return m.head(m.transformer(m.table(source), m.table(target)))


def decoder(m: Any, x: Tensor, memory: Tensor) -> Any:
    return m.layer(x, memory)


def state_space(m: Any, x: Tensor) -> Any:
    state = x.new_zeros(x.shape[0], 3)
    outputs = []
    for step in x.unbind(1):
        state = state @ m.transition + step @ m.enter
        outputs.append(state @ m.leave)
    return torch.stack(outputs, 1)


def selective_scan(m: Any, x: Tensor) -> Any:
    """A diagonal state whose decay depends on the input."""
    decay, enter, leave = m.parts(x).split([4, 3, 3], -1)
    state = x.new_zeros(x.shape[0], 4, 3)
    outputs = []
    for step in range(x.shape[1]):
        rate = torch.exp(F.softplus(decay[:, step, :, None]) * m.rates)
        state = rate * state + x[:, step, :, None] * enter[:, step, None]
        outputs.append((state @ leave[:, step, :, None]).squeeze(-1))
    return torch.stack(outputs, 1)


def long_convolution(m: Any, x: Tensor) -> Any:
    """A convolution over the whole sequence by FFT."""
    length = 2 * x.shape[1]
    spectrum = torch.fft.rfft(x, n=length, dim=1) * torch.fft.rfft(m.kernel, n=length, dim=0)
    return m.out(torch.fft.irfft(spectrum, n=length, dim=1)[:, : x.shape[1]])


def retention(m: Any, x: Tensor) -> Any:
    query, key, value = m.qkv(x).chunk(3, -1)
    distance = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
    return (query @ key.mT * distance) @ value


def fast_weights(m: Any, x: Tensor) -> Any:
    memory = x.new_zeros(x.shape[0], 4, 4)
    for step in m.mix(x).unbind(1):
        seen = torch.bmm(memory, step[:, :, None])
        memory = torch.baddbmm(memory, step[:, :, None] - seen, step[:, None])
    return memory


X = real(2, 5, 4)
TEXT = tokens(2, 5)


def mha(**options: Any) -> Any:
    return lambda: nn.MultiheadAttention(4, 2, batch_first=True, **options)


def encoder_layers(width: int = 4, **options: Any) -> Any:
    return lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(width, 2, 8, batch_first=True, **options), 2
    )


def table() -> nn.Module:
    return nn.Embedding(VOCABULARY, 4)


MODELS = [
    built("RNN", lambda: nn.RNN(4, 5, batch_first=True), X),
    built("RNN with ReLU", lambda: nn.RNN(4, 5, 2, nonlinearity="relu", batch_first=True), X),
    built("LSTM", lambda: nn.LSTM(4, 5, batch_first=True), X),
    built(
        "LSTM in both directions",
        lambda: nn.LSTM(4, 3, 2, bidirectional=True, batch_first=True, dropout=0.1),
        X,
    ),
    built("LSTM with projection", lambda: nn.LSTM(4, 6, proj_size=3, batch_first=True), X),
    built("GRU", lambda: nn.GRU(4, 5, batch_first=True), X),
    built(
        "GRU in both directions", lambda: nn.GRU(4, 3, 2, bidirectional=True, batch_first=True), X
    ),
    applied("RNN cell", cells, X, cell=lambda: nn.RNNCell(4, 4)),
    applied("GRU cell", cells, X, cell=lambda: nn.GRUCell(4, 4)),
    applied("LSTM cell", long_cells, X, cell=lambda: nn.LSTMCell(4, 4)),
    applied(
        "convolutional RNN",
        convolutional_memory,
        real(2, 3, 1, 5, 5),
        gates=lambda: nn.Conv2d(3, 4, 3, padding=1),
    ),
    applied(
        "sequence to sequence",
        sequence_to_sequence,
        TEXT,
        tokens(2, 3),
        table=table,
        encoder=lambda: nn.GRU(4, 4, batch_first=True),
        decoder=lambda: nn.GRU(4, 4, batch_first=True),
        head=linear(8, 6),
    ),
    applied("packed sequence", packed, real(2, 3, 4), lstm=lambda: nn.LSTM(4, 5, batch_first=True)),
    applied("multi-head attention", self_attention, X, attention=mha()),
    applied(
        "multi-head attention with extras",
        self_attention,
        X,
        attention=mha(add_bias_kv=True, add_zero_attn=True),
    ),
    applied("multi-head attention with a mask", masked_attention, X, attention=mha()),
    applied(
        "multi-head cross attention",
        cross_attention,
        X,
        real(2, 3, 6),
        attention=mha(kdim=6, vdim=6),
    ),
    applied("scaled dot product", fused_attention, X, qkv=linear(4, 12), out=linear(4, 4)),
    applied(
        "grouped queries",
        grouped_queries,
        X,
        query=linear(4, 8),
        key=linear(4, 4),
        value=linear(4, 4),
    ),
    applied(
        "one key head", one_key_head, X, query=linear(4, 8), key=linear(4, 2), value=linear(4, 2)
    ),
    applied("flex attention", flexible, real(2, 5, 8), qkv=linear(8, 24)),
    applied("linear attention", linear_attention, X, qkv=linear(4, 12)),
    applied("random features", random_features, X, qkv=linear(4, 12), features=(4, 3)),
    applied("low-rank keys", low_rank_keys, X, qkv=linear(4, 12), project=(2, 5)),
    applied(
        "shifted windows",
        windows,
        real(2, 4, 4, 4),
        qkv=linear(4, 12),
        out=linear(4, 4),
        bias=(2, 4, 4),
    ),
    applied("rotary positions", rotary, X, qkv=linear(4, 12), speeds=(2,)),
    applied("linear position bias", sloped, X, qkv=linear(4, 12)),
    applied("talking heads", talking_heads, X, qkv=linear(4, 12), before=(2, 2), after=(2, 2)),
    applied(
        "latent attention",
        latent_attention,
        X,
        compress=linear(4, 2),
        query=linear(4, 4),
        key=linear(2, 4),
        value=linear(2, 4),
    ),
    applied("perceiver", perceiver, X, latents=(1, 3, 4), read=mha(), think=linear(4, 4)),
    applied("differential attention", differential, X, parts=linear(4, 16), share=()),
    applied("relative keys", relative_keys, X, qkv=linear(4, 12), positions=(5, 5, 4)),
    applied(
        "additive attention", pointer, X, query=linear(4, 3), key=linear(4, 3), score=linear(3, 1)
    ),
    applied(
        "vision transformer",
        vision_transformer,
        real(2, 3, 8, 8),
        patches=lambda: nn.Conv2d(3, 4, 4, stride=4),
        token=(1, 1, 4),
        positions=(5, 4),
        layers=encoder_layers(),
        head=linear(4, 2),
    ),
    applied(
        "MLP-mixer",
        mixer,
        X,
        norm=lambda: nn.LayerNorm(4),
        tokens=linear(5, 5),
        channels=linear(4, 4),
    ),
    applied(
        "spatial gate", spatial_gate, X, expand=linear(4, 8), mix=linear(5, 5), shrink=linear(4, 4)
    ),
    built("transformer encoder", encoder_layers(activation="gelu", norm_first=True), X),
    applied(
        "transformer decoder layer",
        decoder,
        X,
        real(2, 3, 4),
        layer=lambda: nn.TransformerDecoderLayer(4, 2, 8, batch_first=True),
    ),
    applied(
        "causal language model",
        language_model,
        TEXT,
        table=table,
        layers=encoder_layers(),
        head=linear(4, VOCABULARY),
    ),
    applied(
        "translation",
        translation,
        TEXT,
        tokens(2, 3),
        table=table,
        head=linear(4, VOCABULARY),
        transformer=lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True),
    ),
    applied("state space", state_space, X, transition=(3, 3), enter=(4, 3), leave=(3, 2)),
    applied("selective scan", selective_scan, X, parts=linear(4, 10), rates=(4, 3)),
    applied("long convolution", long_convolution, X, kernel=(5, 4), out=linear(4, 4)),
    applied("retention", retention, X, qkv=linear(4, 12)),
    applied("fast weights", fast_weights, X, mix=linear(4, 4)),
]
