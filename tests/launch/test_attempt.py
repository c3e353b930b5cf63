"""Signals that ask a job to stop, and ranks that die."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vflops.errors import RestartNeeded, RunFailed
from vflops.interruption import SignalCounter
from vflops.launch import attempt
from vflops.launch.hang_watch import STOPPED, HangWatch, RankHung
from vflops.launch.heartbeat import HeartbeatBoard
from vflops.launch.local.processes import LocalRanks
from vflops.launch.node_group import SINGLE_NODE
from vflops.launch.rank_failures import RankFailure, restart_needed, root_cause
from vflops.record.files import atomic
from vflops.record.log.tail import Listener, Tail


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


def watch(
    ranks: LocalRanks,
    folder: Path,
    listen: Listener,
    floor_s: float = 0.0,
    restarts: Callable[[], bool] = lambda: False,
) -> None:
    """Watch ranks as an agent does, on a node with the name n1."""
    board = HeartbeatBoard(range(2))
    hangs = HangWatch(folder, SINGLE_NODE, board, floor_s, "n1")
    report = partial(attempt._report, folder, "n1")
    try:
        with SignalCounter() as stop:
            tail = Tail(folder / "events.jsonl", listen)
            attempt._watch(ranks, stop, tail, listen, report, hangs, restarts)
    finally:
        ranks.kill()
        board.close()


def test_a_rank_that_dies_is_said_while_the_others_are_waited_for(tmp_path: Path) -> None:
    code = "import os, time; os.environ['RANK'] == '1' and os.kill(os.getpid(), 9); time.sleep(30)"
    ranks = LocalRanks([sys.executable, "-c", code], 2, tmp_path, {})
    said: list[str] = []

    def listen(kind: str, data: dict[str, Any]) -> None:
        said.append(f"{kind}: {data['message']}")
        ranks.kill()  # so that this test need not wait for the rest

    watch(ranks, tmp_path, listen)
    (text,) = said
    assert text.startswith("rank-failed: rank 1 was killed by SIGKILL (the kernel")


def test_stopped_ranks_are_noticed_named_and_killed(tmp_path: Path) -> None:
    ranks = LocalRanks([sys.executable, "-c", "import time; time.sleep(60)"], 2, tmp_path, {})
    for pid in ranks.pids().values():
        os.kill(pid, signal.SIGSTOP)
    said: list[str] = []
    watch(ranks, tmp_path, lambda kind, data: said.append(data["message"]), floor_s=0.5)
    (text,) = said
    first, second = text.split("; ")
    assert first.startswith("rank 0 on n1 hangs: no progress for ")
    assert first.endswith(" s in the phase start-up (limit: 10 s), " + STOPPED)
    assert second.startswith("rank 1 on n1 hangs")
    found = attempt._failure(tmp_path, 2, SINGLE_NODE, {0: -9, 1: -9})
    assert isinstance(found, RankHung) and found.message == first
    assert "--set launch.hang_s=" in str(found.hint)


def test_the_rank_that_made_the_others_fail_is_the_cause(tmp_path: Path) -> None:
    """The first rank loses its connection; the second one dies with last words."""
    code = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    time.sleep(0.1)\n"
        "    sys.exit(3)\n"
        "print('first\\n\\nthe table is broken', file=sys.stderr, flush=True)\n"
        "os.abort()"
    )
    ranks = LocalRanks([sys.executable, "-c", code], 2, tmp_path, {})
    transport = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection reset by peer"
    RankFailure(0, "lost-peer", transport, "see the traceback", 3, "n1").write(tmp_path)
    watch(ranks, tmp_path, lambda kind, data: None)
    found = attempt._failure(tmp_path, 2, SINGLE_NODE, {0: 3, 1: -6})
    last = "first | the table is broken"
    assert found.message == f"rank 1 on n1 was killed by SIGABRT; its last lines: {last}"
    assert str(tmp_path / "rank-1.log") in str(found.hint)


def test_ranks_that_wait_for_one_that_wants_a_restart_are_ended_soon(tmp_path: Path) -> None:
    code = "import os, sys, time; sys.exit(5) if os.environ['RANK'] == '1' else time.sleep(60)"
    wants = RankFailure(1, "error", "r1 cannot be trained", exit_code=RestartNeeded.exit_code)
    # The second rank of this node; then the same on another node, whose file this one sees.
    for folder, ranks in ((tmp_path / "here", range(2)), (tmp_path / "there", range(1))):
        folder.mkdir()
        wants.write(folder)
        began_s = time.monotonic()
        processes = LocalRanks([sys.executable, "-c", code], 2, folder, {}, ranks)
        watch(processes, folder, lambda *_: None, restarts=partial(restart_needed, folder))
        assert time.monotonic() - began_s < 10
        # The library of communication aborts a process that lost a rank.
        RankFailure(0, "aborted", "was killed by SIGABRT").write(folder)
        found = attempt._failure(folder, 2, SINGLE_NODE, {0: -6})
        assert isinstance(found, RestartNeeded) and found.exit_code == 5


def test_causes_come_before_consequences(tmp_path: Path) -> None:
    lost = "RuntimeError: Connection closed by peer [127.0.0.1]:29500"
    RankFailure(0, "lost-peer", lost).write(tmp_path)
    first = root_cause(tmp_path)
    assert first is not None and first.rank == 0 and first.is_consequence
    # The library of communication aborts a process that lost a rank.
    RankFailure(2, "aborted", "was killed by SIGABRT").write(tmp_path)
    assert [found.rank for found in [root_cause(tmp_path)] if found] == [2]
    # A rank's own error, whatever it mentions.
    own = "RunFailed: Connection reset by peer: NCCL_SOCKET_IFNAME names no interface"
    RankFailure(1, "error", own, node="n2").write(tmp_path)
    assert [found.text for found in [root_cause(tmp_path)] if found] == [f"rank 1 on n2: {own}"]
    RankFailure(3, "killed", "was killed by SIGKILL").write(tmp_path)
    assert [found.rank for found in [root_cause(tmp_path)] if found] == [3]
    RankFailure(4, "hung", "hangs").write(tmp_path)
    assert [found.rank for found in [root_cause(tmp_path)] if found] == [4]


def test_a_rank_without_room_for_its_report_names_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = attempt._failure(tmp_path, 1, SINGLE_NODE, {0: 3})
    assert found.message == "rank 0 ended with code 3"
    assert str(found.hint).endswith(f": vflops resume {tmp_path.parents[2]}")
    monkeypatch.setattr(atomic, "free_b", lambda folder: 4096)
    found = attempt._failure(tmp_path, 1, SINGLE_NODE, {0: 3})
    assert isinstance(found, RunFailed)
    assert f"No space left on device (4.10 kB free in {tmp_path})" in found.message
