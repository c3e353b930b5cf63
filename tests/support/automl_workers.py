"""Workers of a search without agents, which are cheap to kill and restart."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.automl_runs import SMALL
from tests.support.programs import Program, start
from vflops.config.profiles import for_single_workload
from vflops.config.settings import Settings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobPlanned
from vflops.run import jobs as training
from vflops.workloads.automl.replay import SearchLedger, write_ledger
from vflops.workloads.contract.run_settings import load, profile

_RANK = Path(__file__).with_name("deadly_rank.py")


def planned(folder: Path, *settings: str, of_profile: str = "tiny") -> RunFolder:
    """Return the run folder of a search whose workers have not begun."""
    base = for_single_workload(profile(of_profile, ["automl"]))
    return _planned(folder, load(base, None, [*SMALL, *settings]))


def planned_replay(folder: Path, ledger: Path) -> RunFolder:
    """Return the run folder of a replay by one worker that has not begun."""
    found = SearchLedger.find(ledger)
    settings = found.replay_settings(ledger, {"search.workers": 1}, ["micro.benchmarks=[]"])
    return _planned(folder, settings)


def _planned(parent: Path, settings: Settings) -> RunFolder:
    prepared = training.prepare(settings, lambda *_: None)
    folder = RunFolder.create(parent / "runs", "automl", settings)
    with folder.start_attempt(job=0) as events:
        training.plan(folder, events, prepared, lambda *_: None)
    return folder


def begun(folder: RunFolder, job: int = 1, die: str = "") -> list[Program]:
    """Start the ranks of a new attempt of a worker; for ``die`` see ``deadly_rank``."""
    number, ranks = folder.claim_attempt(job), JobRecord.read(folder.job_file(job)).ranks
    attempt = folder.attempt_folder(job, number)
    words = [str(_RANK), str(folder.path), str(job), str(number)]
    own = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "DIE": die}
    return [
        start(
            words,
            folder.path,
            {**os.environ, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            attempt / f"rank-{rank}.log",
        )
        for rank in range(ranks)
    ]


def worked(folder: RunFolder, *jobs: int, die: str = "", code: int = 0) -> RunFolder:
    """Wait until the workers of these jobs, by default job 1, have ended as expected."""
    started = [begun(folder, job, die) for job in jobs or (1,)]
    for process in (rank for ranks in started for rank in ranks):
        found = process.wait(timeout=120)
        logs = [log.read_text()[-1500:] for log in folder.path.glob("jobs/*/*/*.log")]
        assert found == code, "\n".join(logs)
    return folder


def concluded(folder: RunFolder) -> RunFolder:
    """Write the ledger as the controller does at the end."""
    told = folder.history().events("job-planned")
    records = [JobRecord.read(folder.job_file(e.payload(JobPlanned).job)) for e in told]
    with folder.start_attempt(job=0) as events:
        written = write_ledger(folder, records)
        events.write("ledger", **written.model_dump(mode="json"))
        events.write("end")
    return folder
