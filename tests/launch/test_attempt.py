"""Signals that ask a job to stop, and ranks that die."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from vflops.errors import RunFailed
from vflops.interruption import SignalCounter
from vflops.launch import attempt
from vflops.launch.local.processes import LocalRanks
from vflops.record.files import atomic
from vflops.record.log.tail import Tail


def test_a_repeated_sigterm_counts_once() -> None:
    with SignalCounter() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.count == 1
        assert stop.why == " by SIGTERM"


def test_a_second_ctrl_c_counts() -> None:
    with SignalCounter() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.count == 2
        assert stop.why == " by the user"


def test_a_rank_that_dies_is_said_while_the_others_are_waited_for(tmp_path: Path) -> None:
    code = "import os, time; os.environ['RANK'] == '1' and os.kill(os.getpid(), 9); time.sleep(30)"
    ranks = LocalRanks([sys.executable, "-c", code], 2, tmp_path, {})
    said: list[tuple[str, float]] = []

    def listen(kind: str, data: dict[str, Any]) -> None:
        said.append((f"{kind}: {data['message']}", time.monotonic()))
        ranks.kill()  # so that this test need not wait for the rest

    with SignalCounter() as stop:
        attempt._watch(ranks, stop, Tail(tmp_path / "events.jsonl", listen), listen)
    ((text, _),) = said
    assert text.startswith("rank-failed: rank 1 was killed by SIGKILL (the kernel")


def test_a_rank_without_room_for_its_report_names_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attempt._failure(tmp_path, [0], {0: 3})
    assert found.message == "rank 0 ended with code 3"
    assert str(found.hint).endswith(f": vflops resume {tmp_path.parents[2]}")
    monkeypatch.setattr(atomic, "free_b", lambda folder: 4096)
    found = attempt._failure(tmp_path, [0], {0: 3})
    assert isinstance(found, RunFailed)
    assert f"No space left on device (4.10 kB free in {tmp_path})" in found.message
