"""Runs one attempt at a job on one node: starts its ranks, watches them, and explains a failure."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from vflops.errors import DiskFull, Interrupted, RestartNeeded, RunFailed, UsageError, VflopsError
from vflops.interruption import SignalCounter
from vflops.launch.hang_watch import STOPPED, HangWatch, RankHung, process_state
from vflops.launch.heartbeat import HeartbeatBoard
from vflops.launch.local.processes import GRACE_S, STORE, LocalRanks
from vflops.launch.node_description import describe_node
from vflops.launch.node_group import SINGLE_NODE, NodeGroup
from vflops.launch.rank_failures import (
    NODE,
    Kind,
    RankFailure,
    is_reported,
    restart_needed,
    root_cause,
)
from vflops.machine.telemetry.sampling import Sampler
from vflops.python_start import module_command
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.node import telemetry_file
from vflops.record.log.tail import Listener, Tail

_POLL_S = 0.1
_PATIENCE_S = 60.0
"""How long ranks may take to write a checkpoint when they are asked to stop."""
_REPORT_S = 3.0
"""How long an agent waits for the reports of other nodes, if its own ranks only lost a rank."""
_STOP_GRACE_S = 2.0
"""How long the other ranks may take to end after one of them was stopped, or wants a restart."""
_RESTART_POLL_S = 1.0
"""How often an agent looks whether a rank of another node wants a restart."""

_PATIENT = (
    "; if the job was healthy but slow, start a new run with a larger --set launch.hang_s=… "
    "(0 turns the watch off)"
)

_STOP_CODES = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGABRT, 1)
"""Exit codes of ranks that are stopped before they have handlers or while they are exiting.

