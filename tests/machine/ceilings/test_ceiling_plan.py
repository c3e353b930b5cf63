from __future__ import annotations

import subprocess
import sys

import pytest

from vflops.config.settings import MicroSettings
from vflops.machine.ceilings.ceiling_plan import plan, time_share_s
from vflops.machine.ceilings.interleave import interleave

ALL = MicroSettings()


@pytest.mark.parametrize("accelerators", [0, 1, 8])
def test_every_benchmark_case_and_precision_is_planned_once(accelerators: int) -> None:
    keys = [item.key for item in plan(ALL, accelerators=accelerators)]
    algorithms = 2 if accelerators > 1 else 0
    assert len(keys) == len(set(keys)) == 7 + 3 * 7 + 2 + 4 + 3 + 2 + algorithms
    assert {benchmark for benchmark, _, _ in keys} == set(ALL.benchmarks)
    assert ("convolution", "weight-gradient", "fp8") in keys


def test_names_given_twice_are_measured_once() -> None:
    settings = MicroSettings(benchmarks=("gemm", "gemm"), precisions=("fp32", "bf16", "fp32"))
    keys = [item.key for item in plan(settings, accelerators=0)]
    assert keys == [("gemm", "peak", "fp32"), ("gemm", "peak", "bf16")]


def test_ranks_are_named_in_the_case() -> None:
    settings = MicroSettings(benchmarks=("all-reduce",), ranks=4)
    assert [item.case for item in plan(settings, accelerators=8)] == [
        "nccl-8-ranks",
        "nccl-8-ranks-ring",
        "nccl-8-ranks-tree",
        "gloo-4-ranks",
    ]
    assert [item.case for item in plan(settings, accelerators=1)] == ["nccl", "gloo-4-ranks"]


def test_modes_are_measured_where_they_are_named() -> None:
    assert "all-reduce-modes" not in ALL.benchmarks
    settings = MicroSettings(benchmarks=("all-reduce-modes",))
    keys = [item.key for item in plan(settings, accelerators=0)]
    assert len(keys) == len(set(keys)) == 3 * 4 + 1
    assert ("all-reduce-modes", "torus-4-ranks", "int8") in keys  # two ranks have no rows
    only = [key for key in keys if key[2] == "powersgd"]
    assert only == [("all-reduce-modes", "all-reduce-4-ranks", "powersgd")]
    six = MicroSettings(benchmarks=("all-reduce-modes",), ranks=6, precisions=("fp32", "fp64"))
    assert [item.key for item in plan(six, accelerators=0)][-1][1:] == ("torus-6-ranks", "fp32")
    assert plan(six, accelerators=8)[0].case == "all-reduce-8-ranks"


def test_units_follow_the_benchmark() -> None:
    units = {item.key[:2]: item.unit for item in plan(ALL, accelerators=0)}
    assert units["gemm", "peak"] == units["convolution", "forward"] == "FLOPS"
    assert units["memory", "triad"] == units["storage", "sequential-read"] == "B/s"
    assert units["storage", "random-read-4k"] == "IO/s"


@pytest.mark.parametrize("budget_s", [5.0, 40.0, 600.0])
def test_shares_add_up_to_the_budget_when_each_is_used(budget_s: float) -> None:
    items = plan(ALL, accelerators=0)
    left_s = budget_s
    for index in range(len(items)):
        share = time_share_s(items[index:], left_s)
        assert share >= 0
        left_s -= share
    assert left_s == pytest.approx(0.0, abs=1e-9)


def test_time_that_an_item_leaves_goes_to_the_others() -> None:
    items = plan(ALL, accelerators=0)
    assert time_share_s(items[5:], 39.0) > time_share_s(items[5:], 30.0) > 0


def test_without_time_the_shares_are_not_negative() -> None:
    assert time_share_s(plan(ALL, accelerators=0), -1.0) == 0.0


@pytest.mark.parametrize(
    "module", ["ceiling_plan", "convolution_shapes", "ceiling_table", "sample_statistics"]
)
def test_planning_and_showing_need_no_torch(module: str) -> None:
    code = f"import sys, vflops.machine.ceilings.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_turns_are_taken_until_all_queues_are_empty() -> None:
    assert list(interleave("ad", "b", "cef")) == list("abcdef")
    assert list(interleave([], [])) == []


def test_a_wide_spread_is_a_caveat_beside_any_other() -> None:
    item = plan(MicroSettings(), accelerators=0)[0]
    steady = item.measurement("cpu", [9.0, 10.0, 11.0])
    unsteady = item.measurement("cpu", [1.0, 10.0, 30.0], caveat="emulated")
    assert steady.caveat is None
    words = "emulated; unsteady: the middle half of its samples spreads over 145.0 %"
    assert unsteady.caveat == words
