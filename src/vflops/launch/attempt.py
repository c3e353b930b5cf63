"""One attempt at a training job: its ranks started, watched and, if they fail, explained."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from vflops.errors import Interrupted, RunFailed, UsageError, VflopsError
from vflops.launch.job_script import KILLED
from vflops.launch.local.processes import STORE, LocalRanks
from vflops.launch.node_description import describe_node
from vflops.launch.node_group import ALONE, Team
from vflops.machine.telemetry.sampling import Sampler
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.node import telemetry_file
from vflops.record.log.tail import Listener, Tail

_POLL_S = 0.1
_PATIENCE_S = 60.0
"""How long ranks may take to write a checkpoint when they are told to stop."""

_ONE_SIGNAL_S = 1.0
"""Within this time the same signal of a machine's is the same wish."""

Prepare = Callable[[Path, int, int], Mapping[str, str]]
"""What a node does before its ranks start, in the attempt's folder, as the n-th of some nodes; the
variables that its ranks then have."""


def run_job(
    folder: RunFolder,
    record: JobRecord,
    on_event: Listener,
    team: Team = ALONE,
    prepare: Prepare = lambda place, node, nodes: {},
) -> int:
    """Run this node's part of a new attempt at the job to its end; the attempt's number.

    An error says why it did not come to its end.
    """
    own = team.share(record.ranks)
    meet = team.lead if team.leads else team.join
    attempt, store = meet(folder, record.job)
    place = folder.attempt_folder(record.job, attempt)
    describe_node(folder, place, team)
    environment = {} if store is None else {STORE: store}
    environment |= prepare(place, team.node, team.nodes)
    # -P: a user's queue.py in the folder of the command must not stand in for Python's.
    command = [sys.executable, "-P", "-m", "vflops.train.rank"]
    command += [str(folder.path), str(record.job), str(attempt)]
    interval_s = folder.record.settings.telemetry.interval_s
    tail = Tail(place / "events.jsonl", on_event)
    sampled = telemetry_file(place, team.node)
    with Sampler(sampled, folder.path, interval_s, node=team.node), _Stop() as stop:
        ranks = LocalRanks(command, record.ranks, place, environment, own)
        try:
            _watch(ranks, stop, tail, on_event)
        finally:
            ranks.kill()
    tail.read()
    if store is None:
        with suppress(OSError):
            (place / "store").unlink()
    codes = ranks.poll()
    # A rank that is ending already has no handler any more: the signal ends it.
    stopped = (Interrupted.exit_code, *((-signal.SIGTERM,) if stop.count else ()))
    if any(code in stopped for code in codes):
        raise Interrupted(f"stopped{stop.why}")
    if any(codes):
        raise _failure(place, ranks.first_failed, dict(zip(own, codes, strict=True)))
    if stop.count:  # too late for this job, and no other is begun
        raise Interrupted(f"stopped{stop.why}")
    return attempt


def _watch(ranks: LocalRanks, stop: _Stop, tail: Tail, on_event: Listener) -> None:
    """Until the ranks have ended; a stop is passed on once, a second one ends them at once."""
    told_s: float | None = None
    while ranks.running():
        tail.read()
        if stop.count and told_s is None:
            told_s = time.monotonic()
            on_event("stopping", {})
            ranks.signal(signal.SIGTERM)
        late = told_s is not None and time.monotonic() - told_s > _PATIENCE_S
        if stop.count > 1 or late:
            ranks.kill()
            raise Interrupted(f"stopped{stop.why} before a checkpoint was written")
        time.sleep(_POLL_S)


class _Stop:
    """A context that counts the signals that ask this process to stop."""

    def __init__(self) -> None:
        self.count = 0
        self.why = ""
        self._number, self._at_s = 0, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        # `timeout` and some schedulers send theirs to the process and to its group: that is one.
        again = number == self._number and now_s - self._at_s < _ONE_SIGNAL_S
        self._number, self._at_s = number, now_s
        if again and number != signal.SIGINT:
            return
        self.count += 1
        self.why = f" by {signal.Signals(number).name}"


def _failure(place: Path, first: list[int], codes: dict[int, int | None]) -> VflopsError:
    """Why the job failed: a rank that was killed takes others with it, so it is named first."""
    rank = next((rank for rank in first if (codes[rank] or 0) < 0), None)
    errors = [place / f"rank-{rank}.error.json" for rank in (*first, *codes)]
    found = next((path for path in errors if path.is_file()), None)
    if rank is None and found is not None:
        reason = json.loads(found.read_text(encoding="utf-8"))
        kind = UsageError if reason["exit_code"] == UsageError.exit_code else RunFailed
        return kind(reason["message"], hint=reason["cure"])
    rank = next(each for each, code in codes.items() if code) if rank is None else rank
    code = codes[rank] or 0
    how = f"{KILLED} {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    memory = " (the kernel does that when memory runs out)" if code == -signal.SIGKILL else ""
    return RunFailed(f"rank {rank} {how}{memory}", hint=f"its output: {place / f'rank-{rank}.log'}")
