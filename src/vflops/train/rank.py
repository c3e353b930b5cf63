"""One rank of a job, as a process: ``python -m vflops.train.rank RUN JOB ATTEMPT``.

The process reads ``job.json``, calls the workload's runner and records the outcome. It is killed
when its parent, the launcher, dies.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from vflops.data.staging import read_staged, require_staged, staged_nodes
from vflops.errors import DiskFull, Interrupted, VflopsError
from vflops.extensions import import_object
from vflops.interruption import Signalled, recovered, run_and_end
from vflops.launch.heartbeat import Heartbeat
from vflops.launch.parent_death import die_with
from vflops.launch.rank_completion import complete, forget, wait_for_ranks
from vflops.launch.rank_failures import NODE, Kind, RankFailure
from vflops.record.files.cache import keep_compiled_kernels
from vflops.record.folder import History, RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Checkpointed, Finished
from vflops.train.context import JobContext
from vflops.train.phase_clock import Clock
from vflops.train.signals import StopRequest
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import ENGINE

_COMPLETE_S = 600.0
"""How long the first rank waits for others that have trained with it to write their files."""


def main(run: str, job: str, attempt: str) -> int:
    """Run this rank's part of the job; return the exit code."""
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    heartbeat, stop = Heartbeat(local_rank), StopRequest()
    clock = Clock(heartbeat.beat)
    die_with(int(os.environ["VFLOPS_LAUNCHER"]))
    keep_compiled_kernels()
    folder = RunFolder.open(Path(run))
    record = read_staged(folder.effective_job(int(job)))
    attempt_folder = folder.attempt_folder(int(job), int(attempt))
    history = folder.history(int(job))
    log = folder.log(int(job), int(attempt)) if rank == 0 else nullcontext()
    with log as events:
        context = JobContext(
            record=record,
            rank=rank,
            local_rank=local_rank,
            local_ranks=int(os.environ.get("LOCAL_WORLD_SIZE", record.ranks)),
            attempt=attempt_folder,
            events=events,
            clock=clock,
            stop=stop,
            finished_step=_finished_step(history),
            committed=_committed(history, record),
        )
        try:
            for staged in staged_nodes(attempt_folder):
                context.write_event("staged", staged)
            require_staged(record)
            stop.set_unsaved_work(False)
            spec = workload(record.workload)
            if not (spec.runner == ENGINE or spec.is_search):  # it may work without any rhythm
                heartbeat.close()
            runner = import_object(spec.runner)  # imports torch
            stop.set_unsaved_work(True)  # a runner that only polls
            with recovered():
                runner(context)
            if events is None:
                complete(attempt_folder, rank)
                return 0
            limit_s = _COMPLETE_S if spec.runner == ENGINE or spec.is_search else None
            wait_for_ranks(attempt_folder, record.ranks, limit_s, clock.tick)
            events.write("end")
            forget(attempt_folder, record.ranks)
            return 0
        except (Interrupted, Signalled) as error:
            if events is not None:
                message = error.cause if isinstance(error, Signalled) else error.message
                events.write("stopped", message=message)
            return Interrupted.exit_code
        except VflopsError as error:
            full = isinstance(error, DiskFull)
            _write_error(
                attempt_folder,
                RankFailure(
                    rank, "error", error.message, error.hint, error.exit_code, disk_full=full
                ),
            )
            _abort_groups()
            if events is not None:
                with suppress(VflopsError):  # writing the log may fail for the same reason
                    events.write("failed", message=error.message)
            return error.exit_code
        except Exception as error:  # a bug; stderr goes to the rank's log
            lines = str(error).strip().splitlines() or ["no message"]
            message = f"{type(error).__name__}: {lines[0]}"
            traceback_file = attempt_folder / f"rank-{rank}.log"
            hint = f"see the traceback in {traceback_file}"
            kind: Kind = "lost-peer" if _is_lost_peer(error) else "error"
            _write_error(attempt_folder, RankFailure(rank, kind, message, hint))
            traceback.print_exc()
            _abort_groups()
            if events is not None:
                with suppress(VflopsError):
                    events.write("failed", message=message)
            return 3


def _finished_step(history: History) -> int | None:
    """Return the last step, if an earlier attempt finished training but not the job; else None."""
    finished = history.events("finished")
    return finished[-1].payload(Finished).step if finished else None


def _committed(history: History, record: JobRecord) -> frozenset[tuple[int, str]] | None:
    """Return steps and hashes of the job's checkpoints; None for an audit, which verified its
    own."""
    if record.segment is not None:
        return None
    states = (event.payload(Checkpointed) for event in history.events("checkpoint"))
    return frozenset((state.step, state.sha256) for state in states)


def _write_error(folder: Path, failure: RankFailure) -> None:
    """Write the error to a file for the launcher, or to stderr if the file cannot be written."""
    try:
        replace(failure, node=os.environ.get(NODE, "")).write(folder)
    except VflopsError:
        print(f"{failure.message} ({failure.hint})", file=sys.stderr)


def _is_lost_peer(error: Exception) -> bool:
    """Whether another rank failed before, according to the process groups if there are any."""
    module = sys.modules.get("vflops.train.parallel.group")
    return module is not None and bool(module.is_lost_peer(error))


def _abort_groups() -> None:
    """Abort the process groups if there are any, without importing torch for it."""
    module = sys.modules.get("vflops.train.parallel.group")
    if module is not None:
        module.abort_groups()


if __name__ == "__main__":
    run_and_end(main, *sys.argv[1:4])
