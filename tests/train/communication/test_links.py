"""Ranks on separate hosts: the bytes on the wire equal the counted bytes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.links_bench import Host, Ranks, hosts, lacking, missing_tools, train
from tests.support.links_start import Starter
from tests.support.paths import SUPPORT
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Exchanged
from vflops.run import jobs
from vflops.workloads.contract.run_settings import load, profile

GIGABIT = 1e9


@pytest.fixture(scope="module", autouse=True)
def bench() -> None:
    """Skip without network namespaces; in CI a missing package is a failure."""
    if os.environ.get("CI") and (missing := missing_tools()):
        pytest.fail(missing)
    if reason := lacking():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def starter(bench: None) -> Iterator[Starter]:
    """Ranks without their seconds of start."""
    with Starter() as result:
        yield result


def sent(
    directory: Path, places: list[Host], steps: int, starter: Starter, *assignments: str
) -> tuple[int, int]:
    """Return bytes on the wire and counted bytes of a training of ``steps`` steps."""
    sizes = (f"synthetic.train={32 * steps}", "synthetic.validation=32", "train.batch=32")
    training = ("train.epochs=1", "train.warmup_epochs=0", "network.width=32")
    settings = load(
        profile("tiny", ["image-classification"]),
        None,
        ["micro.benchmarks=[]", *sizes, *training, f"train.ranks={len(places)}", *assignments],
    )
    run = RunFolder.create(directory, "image-classification", settings)
    with run.start_attempt(0) as events:
        jobs.plan(run, events, None, lambda what, done, whole: None)
    logs = run.attempt_folder(1, 0)
    logs.mkdir(parents=True)
    before = sum(item.sent_bytes() for item in places)
    train(run.path, 1, 0, places, logs, 29_700, starter=starter).wait(120)
    wire = sum(item.sent_bytes() for item in places) - before
    counted = run.history().events("exchange", job=1)[-1].payload(Exchanged)
    return wire, counted.bytes_near + counted.bytes_far


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_bytes_on_the_wire_are_those_that_were_counted(
    tmp_path: Path, precision: str, starter: Starter
) -> None:
    """By the difference of two trainings: what is sent once, at the start, falls out."""
    options = f"communication.precision={precision}"
    with hosts(2, rate_bits=GIGABIT) as places:
        few = sent(tmp_path / "few", places, 2, starter, options)
        more = sent(tmp_path / "more", places, 12, starter, options)
    wire, counted = more[0] - few[0], more[1] - few[1]
    assert counted > 1e6
    assert wire == pytest.approx(counted, rel=0.05)


def test_a_link_is_as_fast_as_it_is_shaped(tmp_path: Path, starter: Starter) -> None:
    program = SUPPORT / "links_rank.py"
    size, result = 4_000_000, tmp_path / "found.json"
    with hosts(2, rate_bits=GIGABIT / 4) as places:
        words = [sys.executable, str(program), str(size), str(result)]
        store = f"tcp://{places[0].address}:29701"
        Ranks(places, words, tmp_path, store, {}, starter=starter).wait(120)
    taken_s = json.loads(result.read_text())["fp32"]["large_s"]
    assert taken_s > 0.9 * 8 * size / (GIGABIT / 4)
