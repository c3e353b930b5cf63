"""The work per job does not depend on the number of jobs: files and parses are counted."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_reads import bytes_opened, counted_opens
from tests.support.large_ensembles import large_ensemble
from tests.support.trained_runs import course
from vflops.cli.terminal import run_display
from vflops.launch import agent, rank_completion
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder
from vflops.record.formats import node
from vflops.record.formats.job_events import JobRearranged
from vflops.record.readout.contents import Contents
from vflops.results import many_trainings
from vflops.results.check.checking import check
from vflops.results.evidence.evidence_names import listing
from vflops.results.score import training_score
from vflops.results.score.scoring import score
from vflops.results.task import closed_tasks
from vflops.run import jobs, pipeline
from vflops.run.observer import RunObserver
from vflops.train import rank

MODELS = (20, 40, 80)
"""With the same number of digits, so that the same text has the same size."""


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, RunFolder]]:
    """Runs that tests only read, except for their results."""
    parent = tmp_path_factory.mktemp("ensembles")
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield {
            models: large_ensemble(parent / str(models), monkeypatch, models) for models in MODELS
        }


def copied(folder: RunFolder, parent: Path) -> RunFolder:
    """Return a copy that a test may write to."""
    return RunFolder.open(Path(shutil.copytree(folder.path, parent / folder.path.name)))


def linear(counts: dict[int, int]) -> bool:
    """Whether the count grows by the same number with each model."""
    small, middle, large = (counts[models] for models in MODELS)
    return large - middle == 2 * (middle - small)


def run_agent_and_rank(folder: RunFolder, job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an agent, and its rank in this process, with a workload that trains nothing."""

    class NoSignals:
        signal = None

        def set_unsaved_work(self, unsaved: bool) -> None: ...

    def run_rank(folder: RunFolder, record: Any, *others: Any) -> None:
        attempt = folder.claim_attempt(record.job)
        for other in range(1, record.ranks):
            rank_completion.complete(folder.attempt_folder(record.job, attempt), other)
        assert rank.main(str(folder.path), str(record.job), str(attempt)) == 0

    monkeypatch.setattr(agent, "run_job", run_rank)
    monkeypatch.setattr(rank, "StopRequest", NoSignals)
    monkeypatch.setattr(rank, "die_with", lambda parent: None)
    monkeypatch.setattr(rank, "import_object", lambda name: lambda context: None)
    monkeypatch.setenv("VFLOPS_LAUNCHER", "1")
    monkeypatch.setenv("RANK", "0")
    assert agent.main(str(folder.path), str(job)) == 0


def test_an_agent_and_its_rank_read_as_many_bytes_of_a_small_run_as_of_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, names = [], []
    for models in MODELS[:2]:
        folder = large_ensemble(tmp_path / str(models), monkeypatch, models, ended=False)
        with folder.start_attempt(7) as log:  # a job that was killed
            for kind, data in course(0.3)[:3]:
                log.write(kind, **data)
        change = JobRearranged(job=7, ranks=3, settings={"train": {}}, changes=("ranks",))
        with folder.start_attempt(0) as log:
            log.write("job-rearranged", **change.model_dump(mode="json"))
        folder.pass_on_changes()
        with counted_opens(folder.path) as opened:
            run_agent_and_rank(folder, 7, monkeypatch)
        before = {path: times for path, times in opened.items() if "/2/" not in str(path)}
        names.append({str(path.relative_to(folder.path)): times for path, times in before.items()})
        read.append(bytes_opened(Counter(before)))
    assert read[0] == read[1] > 0
    assert names[0] == names[1]
    assert all(not name.startswith("jobs/") or name.startswith("jobs/7/") for name in names[0])


def test_a_resumed_run_passes_changed_settings_on_to_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = large_ensemble(tmp_path, monkeypatch, 2, ended=False)
    change = JobRearranged(job=2, ranks=3, settings={"train": {}}, changes=("ranks",))
    monkeypatch.setattr(pipeline, "_steps", lambda *arguments, **options: None)
    pipeline._attempt(folder, RunObserver(), None, [change])
    assert [folder.effective_job(job).ranks for job in (1, 2)] == [2, 3]
    assert not any("rearranged" in name for name in listing(folder.path).files)  # no evidence


