"""Tests that every counting convention must pass.

Subclass ``ConventionConformance`` and provide a parameter or fixture ``convention``::

    @pytest.mark.parametrize("convention", [MY_CONVENTION])
    class TestMine(ConventionConformance):
        pass

In the tests of a convention for transformers, ``sample`` returns ``sample_transformer(batch)``.
"""

from __future__ import annotations

from vflops.counting.conventions import Convention
from vflops.counting.count import count
from vflops.record.formats.graph import Attribute, Graph, Node, Value


def sample_graph(batch: int = 1) -> Graph:
    """Return a graph of a convolution, batch norm, ReLU and a classifier on 4×4 images."""

    values = (
        _value(batch, 3, 4, 4, grad=False),
        _value(8, 3, 3, 3, parameter="conv.weight"),
        _value(batch, 8, 4, 4),
        _value(8, parameter="norm.weight"),
        _value(batch, 8, 4, 4),
        _value(batch, 8, 4, 4),
        _value(batch, 128),
        _value(128, 10, parameter="classifier.weight"),
        _value(batch, 10),
    )
    nodes = (
        Node(
            kind="convolution",
            op="convolution",
            scope="conv",
            inputs=(0, 1),
            outputs=(2,),
            attributes={"kernel": (3, 3), "groups": 1, "transposed": False},
        ),
        Node(
            kind="normalization",
            op="batch_norm",
            scope="norm",
            inputs=(2, 3),
            outputs=(4,),
            attributes={"function": "native_batch_norm"},
        ),
        Node(
            kind="activation",
            op="relu",
            scope="relu",
            inputs=(4,),
            outputs=(5,),
            attributes={"function": "relu"},
        ),
        Node(kind="layout", op="flatten", scope="", inputs=(5,), outputs=(6,)),
        Node(kind="dense", op="linear", scope="classifier", inputs=(6, 7), outputs=(8,)),
    )
    return Graph(
        model="sample",
        framework="none",
        batch=batch,
        inputs=(0,),
        outputs=(8,),
        parameters={"conv.weight": 216, "norm.weight": 8, "classifier.weight": 1280},
        values=values,
        nodes=nodes,
    )


def sample_transformer(batch: int = 1) -> Graph:
    """Return a graph of one attention head without a mask on sequences of 4 tokens."""
    values = (
        _value(batch, 4, grad=False, dtype="int64"),
        _value(10, 8, parameter="embedding.weight"),
        _value(batch, 4, 8),
        _value(8, 8, parameter="key.weight"),
        _value(batch, 4, 8),
        _value(batch, 8, 4),
        _value(batch, 4, 4),
        _value(batch, 4, 4),
        _value(batch, 4, 8),
        _value(8, 10, parameter="head.weight"),
        _value(batch, 4, 10),
    )
    softmax: dict[str, Attribute] = {"function": "_softmax", "dim": -1}
    nodes = (
        Node(kind="embedding", op="embedding", scope="embedding", inputs=(1, 0), outputs=(2,)),
        Node(kind="dense", op="linear", scope="key", inputs=(2, 3), outputs=(4,)),
        Node(kind="layout", op="transpose", scope="", inputs=(4,), outputs=(5,)),
        Node(kind="product", op="bmm", scope="", inputs=(2, 5), outputs=(6,)),
        Node(kind="softmax", op="softmax", scope="", inputs=(6,), outputs=(7,), attributes=softmax),
        Node(kind="product", op="bmm", scope="", inputs=(7, 4), outputs=(8,)),
        Node(kind="dense", op="linear", scope="head", inputs=(8, 9), outputs=(10,)),
    )
    return Graph(
        model="sample transformer",
        framework="none",
        batch=batch,
        inputs=(0,),
        outputs=(10,),
        parameters={"embedding.weight": 80, "key.weight": 64, "head.weight": 80},
        values=values,
        nodes=nodes,
    )


def _value(
    *shape: int, grad: bool = True, parameter: str | None = None, dtype: str = "float32"
) -> Value:
    return Value(shape=shape, dtype=dtype, grad=grad, parameter=parameter)


class ConventionConformance:
    """Tests that counts are reproducible, integer, linear in the batch, and complete."""

    def sample(self, batch: int = 1) -> Graph:
        """Return a graph that the convention applies to."""
        return sample_graph(batch)

    def test_it_has_an_id_a_version_and_a_source(self, convention: Convention) -> None:
        """A score names the convention that it was counted with."""
        assert convention.id == convention.id.strip().lower() != ""
        assert convention.version >= 1
        assert convention.title
        assert convention.source

    def test_counts_are_integers_and_not_negative(self, convention: Convention) -> None:
        """FLOP counts are exact integers."""
        for ops in count(self.sample(), convention).ops:
            if ops is not None:
                for value in (ops.forward, ops.backward, ops.update):
                    assert type(value) is int
                    assert value >= 0

    def test_the_same_graph_gives_the_same_count(self, convention: Convention) -> None:
        """A convention is a pure function."""
        assert count(self.sample(), convention).ops == count(self.sample(), convention).ops

    def test_work_grows_with_the_batch(self, convention: Convention) -> None:
        """The forward and backward operations of n samples are n times those of one."""
        one, five = (count(self.sample(batch), convention).total for batch in (1, 5))
        assert (five.forward, five.backward) == (5 * one.forward, 5 * one.backward)

    def test_kinds_and_layers_add_up_to_the_total(self, convention: Convention) -> None:
        """The tables by kind and by layer are complete."""
        counted = count(self.sample(), convention)
        for rows in (counted.by_kind, counted.by_layer):
            assert sum(row.ops.total for row in rows) == counted.total.total

    def test_uncounted_operators_are_listed(self, convention: Convention) -> None:
        """Every operator with arithmetic is either counted or listed as uncounted."""
        counted = count(self.sample(), convention)
        uncounted = {entry.op for entry in counted.uncounted}
        missing = [
            node.op
            for node, ops in zip(counted.graph.nodes, counted.ops, strict=True)
            if ops is None and node.op not in uncounted
        ]
        assert missing == []
