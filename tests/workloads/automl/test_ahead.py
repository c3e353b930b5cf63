"""What is built and compiled ahead of its turn: never waited for without end, never in the way."""

from __future__ import annotations

import math
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.automl_parts import candidate, new_run, trained, turn, write_event
from vflops.errors import FolderError
from vflops.workloads.automl import network_builder
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.compile_ahead import CompileAhead
from vflops.workloads.automl.network_builder import BuildAhead, NetworkBuilder
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.shared_results import SharedResults


def deadline(left_s: float = 60) -> Deadline:
    return Deadline(SimpleNamespace(signal=None), time.monotonic() + left_s)


class Shelf:
    """Stands for the builder and its buffer."""

    def __init__(self, *have: Turn) -> None:
        self.have, self.buffer = set(have), self
        self.gate, self.building = threading.Event(), threading.Event()
        self.gate.set()

    def get(self, at: Turn) -> Turn | None:
        return at if at in self.have else None

    def network(self, at: Turn) -> str:
        self.building.set()
        self.gate.wait(10)
        return f"network of {at.name}"


def ahead(shelf: Shelf, left_s: float = 60) -> tuple[BuildAhead, list[Turn]]:
    told: list[Turn] = []
    return BuildAhead(shelf, told.append, deadline(left_s)), told  # type: ignore[arg-type]


def taken(made: BuildAhead, at: Turn, shelf: Shelf) -> Any:
    assert shelf.building.wait(10)
    return made.take(at)


def test_what_was_begun_is_taken_once() -> None:
    shelf = Shelf(turn(1, 0))
    made, told = ahead(shelf)
    made.begin(turn(1, 0))
    assert taken(made, turn(1, 0), shelf) == "network of r00001-w00000" and told == [turn(1, 0)]
    assert made.take(turn(1, 0)) is None
    made.close()


def test_a_turn_that_never_comes_is_in_nobodys_way() -> None:
    """A worker that comes back joins the others some rounds later."""
    shelf = Shelf(turn(5, 0), turn(6, 0))
    made, told = ahead(shelf)
    made.begin(turn(1, 0))
    assert made.take(turn(1, 0)) is None  # it has not found its candidate
    made.begin(turn(2, 0))
    assert made.take(turn(5, 0)) is None
    made.begin(turn(3, 0))
    made.begin(turn(6, 0))
    assert taken(made, turn(6, 0), shelf) == "network of r00006-w00000" and told == [turn(6, 0)]
    made.close()


def test_building_is_not_waited_for_beyond_the_end_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = Shelf(turn(1, 0))
    shelf.gate.clear()
    made, _ = ahead(shelf, left_s=0.05)
    made.begin(turn(1, 0))
    began_s = time.monotonic()
    assert taken(made, turn(1, 0), shelf) is None
    assert time.monotonic() - began_s < 5
    shelf.gate.set()
    made.close()


def test_a_parent_whose_result_cannot_be_read_is_an_error_of_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run(tmp_path)
    buffer, parent = CandidateBuffer(folder.path), turn(0, 0)
    weights: Any = SimpleNamespace(has=lambda name: True, load=lambda *_: None)
    builder = NetworkBuilder(buffer, SharedResults(folder, {0: 1}), weights, seed=1, inherit=True)
    buffer.put(candidate(parent))
    child = candidate(turn(2, 0), parent=parent.name)
    with folder.start_attempt(job=1) as log:
        log.write("candidate", candidate=parent.name)
        log.write("candidate", candidate="r00001-w00000")  # the line between was damaged
        with pytest.raises(FolderError, match="result of its parent r00000-w00000 is not in"):
            builder.network(child)
        log.write("candidate", candidate=parent.name)  # it may still come, but not for ever
        monkeypatch.setattr(network_builder, "_VISIBLE_S", 0.01)
        with pytest.raises(FolderError, match="is not in any worker's log"):
            builder.network(child)
        write_event(log, "candidate-trained", trained(parent.name, 0.5))
    assert isinstance(builder.network(child), torch.nn.Module)


class FakeProcess:
    """Compiles until a test says that it is ready."""

    def __init__(self) -> None:
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            assert timeout is not None, "it may never end"
            time.sleep(0.01)
            raise subprocess.TimeoutExpired("compiling", timeout)
        return self.returncode


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeProcess]:
    """The processes that were started, by candidate."""
    found: dict[str, FakeProcess] = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 40, 1 << 40))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 1 << 30)

    def start(words: list[str], **_: Any) -> FakeProcess:
        return found.setdefault(words[-2], FakeProcess())

    monkeypatch.setattr(subprocess, "Popen", start)
    return found


def compiler(folder: Path, left_s: float = 60) -> CompileAhead:
    attempt = folder / "jobs" / "1" / "0"
    attempt.mkdir(parents=True)
    context: Any = SimpleNamespace(attempt=attempt, local_rank=0, record=SimpleNamespace(job=1))
    return CompileAhead(context, torch.device("cuda"), deadline(left_s))


def test_a_candidate_is_compiled_and_taken(tmp_path: Path, started: Any) -> None:
    made = compiler(tmp_path)
    made.begin(turn(1, 0))
    elapsed_s = made.elapsed_s(turn(1, 0))
    assert elapsed_s is not None and elapsed_s < 10
    started["r00001-w00000"].returncode = 0
    assert made.elapsed_s(turn(1, 0)) == math.inf
    made.finish(turn(1, 0), wanted=True)
    assert made.elapsed_s(turn(1, 0)) is None


def test_what_was_missed_ends_and_the_next_one_is_compiled(tmp_path: Path, started: Any) -> None:
    made = compiler(tmp_path)
    made.finish(turn(1, 0), wanted=False)  # it trains before anybody began to compile it
    made.begin(turn(1, 0))
    assert started == {}
    made.begin(turn(2, 0))  # it is passed
    made.begin(turn(4, 0))
    assert started["r00002-w00000"].returncode == -9
    assert made.elapsed_s(turn(4, 0)) is not None
    assert made.elapsed_s(turn(5, 0)) is None and started["r00004-w00000"].returncode == -9
    made.finish(turn(5, 0), wanted=True)
    made.begin(turn(6, 0))
    made.close()
    assert started["r00006-w00000"].returncode == -9
    made.begin(turn(7, 0))
    assert "r00007-w00000" not in started


def test_compiling_is_not_waited_for_beyond_the_end_of_the_time(
    tmp_path: Path, started: Any
) -> None:
    made = compiler(tmp_path, left_s=0.05)
    made.begin(turn(1, 0))
    made.finish(turn(1, 0), wanted=True)
    assert started["r00001-w00000"].returncode == -9


def test_pauses_grow_with_the_time_waited() -> None:
    pause = Backoff()
    assert pause.next_s == 0.05
    pause._began_s -= 2
    assert pause.next_s == pytest.approx(0.5, rel=0.1)
    pause._began_s -= 60
    assert pause.next_s == 1.0
