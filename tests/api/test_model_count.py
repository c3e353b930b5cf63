"""``vflops.count`` against torch's own counter, and what it refuses."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import vflops
from vflops.counting.conventions.executed import EXECUTED


class Attention(nn.Module):
    """One head of attention with a table that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.project = nn.Linear(16, 48)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.embed.weight
        self.scale = torch.full((1, 12, 16), 0.5)

    def forward(self, tokens: Tensor, *, weights: Tensor) -> Tensor:
        q, k, v = self.project(self.embed(tokens) * self.scale).chunk(3, dim=-1)
        mixed: Tensor = (q @ k.transpose(1, 2)).softmax(-1) @ v
        logits: Tensor = self.out(mixed) * weights[:, :, None]
        return logits


def tokens(batch: int = 4) -> dict[str, Tensor]:
    return {
        "tokens": torch.zeros(batch, 12, dtype=torch.long),
        "weights": torch.ones(batch, 12),
    }


def test_a_transformer_has_the_operations_that_torch_counts() -> None:
    model, inputs = Attention(), tokens()
    counted = vflops.count(model, inputs, rules="executed-torch")
    with FlopCounterMode(display=False) as forward:
        result = model(**inputs)
    with FlopCounterMode(display=False) as backward:
        result.sum().backward()
    assert counted.forward == forward.get_total_flops() > 0
    assert counted.backward == backward.get_total_flops() > 0
    assert counted.total == counted.forward + counted.backward
    assert (counted.model, counted.batch) == ("Attention", 4)
    assert counted.parameters == 50 * 16 + 16 * 48 + 48
    assert vflops.count(model, tokens(8)).total == 2 * vflops.count(model, inputs).total


def test_a_transformer_by_formula_per_token() -> None:
    counted = vflops.count(Attention(), tokens(), rules="palm")
    assert counted.tokens == 4 * 12
    assert counted.per_token == 6 * counted.parameters + 12 * 16 * 12  # tied, without positions
    assert counted.total == counted.per_token * counted.tokens
    with pytest.raises(vflops.VflopsError, match="has no tokens"):
        vflops.count(nn.Linear(10, 20), torch.zeros(3, 10), rules="palm")


def test_the_default_rules_are_what_is_executed() -> None:
    model, inputs = nn.Linear(10, 20), torch.zeros(3, 10)
    assert vflops.count(model, inputs).rules == f"executed/{EXECUTED.version}"
    assert vflops.count(model, inputs).forward == 2 * 3 * 10 * 20


def test_neither_the_model_nor_its_inputs_are_changed() -> None:
    model, inputs = Attention().eval(), tokens()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    vflops.count(lambda: model, inputs)
    vflops.count(model, inputs, loss=lambda logits: logits.mean())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert model.out.weight is model.embed.weight
    assert model.scale.device.type == inputs["tokens"].device.type == "cpu"
    assert model(**inputs).shape == (4, 12, 50)


def test_a_model_can_be_built_without_memory() -> None:
    counted = vflops.count(lambda: nn.Linear(10**6, 10**6), torch.empty(2, 10**6, device="meta"))
    assert counted.forward == 4 * 10**12


def test_tables_add_up_to_the_total() -> None:
    counted = vflops.count(Attention(), tokens())
    for table in (counted.by_kind(), counted.by_layer()):
        assert sum(row["total"] or 0 for row in table) == counted.total
    by_kind = {row["name"]: row for row in counted.by_kind()}
    assert by_kind["softmax"]["total"] is None
    assert by_kind["product"]["operators"] == 2
    assert "aten._softmax.default" in [row["op"] for row in counted.uncounted()]
    assert 0 < sum(row["share"] for row in counted.uncounted()) < 1


