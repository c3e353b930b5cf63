"""Searches end to end, as a user starts them: repeatable, also through deaths of any part."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.automl_runs import essence, rank_of, results, searched, started, wait_until
from tests.support.ensemble_runs import ended, processes_of, wait_for
from tests.support.programs import start
from tests.support.sample_parts import Vflops
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.log.events import Event
from vflops.results.check.findings import Findings
from vflops.results.score.score_file import Score
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_events import TurnPassed
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.automl.worker_history import WorkerHistory

SETTINGS = ("search.candidates=3", "search.tune_from=3", "train.epochs=12")


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two workers, three rounds: the last one is tuned."""
    return searched(tmp_path_factory.mktemp("search"), *SETTINGS, words=("--workers", "2"))


def test_a_search_leaves_a_ledger_and_no_weights_or_checkpoints(search: RunFolder) -> None:
    ledger = SearchLedger.find(search.path)
    assert ledger.left_out == 0 and ledger.workers == 2
    names = [row.candidate.turn.name for row in ledger.candidates]
    assert names == sorted(results(search)) and len(names) == 6
    assert not (search.path / "weights").exists()
    assert not list(search.path.glob("jobs/*/checkpoint/*"))
    assert [row.candidate.tuned for row in ledger.candidates] == [False] * 4 + [True] * 2
    assert search.history().state.complete


def test_workers_have_a_name_each_by_construction(search: RunFolder) -> None:
    records = [JobRecord.read(search.job_file(job)) for job in (1, 2)]
    assert [item.worker.worker for item in records if item.worker] == [0, 1]
    assert {item.seed for item in records} == {1}
    for record in records:
        assert search.job_lock(record.job).exists()  # an agent holds it: a second one is refused


def test_a_search_that_is_slowed_left_killed_and_resumed_is_the_same_search(
    search: RunFolder, tmp_path: Path
) -> None:
    """A worker is slow, the controller dies and another takes over, then everything dies."""
    often = "train.checkpoint_s=0.001"
    first = started(tmp_path, *SETTINGS, often, words=("--workers", "2"))
    folder = wait_for(tmp_path, "worker", 1, 2)
    slow = rank_of(folder, 2)
    slow.suspend()
    first.kill()
    threading.Timer(2.0, slow.resume).start()
    second = start(["-m", "vflops", "attach", str(folder.path)], tmp_path, os.environ)

    def in_the_middle(events: list[Event]) -> bool:
        kinds = [event.kind for event in events]
        third = [at for at, kind in enumerate(kinds) if kind == "candidate"][2:]
        # The event of a checkpoint comes before it is valid, the next event after that.
        saved = len(third) == 1 and "checkpoint" in kinds[third[0] : -1]
        return saved and kinds[-1] in ("checkpoint", "evaluation")

    wait_until(folder, in_the_middle, job=1)
    second.kill()
    for process in processes_of(Path(folder.path.name)):  # agents know it by a relative path
        with suppress(psutil.NoSuchProcess):
            process.kill()
    half = WorkerHistory(folder.job_history(1)).unfinished()
    assert half is not None and half.turn.name == "r00002-w00000"
    resume = start(["-m", "vflops", "resume", str(folder.path)], tmp_path, os.environ)
    assert essence(ended(resume, tmp_path)) == essence(search)
    history = folder.history()
    begun = [event.data["candidate"] for event in history.events("candidate", job=1)]
    assert begun.count("r00002-w00000") == 2 and len(begun) == 4
    assert history.events("resumed", job=1)[0].data["step"] >= 1  # from its checkpoint
    one, two = history.events("worker", job=1)
    assert two.data["left_s"] == pytest.approx(400 - (two.utc_s - one.utc_s), abs=0.5)
    charged = {name: 128 * result.epochs for name, result in results(search).items()}
    stories = SearchHistory([folder.job_history(job) for job in (1, 2)]).candidates
    assert {item.turn.name: item.samples for item in stories} == charged
    (found,) = Score.read(folder.score_file).searches
    assert found.ops == sum(item.ops for item in stories)
    assert found.ops == Score.read(search.score_file).searches[0].ops


def test_a_worker_that_dies_for_good_is_told_and_the_others_come_to_their_end(
    tmp_path: Path,
) -> None:
    settings = ("search.candidates=3", "search.turn_s=2", "bagging.attempts=1")
    process = started(tmp_path, *settings, words=("--workers", "2"))
    folder = wait_for(tmp_path, "candidate", 2)
    rank_of(folder, 2).kill()
    folder = ended(process, tmp_path)  # it meets every rule
    assert sum(name.endswith("w00000") for name in results(folder)) == 3
    passed = sorted((folder.path / "buffer").glob("*-w00001.passed.json"))
    assert [TurnPassed.read(path).by for path in passed] == [0] * len(passed) and passed
    out, _ = process.communicate()
    assert "with 2 workers, 1 of them lost" in out
    verdicts = {finding.rule: finding for finding in Findings.read(folder.findings_file).findings}
    assert verdicts["trained"].verdict == "pass"
    assert "the worker of job 2 was given up after 1 attempt" in verdicts["trained"].evidence
    assert "the worker of job 2 was given up" in folder.report_file.read_text()


