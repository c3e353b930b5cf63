"""The notation of inputs on the command line."""

from __future__ import annotations

import pytest

from vflops.counting.input_specs import Input, InputSpec, ValueSpec, arguments, parse_input
from vflops.errors import UsageError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("3x224x224", InputSpec((3, 224, 224))),
        ("128:int64", InputSpec((128,), "int64")),
        ("scalar", InputSpec(())),
        ("Scalar:INT64", InputSpec((), "int64")),
        ("tokens=128:int64", InputSpec((128,), "int64", "tokens")),
        ("batch.tokens=scalar", InputSpec((), "float32", "batch.tokens")),
        ("value:7", ValueSpec(7)),
        ("value:-0.5", ValueSpec(-0.5)),
        ("causal=value:true", ValueSpec(True, "causal")),
        ("value:None", ValueSpec(None)),
        ("mode=value:Cosine 3", ValueSpec("Cosine 3", "mode")),
        ("value:'7'", ValueSpec("7")),
        ("value:[1]", ValueSpec("[1]")),
    ],
)
def test_it_is_parsed(text: str, spec: Input) -> None:
    parsed = parse_input(text)
    assert parsed == spec
    if isinstance(parsed, ValueSpec) and isinstance(spec, ValueSpec):
        assert type(parsed.value) is type(spec.value)


@pytest.mark.parametrize(
    "text", ["", "3x", "0x3", "x=", "=3", "3x224x224:", "a b=3", "vector:int8"]
)
def test_nonsense_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is not valid") as caught:
        parse_input(text)
    assert "tokens=128:int64" in str(caught.value.hint)


def test_entries_of_a_dictionary_are_one_argument() -> None:
    specs = [parse_input(text) for text in ("3", "batch.a=1", "batch.b.c=2", "flag=value:no")]
    assert arguments(specs, [0, 1, 2, 3]) == ([0], {"batch": {"a": 1, "b": {"c": 2}}, "flag": 3})


@pytest.mark.parametrize("texts", [("a=1", "a=2"), ("a=1", "a.b=2")])
def test_an_argument_that_is_given_twice_is_refused(texts: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=r"input a(\.b)? is "):
        arguments([parse_input(text) for text in texts], [1, 2])