def test_operators_that_may_be_much_of_the_work_are_warned_of() -> None:
    class Unknown(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = torch.special.bessel_j0(x)
            return result

    with pytest.warns(UserWarning, match=r"too small: executed has .* aten\.special_bessel_j0 \("):
        counted = vflops.count(Unknown(), torch.zeros(2, 3))
    (row,) = counted.uncounted()
    assert (row["op"], row["operators"]) == ("aten.special_bessel_j0.default", 1)
    with pytest.warns(UserWarning, match=r"too small: hpcai500 has no rule for aten\.special_b"):
        vflops.count(Unknown(), torch.zeros(2, 3), rules="hpcai500")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vflops.count(nn.ReLU(), torch.zeros(2, 3))


class Wrapped(nn.Module):
    """A layer whose result is returned in an object of any kind."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.layer(x))


@dataclass
class Fields:
    scores: Tensor


class Slots:
    __slots__ = ("scores",)

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores


class Items(OrderedDict[str, Tensor]):
    """A dictionary that has its items as attributes too."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__(scores=scores)
        self.scores = scores


@pytest.mark.parametrize(
    "wrap",
    [
        Fields,
        Slots,
        Items,
        lambda scores: SimpleNamespace(deep=[{"scores": scores}]),
        lambda scores: torch.distributions.Normal(scores, 1.0),
        lambda scores: torch.distributions.Categorical(logits=scores),
    ],
)
def test_outputs_are_found_in_any_object(wrap: Callable[[Tensor], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counted = vflops.count(Wrapped(wrap), torch.zeros(2, 8))
    assert counted.backward == counted.forward == 2 * 2 * 8 * 4
    assert counted.notes == []


@pytest.mark.parametrize(
    "wrap",
    [lambda scores: scores.argmax(-1), lambda scores: scores.detach(), lambda scores: None],
)
def test_outputs_without_a_gradient_are_said(wrap: Callable[[Tensor], Any]) -> None:
    with pytest.warns(UserWarning, match="no backward pass.* a gradient.*let forward return"):
        counted = vflops.count(Wrapped(wrap), torch.zeros(2, 8))
    assert counted.backward == 0
    assert len(counted.notes) == 1


class Embedded(nn.Module):
    """A model with arguments of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layer = nn.Linear(8, 4)

    def forward(
        self,
        token: Tensor,
        times: int = 1,
        mode: str | None = None,
        more: dict[str, Tensor] | None = None,
    ) -> Tensor:
        result: Tensor = self.embed(token)
        for _ in range(times):
            result = result + self.layer(result).sum()
        return result if more is None else result * more["weight"][:, None]


def test_arguments_may_be_scalars_dictionaries_and_plain_values() -> None:
    token, more = torch.zeros(3, dtype=torch.long), {"weight": torch.zeros(3)}
    once = vflops.count(Embedded(), token).forward
    assert once == 2 * 3 * 8 * 4
    assert vflops.count(Embedded(), [token, 2, None, more]).forward == 2 * once
    assert vflops.count(Embedded(), {"token": token, "times": 3, "more": more}).forward == 3 * once


TABLE = torch.arange(8.0)


class Constants(nn.Module):
    """Uses tensors that are neither parameters nor buffers, and reads a value of one."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]
        self.layers = nn.ModuleList(nn.LazyLinear(8) for _ in self.rates)
        self.large = nn.Linear(10**6, 10**6)
        self.tables = [torch.ones(8)]

    def forward(self, x: Tensor) -> Tensor:
        for layer, rate in zip(self.layers, self.rates, strict=True):
            x = nn.functional.dropout(layer(x) * TABLE + self.tables[0], rate)
        return x * TABLE.sum().item()


def test_constants_lazy_modules_and_values_in_a_constructor_are_counted() -> None:
    state = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counted = vflops.count(Constants, torch.zeros(2, 8))
        assert counted.forward == 3 * 2 * 2 * 8 * 8
        lazy = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.LazyLinear(3))
        assert vflops.count(lazy, torch.zeros(2, 8)).forward == 2 * 2 * (8 * 5 + 5 * 3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(nn.parameter.is_lazy(parameter) for parameter in lazy.parameters())


def test_compiled_modules_are_counted_as_written() -> None:
    compiled: Any = torch.compile(nn.Linear(8, 8))
    model = nn.Sequential(compiled, nn.Linear(8, 4))
    model[1].compile()
    assert vflops.count(model, torch.zeros(2, 8)).forward == 2 * 2 * (8 * 8 + 8 * 4)
    assert hasattr(model[0], "_orig_mod")
    names = {row["name"] for row in vflops.count(model, torch.zeros(2, 8)).by_layer()}
    assert names == {"0", "1"}


def test_flex_attention_is_refused_with_what_to_count_instead() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    class Flexible(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return flex_attention(x, x, x)

    with pytest.raises(vflops.VflopsError, match="flex_attention, which needs a real") as caught:
        vflops.count(Flexible(), torch.zeros(2, 1, 128, 8))
    assert "scaled_dot_product_attention" in str(caught.value.hint)


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a lock cannot be copied")


@pytest.mark.parametrize(
    ("model", "inputs", "message", "hint"),
    [
        (nn.Linear(3, 2), torch.zeros(4, 5), "does not run on an input of 5", "the batch first"),
        (nn.Linear(3, 2), torch.zeros(()), "no common batch size .*: ()", "the batch first in"),
        (nn.Bilinear(3, 3, 2), [torch.zeros(4, 3), torch.zeros(5, 3)], ".*4, 3.*5, 3", ""),
        (nn.Linear(3, 2), torch.zeros(0, 3), "no common batch size", ""),
        (nn.Linear(3, 2), [], "inputs contain no tensor: none", "forward takes"),
        (nn.Linear(3, 2), [[1.0, 2.0]], r"contain no tensor: \[1.0, 2.0\]", "one of them a torch"),
        (nn.Linear(3, 2), {"input": 7}, "contain no tensor: 7", "one of them a torch"),
        (nn.Linear(3, 2), None, "contain no tensor: None", "one of them a torch"),
        ("resnet50", torch.zeros(1, 3), "model is 'resnet50', expected a torch", "a function"),
        (lambda: "x", torch.zeros(1, 3), "returned str, expected a torch.nn.Module", "build"),
        (nn.Linear, torch.zeros(1, 3), "missing 2 required", "without arguments"),
        (Uncopied(3, 2), torch.zeros(1, 3), "Uncopied cannot be copied: TypeError: a lock", "rem"),
    ],
)
def test_what_cannot_be_counted_is_said_with_the_remedy(
    model: Any, inputs: Any, message: str, hint: str
) -> None:
    with pytest.raises(vflops.VflopsError, match=message) as caught:
        vflops.count(model, inputs)
    assert hint in str(caught.value.hint)


def test_unknown_rules_are_refused_with_a_suggestion() -> None:
    with pytest.raises(vflops.VflopsError, match="unknown counting convention 'excuted'") as caught:
        vflops.count(nn.Linear(3, 2), torch.zeros(1, 3), rules="excuted")
    assert "executed" in str(caught.value.hint)


def test_an_instance_with_a_scripted_module_is_refused_with_a_remedy() -> None:
    model = nn.Sequential(nn.Linear(8, 8), torch.jit.script(nn.Linear(8, 8)))
    with pytest.raises(vflops.VflopsError, match=r"1 was made by torch\.jit\.script") as error:
        vflops.count(model, torch.zeros(4, 8))
    assert "before torch.jit.script" in str(error.value.hint)
