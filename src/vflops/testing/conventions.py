"""Tests that every counting convention must pass.

Subclass ``ConventionConformance`` and provide a parameter or fixture ``convention``::

    @pytest.mark.parametrize("convention", [MY_CONVENTION])
    class TestMine(ConventionConformance):
        pass
"""

from __future__ import annotations

from vflops.counting.conventions import Convention
from vflops.counting.count import count
from vflops.record.formats.graph import Graph, Node, Value


def sample_graph(batch: int = 1) -> Graph:
    """Return a graph of a convolution, batch norm, ReLU and a classifier on 4×4 images."""

    def value(*shape: int, grad: bool = True, parameter: str | None = None) -> Value:
        return Value(shape=shape, dtype="float32", grad=grad, parameter=parameter)

    values = (
        value(batch, 3, 4, 4, grad=False),
        value(8, 3, 3, 3, parameter="conv.weight"),
        value(batch, 8, 4, 4),
        value(8, parameter="norm.weight"),
        value(batch, 8, 4, 4),
        value(batch, 8, 4, 4),
        value(batch, 128),
        value(128, 10, parameter="classifier.weight"),
        value(batch, 10),
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


class ConventionConformance:
    """Tests that counts are reproducible, integer, linear in the batch, and complete."""

    def test_it_has_an_id_a_version_and_a_source(self, convention: Convention) -> None:
        """A score names the convention that it was counted with."""
        assert convention.id == convention.id.strip().lower() != ""
        assert convention.version >= 1
        assert convention.title
        assert convention.source

    def test_counts_are_integers_and_not_negative(self, convention: Convention) -> None:
        """FLOP counts are exact integers."""
        for ops in count(sample_graph(), convention).ops:
            if ops is not None:
                for value in (ops.forward, ops.backward, ops.update):
                    assert type(value) is int
                    assert value >= 0

    def test_the_same_graph_gives_the_same_count(self, convention: Convention) -> None:
        """A convention is a pure function."""
        assert count(sample_graph(), convention).ops == count(sample_graph(), convention).ops

    def test_work_grows_with_the_batch(self, convention: Convention) -> None:
        """The forward and backward operations of n samples are n times those of one."""
        one, five = (count(sample_graph(batch), convention).total for batch in (1, 5))
        assert (five.forward, five.backward) == (5 * one.forward, 5 * one.backward)

    def test_kinds_and_layers_add_up_to_the_total(self, convention: Convention) -> None:
        """The tables by kind and by layer are complete."""
        counted = count(sample_graph(), convention)
        for rows in (counted.by_kind, counted.by_layer):
            assert sum(row.ops.total for row in rows) == counted.total.total

    def test_uncounted_operators_are_listed(self, convention: Convention) -> None:
        """Every operator with arithmetic is either counted or listed as uncounted."""
        counted = count(sample_graph(), convention)
        uncounted = {entry.op for entry in counted.uncounted}
        missing = [
            node.op
            for node, ops in zip(counted.graph.nodes, counted.ops, strict=True)
            if ops is None and node.op not in uncounted
        ]
        assert missing == []