Until a rank has its own session, Ctrl-C reaches it too. Libraries may abort at an exception. Python
exits with 1 if the signal arrives after the rank's program has returned; ranks use other codes.
"""


class TimeLimitNear(Interrupted):
    """The scheduler warned that the time limit is near, and the job was stopped."""


class RankKilled(RunFailed):
    """A signal ended a rank; the job may succeed on another node."""


Prepare = Callable[[Path, int, int], Mapping[str, str]]
"""Called before a node's ranks start, with the attempt's folder, the node's number and the number
of nodes; returns the environment variables of the ranks."""


def run_job(
    folder: RunFolder,
    record: JobRecord,
    on_event: Listener,
    group: NodeGroup = SINGLE_NODE,
    prepare: Prepare = lambda attempt, node, nodes: {},
    node: str = "",
) -> int:
    """Run this node's part of a new attempt at the job, and return the attempt's number.

    The job has ended if its log says so, whatever the exit codes of its ranks: they had written all
    of their files before. Only without that do exit codes count.

    ``node`` is the name of the node in messages; empty for the user's own machine. Raise
    Interrupted if the job was stopped, and another VflopsError if it failed.
    """
    local_ranks = group.share(record.ranks)
    meet = group.lead if group.leads else group.join
    attempt, store = meet(folder, record.job)
    path = folder.attempt_folder(record.job, attempt)
    describe_node(folder, path, group)
    board = HeartbeatBoard(local_ranks)
    environment = {NODE: node, **board.variables, **({} if store is None else {STORE: store})}
    environment |= prepare(path, group.node, group.nodes)
    command = module_command("vflops.train.rank", folder.path, record.job, attempt)
    settings = folder.record.settings
    interval_s = settings.telemetry.interval_s
    # Ranks that share a device wait for each other: one may be silent while all others compute.
    sharing = len(local_ranks) if settings.launch.rehearse else 1
    hangs = HangWatch(path, group, board, settings.launch.hang_s * sharing, node)
    tail = Tail(path / "events.jsonl", on_event)
    telemetry = telemetry_file(path, group.node)
    used = _used_devices(record, len(local_ranks), settings.launch.gpus_per_rank)
    with (
        Sampler(telemetry, folder.path, interval_s, used=used, node=group.node),
        SignalCounter() as stop,
    ):
        ranks = LocalRanks(command, record.ranks, path, environment, local_ranks)
        report = partial(_report, path, node)
        restarts = partial(restart_needed, path) if group.nodes > 1 else lambda: False
        try:
            _watch(ranks, stop, tail, on_event, report, hangs, restarts)
            tail.read()
        finally:
            ranks.kill()
            board.close()
    if store is None:
        with suppress(OSError):
            (path / "store").unlink()
    codes = ranks.poll()
    if not (tail.ended or stop.count) and restart_needed(path):
        raise _failure(path, record.ranks, group, {})
    if tail.ended:
        if stop.count:  # no other job must be started
            raise _stopped(stop)
        return attempt
    stopped = (Interrupted.exit_code, *(_STOP_CODES if stop.count else ()))
    if any(code in stopped for code in codes):
        raise _stopped(stop)
    if failed := ranks.failed():  # ranks whose files are complete have not
        codes = [failed.get(rank) for rank in local_ranks]
        raise _failure(path, record.ranks, group, dict(zip(local_ranks, codes, strict=True)))
    if stop.count:
        raise _stopped(stop)
    return attempt


def _used_devices(record: JobRecord, ranks: int, gpus_per_rank: int | None) -> Sequence[int]:
    """Return CUDA's indices of the accelerators that this node's ranks of a job have."""
    device = str(record.settings["train"]["device"])
    if device == "cpu":
        return ()
    _, _, index = device.partition(":")
    return (int(index),) if index.isdigit() else range(ranks * (gpus_per_rank or 1))


def _watch(
    ranks: LocalRanks,
    stop: SignalCounter,
    tail: Tail,
    on_event: Listener,
    report: Callable[[LocalRanks], None],
    hangs: HangWatch,
    restarts: Callable[[], bool],
) -> None:
    """Wait until the ranks have ended; ask them to stop on a first signal, kill on a second.

    ``report`` writes how ranks have failed. Ranks that are left after the job has ended are killed.
    ``restarts`` says whether a rank of another node ended so that all ranks restart.
    """
    asked_s: float | None = None
    ended_s: float | None = None
    looked_s = time.monotonic()
    while True:
        tail.read()
        if tail.ended:
            ended_s = ended_s or time.monotonic()
            if not ranks.pids() or time.monotonic() - ended_s > GRACE_S or stop.count > 1:
                return  # the caller kills those that are left
            time.sleep(_POLL_S)
            continue
        failed = ranks.failed() if asked_s is None else {}
        if failed:
            report(ranks)
        if failed and len(failed) < len(ranks.poll()):  # said before the others are waited for
            ended = [f"rank {rank} {_how_it_ended(code)}" for rank, code in failed.items()]
            on_event("rank-failed", {"message": "; ".join(ended)})
        restart = set(failed.values()) == {RestartNeeded.exit_code}
        quick = restart or asked_s is not None
        if not (ranks.running(_STOP_GRACE_S) if quick else ranks.running()):
            if failed or ranks.failures:
                report(ranks)
            return
        if stop.count and asked_s is None:
            asked_s = time.monotonic()
            on_event("stopping", {})
            ranks.signal(signal.SIGTERM)
        late = asked_s is not None and time.monotonic() - asked_s > _PATIENCE_S
        if stop.count > 1 or late:
            ranks.kill()
            raise _stopped(stop, " before a checkpoint was written")
        if time.monotonic() - looked_s > _RESTART_POLL_S:
            looked_s = time.monotonic()
            if restarts():  # these ranks wait for one that has ended
                return
        if asked_s is None and (hung := hangs.check(ranks.pids())):
            if len(ranks.poll()) > 1:
                on_event("rank-failed", {"message": "; ".join(rank.text for rank in hung)})
            ranks.kill()
            return
        time.sleep(_POLL_S)


def _stopped(stop: SignalCounter, more: str = "") -> Interrupted:
    return (TimeLimitNear if stop.warned else Interrupted)(f"stopped{stop.why}{more}")


def _report(attempt: Path, node: str, ranks: LocalRanks) -> None:
    """Write how ranks failed that could not do it themselves, and which others are stopped."""
    failures = {
        rank: RankFailure(rank, _kind(code), _how_it_ended(code), node=node)
        for rank, code in (ranks.failures or ranks.failed()).items()
        if code != Interrupted.exit_code
    }
    for rank, pid in ranks.pids().items():  # the others lost their connection to it
        if process_state(pid) == "stopped":
            failures[rank] = RankFailure(rank, "hung", f"hangs: {STOPPED}", node=node)
    for rank, failure in failures.items():
        if not is_reported(attempt, rank):
            with suppress(VflopsError):  # the disk may be full
                failure.write(attempt)


def _failure(path: Path, ranks: int, group: NodeGroup, codes: dict[int, int | None]) -> VflopsError:
    """Return the error of a failed job: that of the rank that made others fail, if any."""
    cause = root_cause(path)
    end_s = time.monotonic() + (_REPORT_S if group.nodes > 1 else 0.0)
    while (cause is None or cause.may_be_consequence) and time.monotonic() < end_s:
        time.sleep(_POLL_S)
        cause = root_cause(path)
    if cause is not None and cause.kind in ("error", "lost-peer"):
        kinds: dict[int, type[VflopsError]] = {
            kind.exit_code: kind for kind in (UsageError, RestartNeeded)
        }
        kind = DiskFull if cause.disk_full else kinds.get(cause.exit_code, RunFailed)
        return kind(cause.message if ranks == 1 else cause.text, hint=cause.hint)
    rank = next(number for number, code in codes.items() if code) if cause is None else cause.rank
    code = codes.get(rank) or 0
    if code > 0 and atomic.is_full(path):  # there was no room for the rank's report
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return atomic.cannot_write(path / f"rank-{rank}.error.json", full)
    again = f"to try again from the last checkpoint: vflops resume {path.parents[2]}"
    see = f"see its output: {path / f'rank-{rank}.log'}; {again}"
    if cause is not None and cause.kind == "hung":
        return RankHung(cause.text, hint=see + _PATIENT)
    killed = (_kind(code) if cause is None else cause.kind) in ("killed", "aborted")
    return (RankKilled if killed else RunFailed)(
        f"rank {rank} {_how_it_ended(code)}" if cause is None else cause.text, hint=see
    )


def _kind(code: int) -> Kind:
    return "aborted" if code == -signal.SIGABRT else "killed" if code < 0 else "ended"


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    memory = " (the kernel does that when memory runs out)" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"