def test_a_search_that_was_stopped_can_be_ended_with_what_it_has(
    vflops: Vflops, tmp_path: Path
) -> None:
    process = started(tmp_path, "train.checkpoint_s=0.001")
    folder = wait_for(tmp_path, "candidate-trained", 1)
    refused = vflops("resume", "--end", str(folder.path))
    assert refused.returncode == 2 and "job 1 is still active" in refused.stderr
    process.send_signal(signal.SIGTERM)
    said = process.communicate()
    assert f"vflops resume --end {folder.path.relative_to(tmp_path)}" in "".join(said)
    trained = sorted(results(folder))
    vflops("resume", "--end", str(folder.path))
    assert folder.history().state.complete and sorted(results(folder)) == trained
    ledger = SearchLedger.find(folder.path)
    assert [row.candidate.turn.name for row in ledger.candidates] == trained
    assert ledger.replay_settings(folder.path, {}, ())
    assert all(path.is_file() for path in (*folder.result_files, folder.manifest_file))
    assert not (folder.path / "weights").exists()
    assert not list(folder.path.glob("jobs/*/checkpoint/*"))
    assert Score.read(folder.score_file).searches[0].ending == "stopped"
    failed = [item for item in Findings.read(folder.findings_file).findings if item.failed]
    assert [item.rule for item in failed] == ["trained"]
    assert "it was stopped before its time" in failed[0].evidence
    again = vflops("resume", str(folder.path))
    assert again.returncode == 2 and "there is nothing to resume" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "0"), "search.workers = 0"),
        (("--workers", "-1"), "search.workers = -1"),
        (("--workers", "4096"), "4,096 workers × 1 rank do not fit"),
        (("--for", "soon"), "'soon' is not a duration"),
        (("--for", "0s"), "'0s' is not a duration"),
        (("--for", "999d"), "search.duration_s"),
        (("--models", "2"), "use --workers 2"),
        (("--repeat", "2"), "which a run cannot repeat"),
        (("--set", "target=1.5"), "target = 1.5"),
        (("--set", "search.error=1"), "search.error = 1"),
        (("--set", "search.end=converged"), "least_s 3600 is not less than search.duration_s 8"),
        (("--set", "search.searcher=baysian"), "'bayesian', 'evolution' or 'random'"),
        (("--set", "search.kernels=[3,3]"), "each once"),
        (("--set", "search.batches=[7]", "--ranks", "2"), "search.batches contains 7"),
        (("--set", "search.limits.parameters=100"), "32,844 is more than 100"),
        (("--set", "search.limits.depth=1", "--set", "search.limits.parameters=9"), "depth: "),
    ],
)
def test_what_cannot_be_searched_is_refused_before_there_is_a_folder(
    vflops: Vflops, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = vflops("run", "automl", "--profile", "tiny", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("workload", [("image-classification",), ()])
def test_flags_of_a_search_are_refused_elsewhere(vflops: Vflops, workload: tuple[str, ...]) -> None:
    done = vflops("run", *workload, "--profile", "tiny", "--workers", "2", "--for", "1h30m")
    assert done.returncode == 2
    assert "--workers 2 --for 1h30m only applies to a search" in done.stderr
    assert "run automl --workers 2 --for 1h30m" in done.stderr


def test_a_plan_of_a_search_places_workers_and_promises_no_operations(vflops: Vflops) -> None:
    there = ("--nodes", "2", "--slots", "2")
    done = vflops("plan", "automl", "--profile", "tiny", "--workers", "2", "--ranks", "2", *there)
    assert done.returncode == 0, done.stderr
    assert "2 workers of 2 ranks" in done.stdout
    assert "operations            not known in advance" in done.stdout
    done = vflops("plan", "automl", "--profile", "tiny", "--workers", "5", *there)
    assert done.returncode == 2 and "2 would fit: --workers 2" in done.stderr


def test_the_remedy_for_too_many_workers_also_works_in_the_suite(
    vflops: Vflops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    plan = ("plan", "--profile", "tiny", "--set", "automl.train.device=cpu")
    refused = vflops(*plan, "--set", "automl.search.workers=2")
    assert "2 workers × 1 rank do not fit: there is 1 slot\n" in refused.stderr
    _, _, remedy = refused.stderr.strip().partition("use ")
    assert remedy == "--set automl.search.workers=1"
    assert vflops(*plan, *remedy.split()).returncode == 0
    alone = vflops("run", "automl", *plan[1:3], "--set", "train.device=cpu", "--workers", "2")
    assert alone.stderr.strip().endswith("use --workers 1")
