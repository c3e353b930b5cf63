"""Means over ranks: what they are, and what was sent for them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.paths import SUPPORT
from tests.support.programs import start
from tests.support.shared_device import VARIABLE
from vflops.metrics.traffic import POWERSGD_RANK, POWERSGD_START, bytes_sent, powersgd_elements

PROGRAM = SUPPORT / "average_rank.py"
RANKS, NUMBERS = 4, 1003
MODES = ("all-reduce", "hierarchical", "torus")


def run(folder: Path, ranks: int, part: str, device: str = "cpu") -> Any:
    """Return what rank 0 found; all ranks ended well."""
    words = [str(PROGRAM), str(folder), part]
    processes = [
        start(
            words,
            folder,
            {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), VARIABLE: device},
            log=folder / f"rank-{rank}.log",
        )
        for rank in range(ranks)
    ]
    end_s = time.monotonic() + 60
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes) or time.monotonic() > end_s:
            for process in processes:
                process.kill()
            break
        time.sleep(0.02)
    logs = "\n".join(path.read_text() for path in sorted(folder.glob("rank-*.log")))
    assert [process.wait(5) for process in processes] == [0] * ranks, logs
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Everything that four ranks found."""
    return run(tmp_path_factory.mktemp("ranks"), RANKS, "all")


def gradients() -> torch.Tensor:
    """Of every rank, as the ranks make them."""
    makers = [torch.Generator().manual_seed(rank) for rank in range(RANKS)]
    return torch.stack([torch.randn(NUMBERS, generator=maker) ** 3 for maker in makers])


def bound(mode: str, precision: str) -> float:
    """Return how far a mean may be off: roundings of the largest number, mean over the ranks."""
    largest = float(gradients().abs().amax(1).mean())
    if precision == "int8":
        return (2 if mode == "all-reduce" else 3) * 1.01 * largest / 254
    unit = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}[precision]
    return 2 * RANKS * unit * largest


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("mode", MODES)
def test_every_way_gives_the_mean_within_its_rounding(
    result: Any, mode: str, precision: str
) -> None:
    require_mean(result["ways"][f"{mode} {precision}"], mode, precision)


def require_mean(way: Any, mode: str, precision: str) -> None:
    """Assert that what the ranks found is the mean, rounded as the precision says."""
    assert way["error"] <= bound(mode, precision)
    assert way["differs"] == 0.0  # else the ranks' weights would part
    if precision != "fp32":
        assert way["error"] > bound(mode, "fp32")  # it was sent as it says


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator")
def test_every_way_over_nccl_gives_the_mean_within_its_rounding(tmp_path: Path) -> None:
    for name, way in run(tmp_path, RANKS, "all", "cuda")["ways"].items():
        mode, precision = name.split()
        require_mean(way, mode, precision)


@pytest.mark.parametrize("mode", MODES)
def test_what_int8_leaves_out_comes_later(result: Any, mode: str) -> None:
    """Of many means of the same numbers only what the last one left out is missing."""
    assert result["ways"][f"{mode} int8"]["later"] <= bound(mode, "int8") / 30


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("mode", MODES)
def test_the_bytes_that_were_sent_are_those_of_the_formula(
    result: Any, mode: str, precision: str
) -> None:
    way = result["ways"][f"{mode} {precision}"]
    near = 2 if mode != "all-reduce" else RANKS
    assert way["near"] == near
    formula = bytes_sent(mode, precision, RANKS, near, NUMBERS)
    assert way["sent"] == [formula.near, formula.far]


def test_a_number_that_is_not_finite_is_seen_by_all_and_forgotten(result: Any) -> None:
    assert result["overflow"] == [False, True]


def test_groups_of_ranks_average_apart(result: Any) -> None:
    assert result["halves"] == 0.0


def test_a_ring_crosses_nodes_where_they_meet(result: Any) -> None:
    """Two nodes of two ranks: two of the four edges, 2 · 3/4 · 16 bytes each."""
    assert result["by_node"] == [48, 48]


def test_buckets_of_a_backward_pass_are_averaged(result: Any) -> None:
    errors = {precision: item["error"] for precision, item in result["buckets"].items()}
    # Four sums, each rounded by 6e-8, of numbers that are twice as large as their mean.
    assert max(errors["fp32"], errors["plain"]) < 1e-6
    # Three roundings by at most 1/254 of the largest number, about 6 times the typical one.
    assert 1e-6 < errors["int8"] < 0.1
    assert 1e-6 < errors["powersgd"] < 1.0


def test_an_exchange_reports_what_all_ranks_sent(result: Any) -> None:
    torus, powersgd = result["buckets"]["fp32"], result["buckets"]["powersgd"]
    plain, once = (
        result["buckets"]["plain"],
        bytes_sent("all-reduce", "fp32", RANKS, 4, 4 * 65 * 64),
    )
    assert (plain["bytes_near"], plain["bytes_far"], plain["steps"]) == (once.near, once.far, 1)
    assert plain["algorithm"] == "all-reduce: ring"
    shapes = [(64, 64), (64,)] * 4
    whole = bytes_sent("torus", "fp32", RANKS, 2, 4 * 65 * 64)
    assert (torus["bytes_near"], torus["bytes_far"]) == (12 * whole.near, 12 * whole.far)
    assert torus["steps"] == 12
    assert torus["algorithm"] == "all-gather: ring; all-reduce: ring; all-to-all: pairs"
    numbers = POWERSGD_START * 4 * 65 * 64 + (12 - POWERSGD_START) * powersgd_elements(
        shapes, POWERSGD_RANK
    )
    assert powersgd["bytes_near"] == bytes_sent("all-reduce", "fp32", RANKS, 4, numbers).near
    assert powersgd["bytes_near"] < 0.9 * 12 * bytes_sent("all-reduce", "fp32", 4, 4, 16640).all


@pytest.mark.parametrize("precision", ["int8", "powersgd"])
def test_the_candidates_of_a_search_share_their_groups(result: Any, precision: str) -> None:
    assert result["restarted"][precision] == {"error": 0.0, "same": True, "more_groups": 0}


@pytest.mark.parametrize("precision", ["int8", "powersgd"])
def test_what_is_left_out_follows_the_scale_of_the_loss(result: Any, precision: str) -> None:
    assert result["scaled"][precision] < 1e-5


def test_a_rank_that_is_gone_is_an_error_of_the_backward_pass(tmp_path: Path) -> None:
    seen = run(tmp_path, 2, "die")
    assert "onnection" in seen["words"]
    assert seen["took_s"] < 20
    assert "communication" not in seen["threads"]
