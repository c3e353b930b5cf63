"""The graph of the language model: every operator that a convention counts.

The order and the shapes are those of ``vflops.models.language``. What only moves data is left out,
and so are integers, such as the places of tokens in experts: no convention counts them.
"""

from __future__ import annotations

from vflops.counting.graph_builder import GraphBuilder, Shape
from vflops.models.language.transformer_design import TransformerDesign
from vflops.record.formats.graph import CAUSAL, Graph
from vflops.record.formats.job import DataFacts
from vflops.workloads.language_model.settings import LanguageSettings


def language_graph(name: str, settings: LanguageSettings, data: DataFacts) -> Graph:
    """Return the graph of one rank's batch, as ``LanguageModel`` is captured."""
    design = settings.network.design(int(data.facts["vocabulary"]), settings.context)
    return _Transformer(design, settings.train.rank_batch).graph(name)


class _Transformer:
    """A transformer under construction; activations are rows, one for each token of the batch."""

    def __init__(self, design: TransformerDesign, batch: int) -> None:
        self._design, self._batch, self._tokens = design, batch, design.context
        self._rows = batch * self._tokens
        self._builder = GraphBuilder()
        self._balances: list[int] = []
        """The balancing loss of the experts of each layer."""

    def graph(self, name: str) -> Graph:
        """Return the graph of the network and its loss."""
        design, builder = self._design, self._builder
        inputs = [
            builder.value((self._batch, self._tokens), grad=False, dtype="int64") for _ in range(2)
        ]
        table = builder.parameter("embedding.weight", (design.vocabulary, design.width))
        rows = (self._rows, design.width)
        x = builder.simple("embedding", "embedding.default", "embedding", [table, inputs[0]], rows)
        turns: int | None = None
        if design.has_positions:
            positions = builder.parameter("positions.weight", (design.context, design.width))
            x = self._elementwise("add", "", [x, positions], rows)
        else:
            turns = self._rotations()
        for number in range(design.layers):
            x = self._layer(f"layers.{number}", x, turns)
        x = self._norm("norm", x)
        head = "embedding" if design.tied else "head"
        losses = self._losses(builder.dense(head, x, design.vocabulary, bias=False))
        loss = builder.simple("reduction", "mean.default", "", [losses], (), "mean")
        return builder.graph(name, self._batch, inputs, [loss])

    def _losses(self, logits: int) -> int:
        """Return the loss of each token; experts add their balance."""
        losses = self._builder.cross_entropy(logits, by_row=True)
        if not self._balances:
            return losses
        total, *others = self._balances
        for balance in others:
            total = self._elementwise("add", "", [total, balance], ())
        balance = self._elementwise("mul", "", [total], ())
        return self._elementwise("add", "", [losses, balance], (self._rows,))

    def _layer(self, scope: str, x: int, turns: int | None) -> int:
        shape = self._builder.shape(x)
        attended = self._attention(
            f"{scope}.attention", self._norm(f"{scope}.attention_norm", x), turns
        )
        x = self._elementwise("add", scope, [x, attended], shape)
        inner = self._norm(f"{scope}.mlp_norm", x)
        block = self._experts if self._design.experts else self._mlp
        return self._elementwise("add", scope, [x, block(f"{scope}.mlp", inner)], shape)

    def _attention(self, scope: str, x: int, turns: int | None) -> int:
        design, builder, tokens = self._design, self._builder, self._tokens
        columns = (design.heads + 2 * design.kv_heads) * design.head_width
        together = builder.dense(f"{scope}.qkv", x, columns, bias=False)
        counts = (design.heads, design.kv_heads, design.kv_heads)
        q, k, v = (
            self._view(scope, together, (self._rows, count, design.head_width)) for count in counts
        )
        if design.qk_norm:
            q = self._norm(f"{scope}.query_norm", q)
            k = self._norm(f"{scope}.key_norm", k)
        if turns is not None:
            q, k = self._turned(scope, q, turns), self._turned(scope, k, turns)
        every = self._batch * design.heads  # keys and values are repeated for the heads of a group
        queries, keys = (every, tokens, design.head_width), (every, design.head_width, tokens)
        q = self._elementwise("mul", scope, [self._view(scope, q, queries)], queries)
        k = self._elementwise("mul", scope, [self._view(scope, k, keys)], keys)
        v = self._view(scope, v, queries)
        square = (every, tokens, tokens)
        scores = builder.simple("product", "bmm.default", scope, [q, k], square)
        mask = builder.value((tokens, tokens), grad=False)
        masked = builder.value(square)
        attributes = {"function": "add", CAUSAL: True}
        builder.node("elementwise", "add.Tensor", scope, [scores, mask], [masked], attributes)
        shares = builder.softmax("_safe_softmax", scope, masked, dim=-1)
        y = builder.simple("product", "bmm.default", scope, [shares, v], queries)
        y = self._view(scope, y, (self._rows, design.heads * design.head_width))
        return builder.dense(f"{scope}.out", y, design.width, bias=False)

    def _turned(self, scope: str, x: int, turns: int) -> int:
        """Return heads with pairs of columns turned."""
        rows, heads, columns = self._builder.shape(x)
        half = (rows, heads, columns // 2)
        parts = []
        for last in ("sub", "add"):
            pair = [self._elementwise("mul", scope, [x, turns], half) for _ in range(2)]
            parts.append(self._elementwise(last, scope, pair, half))
        return self._builder.simple("copy", "cat.default", scope, parts, (rows, heads, columns))

    def _rotations(self) -> int:
        """Return the cosines and sines of the angles, which need no gradient."""
        half = self._design.head_width // 2
        x = self._builder.value((half,), grad=False)
        for function in ("div", "pow", "reciprocal", "mul"):
            x = self._elementwise(function, "", [x], (half,), grad=False)
        angles = (self._tokens, half)
        x = self._elementwise("mul", "", [x], angles, grad=False)
        both = [self._elementwise(turn, "", [x], angles, grad=False) for turn in ("cos", "sin")]
        return self._builder.simple("copy", "stack.default", "", both, (2, *angles), grad=False)

    def _mlp(self, scope: str, x: int) -> int:
        design, builder = self._design, self._builder
        up = builder.dense(f"{scope}.up", x, design.mlp_width, bias=False)
        if design.is_gated:
            gate = builder.dense(f"{scope}.gate", x, design.mlp_width, bias=False)
            up = self._gated(scope, gate, up)
        else:
            up = self._activation("gelu", scope, up)
        return builder.dense(f"{scope}.down", up, design.width, bias=False)

    def _gated(self, scope: str, gate: int, up: int) -> int:
        gate = self._activation("silu", scope, gate)
        return self._elementwise("mul", scope, [gate, up], self._builder.shape(up))

    def _experts(self, scope: str, x: int) -> int:
        design, builder, rows = self._design, self._builder, self._rows
        logits = builder.dense(f"{scope}.router", x, design.experts, bias=False)
        shares = builder.softmax("_softmax", scope, logits, dim=-1)
        active = design.experts_per_token
        best = builder.simple("reduction", "topk.default", scope, [shares], (rows, active), "topk")
        total = builder.simple("reduction", "sum.dim_IntList", scope, [best], (rows, 1), "sum")
        weights = self._elementwise("div", scope, [best, total], (rows, active))
        places = (design.experts, design.expert_places(rows), design.width)
        inputs = builder.simple("other", "index_copy.default", scope, [x, best], places)
        hidden = self._expert_products(scope, "up", inputs, design.mlp_width)
        if design.is_gated:
            gate = self._expert_products(scope, "gate", inputs, design.mlp_width)
            hidden = self._gated(scope, gate, hidden)
        else:
            hidden = self._activation("gelu", scope, hidden)
        outputs = self._expert_products(scope, "down", hidden, design.width)
        gains = self._elementwise("mul", scope, [weights], (active * rows,))
        mixed = self._elementwise("mul", scope, [outputs, gains], (active * rows, design.width))
        self._balances.append(self._balance(scope, shares))
        return builder.simple(
            "reduction", "sum.dim_IntList", scope, [mixed], (rows, design.width), "sum"
        )

    def _balance(self, scope: str, shares: int) -> int:
        """Return the balancing loss: how many tokens chose an expert first, times its share."""
        builder, each = self._builder, (self._design.experts,)
        chosen = builder.value(builder.shape(shares), grad=False)
        load = builder.simple("reduction", "mean.dim", scope, [chosen], each, "mean", grad=False)
        mean = builder.simple("reduction", "mean.dim", scope, [shares], each, "mean")
        products = self._elementwise("mul", scope, [load, mean], each)
        total = builder.simple("reduction", "sum.default", scope, [products], (), "sum")
        return self._elementwise("mul", scope, [total], ())

    def _expert_products(self, scope: str, name: str, x: int, columns: int) -> int:
        experts, places, width = self._builder.shape(x)
        weight = self._builder.parameter(f"{scope}.{name}.weight", (experts, width, columns))
        shape = (experts, places, columns)
        return self._builder.simple("dense", "bmm.default", scope, [x, weight], shape)

    def _norm(self, scope: str, x: int) -> int:
        builder, shape = self._builder, self._builder.shape(x)
        weight = builder.parameter(f"{scope}.weight", shape[-1:])
        if self._design.style == "gpt2":
            operands, name = [x, weight], "native_layer_norm"
            return builder.simple("normalization", f"{name}.default", scope, operands, shape, name)
        each = (*shape[:-1], 1)
        power = self._elementwise("pow", scope, [x], shape)
        mean = builder.simple("reduction", "mean.dim", scope, [power], each, "mean")
        scale = self._elementwise("add", scope, [mean], each)
        scale = self._elementwise("rsqrt", scope, [scale], each)
        normed = self._elementwise("mul", scope, [x, scale], shape)
        return self._elementwise("mul", scope, [normed, weight], shape)

    def _activation(self, function: str, scope: str, x: int) -> int:
        shape = self._builder.shape(x)
        return self._builder.simple(
            "activation", f"{function}.default", scope, [x], shape, function
        )

    def _elementwise(
        self, function: str, scope: str, inputs: list[int], shape: Shape, *, grad: bool = True
    ) -> int:
        op = f"{function}.Tensor"
        return self._builder.simple("elementwise", op, scope, inputs, shape, function, grad=grad)

    def _view(self, scope: str, x: int, shape: Shape) -> int:
        return self._builder.simple("layout", "view.default", scope, [x], shape)