def test_score_check_and_report_open_each_file_of_a_job_a_fixed_number_of_times(
    ensembles: dict[int, RunFolder],
) -> None:
    opens = {}
    for models, folder in ensembles.items():
        contents = Contents(folder)
        with counted_opens(folder.path) as opened:
            contents.once(score)
            contents.once(check)
            write_report(contents)
        opens[models] = opened
        logs = [opened[folder.attempt_folder(job, 0) / "events.jsonl"] for job in (1, models)]
        assert logs == [2, 2]  # it is parsed once, and hashed once
        assert opened[folder.attempt_folder(models, 0) / "node-0.json"] == 2
    # The examples of the report are read once more; there is a fixed number of them.
    many = {models: opened.total() for models, opened in opens.items()}
    assert linear(many)


def test_resuming_and_attaching_read_the_log_of_the_run_a_fixed_number_of_times(
    ensembles: dict[int, RunFolder], tmp_path: Path
) -> None:
    reads = []
    for original in ensembles.values():
        folder = copied(original, tmp_path)
        with folder.start_attempt(0) as events, counted_opens(folder.path) as opened:
            records = jobs.plan(folder, events, None, lambda text, done, whole: None)
        logs = [path for path in opened if path.parts[-3:-1] == ("0", "0")]
        assert len(records) == len(folder.history().jobs) - 1
        reads.append([opened[path] for path in logs])
        assert opened[folder.attempt_folder(1, 0) / "events.jsonl"] == 1
    assert reads[0] == reads[1] == reads[2] == [2]  # parsed once, and hashed once


def test_facts_of_nodes_counts_and_tasks_are_computed_once_for_all_jobs(
    ensembles: dict[int, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counting(owner: Any, name: str) -> None:
        called = getattr(owner, name)

        def count(*arguments: Any) -> Any:
            calls[name] += 1
            return called(*arguments)

        monkeypatch.setattr(owner, name, count)

    counting(training_score, "work_score")
    counting(closed_tasks, "job_task")
    parsed = Counter[int]()
    facts: set[int] = set()
    for models, folder in ensembles.items():
        contents = Contents(folder)
        contents.once(score)
        contents.once(check)
        parsed[models] = len(contents.nodes_of._records)
        facts |= {id(record.facts[0]) for record in contents.nodes_of._records.values()}
    assert calls == {"work_score": len(MODELS), "job_task": len(MODELS)}
    assert parsed == {models: models for models in MODELS}
    assert len(facts) == 1  # equal facts are the same object


def test_changed_facts_of_one_node_are_not_taken_for_those_of_another(
    ensembles: dict[int, RunFolder], tmp_path: Path
) -> None:
    folder = copied(ensembles[20], tmp_path)
    path = node.node_file(folder.attempt_folder(3, 0), 0)
    record = node.NodeRecord.read(path)
    other = record.facts[0].model_copy(update={"value": "Other CPU"})
    record.model_copy(update={"facts": (other,)}).write(path)
    read = node.NodeReader()
    machines = [read(folder.attempt_folder(job, 0))[0].machine for job in (2, 3, 4)]
    assert machines == ["Test CPU", "Other CPU", "Test CPU"]


def test_a_report_of_many_models_shows_distributions_and_few_rows(
    ensembles: dict[int, RunFolder],
) -> None:
    rows = []
    for folder in ensembles.values():
        write_report(Contents(folder))
        page = folder.report_file.read_text()
        rows.append(page.count("<tr"))
        assert 1 < len(set(re.findall(r"seed \d+", page))) <= 8  # those shown in detail
        assert "<h3>Distribution</h3>" in page
        assert "training-0-histograms" in page
    assert max(rows) - min(rows) <= many_trainings.MANY
    shown = re.search(r"(\d+) of 80 jobs: those that did not finish", page)
    assert shown and int(shown[1]) <= many_trainings.MANY
    assert "outliers in top-1 accuracy: job 80 0.2" in page


def test_the_terminal_summarises_many_models(
    ensembles: dict[int, RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for folder in ensembles.values():
        Contents(folder).once(score).write(folder.score_file)
        run_display._print_results(folder)
        out = capsys.readouterr().out
        assert "model 1 " not in out
        assert "outliers in top-1 accuracy: job" in out
        lines.append(len(out.splitlines()))
    assert lines[0] == lines[1] == lines[2] < 20
