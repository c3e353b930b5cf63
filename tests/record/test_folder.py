"""The run folder: chained events, torn lines, newer schemas, and folders that are not runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import vflops
from vflops.config.profiles import tiny
from vflops.errors import FolderError, RunFailed
from vflops.record.folder import RunFolder, RunRecord, latest
from vflops.record.formats.job import DataFacts, Goal, JobRecord
from vflops.record.formats.job_events import JobRearranged
from vflops.record.log.events import Event, EventWriter, Log, read_log


def log_file(folder: RunFolder, attempt: int = 0) -> Path:
    return folder.path / "jobs" / "0" / str(attempt) / "events.jsonl"


def test_a_run_is_read_as_it_was_written(run_folder: RunFolder) -> None:
    again = RunFolder.open(run_folder.path)
    assert again.record == run_folder.record
    assert again.history().state.complete
    assert [e.kind for e in again.history().logs[0].events][:3] == ["start", "described", "counted"]


def test_every_line_is_chained_to_the_one_before(run_folder: RunFolder) -> None:
    [log] = run_folder.history().logs
    assert log.faults == ()
    assert log.torn is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], ":3: does not follow"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], ":1: does not follow"),
        (lambda lines: [lines[0].replace(b"suite", b"other"), *lines[1:]], ":2: does not follow"),
        (lambda lines: [lines[0], b"{broken", *lines[2:]], ":2: not an event"),
    ],
    ids=["dropped", "reordered", "edited", "damaged"],
)
def test_a_changed_log_is_found(run_folder: RunFolder, change: object, fault: str) -> None:
    path = log_file(run_folder)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join(change(lines)) + b"\n")  # type: ignore[operator]
    [log] = run_folder.history().logs
    assert fault in log.faults[0]


def test_an_edited_run_json_breaks_the_chain(run_folder: RunFolder) -> None:
    path = run_folder.path / "run.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    [log] = RunFolder.open(run_folder.path).history().logs
    assert ":1: does not follow" in log.faults[0]


def test_a_torn_last_line_is_skipped_and_reported(run_folder: RunFolder) -> None:
    path = log_file(run_folder)
    path.write_bytes(path.read_bytes()[:-20])
    [log] = run_folder.history().logs
    assert log.torn == f"{path}:{len(log.events) + 1}"
    assert log.faults == ()
    state = run_folder.history().state
    assert not state.complete
    assert "stopped after 'load'" in str(state.reason)


def test_a_second_attempt_gets_its_own_log(run_folder: RunFolder) -> None:
    with run_folder.start_attempt(job=0) as events:
        events.write("start")
    assert log_file(run_folder, attempt=1).exists()
    assert not run_folder.history().state.complete
    assert len(run_folder.history().events("start")) == 2


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "micro", tiny())
    assert folder.history().state.reason == "no job was started"
    with folder.start_attempt(job=0) as events:
        events.write("failed", message="the device was lost")
    assert folder.history().state.reason == "it failed: the device was lost"


def test_a_rank_reads_only_the_logs_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path, "suite", tiny())
    with folder.start_attempt(job=0) as events:
        events.write("start")
        for ranks in (2, 3):
            change = JobRearranged(job=7, ranks=ranks, settings={"a": ranks}, changes=())
            events.write("job-rearranged", **change.model_dump(mode="json"))
    for job in range(1, 65):
        with folder.start_attempt(job) as events:
            events.write("start")
        job_record(job).write(folder.job_file(job))
    folder.pass_on_changes()
    opened: list[Path] = []
    monkeypatch.setattr("vflops.record.folder.read_log", counting(opened))
    assert folder.effective_job(7).ranks == 3
    assert folder.effective_job(7).settings == {"a": 3}
    assert folder.effective_job(8) == job_record(8)
    assert opened == []
    assert folder.history(7).events("start")
    assert not folder.ended(7)
    assert opened == [folder.attempt_folder(7, 0) / "events.jsonl"]


def counting(opened: list[Path]) -> Callable[[Path, str, type[Event]], Log]:
    """Return a ``read_log`` that notes which files it opens."""

    def read(path: Path, anchor: str, event_type: type[Event]) -> Log:
        opened.append(path)
        return read_log(path, anchor, event_type)

    return read


def job_record(job: int) -> JobRecord:
    return JobRecord(
        job=job,
        workload="suite",
        repeat=0,
        seed=1,
        ranks=1,
        goal=Goal(quality="accuracy", better="higher", target=0.5, exponent=1),
        settings={"a": 1},
        data=DataFacts(path="data", synthetic=True, fingerprint="", train=1, validation=1),
    )


def test_a_newer_schema_is_named_with_a_hint(run_folder: RunFolder) -> None:
    path = run_folder.path / "run.json"
    record = {**json.loads(path.read_text()), "schema": "vflops.run/7"}
    path.write_text(json.dumps({**record, "versions": {"vflops": "0.9.1"}, "unknown": 1}))
    with pytest.raises(FolderError, match=r"newer vflops, 0\.9\.1: .*vflops.run/7") as caught:
        RunFolder.open(run_folder.path)
    assert (
        f"vflops {vflops.__version__} reads up to vflops.run/{RunRecord.schema_version}"
        in caught.value.message
    )
    assert caught.value.hint == "upgrade: pip install 'vflops>=0.9.1'"


@pytest.mark.parametrize("versions", [None, "0.9", {"vflops": None}, {"vflops": "1'; rm x"}])
def test_a_newer_schema_is_refused_if_its_writer_is_not_known(
    run_folder: RunFolder, versions: object
) -> None:
    path = run_folder.path / "run.json"
    path.write_text(json.dumps({"schema": "vflops.run/7", "versions": versions}))
    with pytest.raises(FolderError, match="newer vflops: its schema") as caught:
        RunFolder.open(run_folder.path)
    assert caught.value.hint == "upgrade: pip install -U vflops"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "expected a JSON object"),
        ('{"schema": "other/1"}', "is not a vflops.run file"),
        ('{"schema": "vflops.run/1"}', "does not match its schema"),
        ('{"schema": "vflops.run/0"}', "is not a vflops.run file"),
        ('{"schema": "vflops.run/' + "9" * 5000 + '"}', "is not a vflops.run file"),
        ("\xff", "is not"),
    ],
)
def test_an_invalid_run_json_is_one_clear_line(
    run_folder: RunFolder, text: str, message: str
) -> None:
    (run_folder.path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(FolderError, match=message):
        RunFolder.open(run_folder.path)


def test_a_folder_that_is_not_a_run_points_to_the_runs_inside(run_folder: RunFolder) -> None:
    with pytest.raises(FolderError, match="is not a run folder") as caught:
        RunFolder.open(run_folder.path.parent)
    assert str(run_folder.path) in str(caught.value.hint)
    with pytest.raises(FolderError, match="does not exist"):
        RunFolder.open(run_folder.path / "nowhere")


def test_the_latest_run_is_the_newest(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-micro-aaaaaa", "20270101T000000Z-micro-aaaaaa", "notes"):
        (tmp_path / name).mkdir()
    for name in ("20260101T000000Z-micro-aaaaaa", "20270101T000000Z-micro-aaaaaa"):
        (tmp_path / name / "run.json").write_text("{}")
    assert latest(tmp_path) == tmp_path / "20270101T000000Z-micro-aaaaaa"


def test_unknown_fields_are_refused_not_ignored(run_folder: RunFolder) -> None:
    path = run_folder.path / "run.json"
    data = json.loads(path.read_text())
    data["sede"] = 2
    path.write_text(json.dumps(data))
    with pytest.raises(FolderError, match="sede"):
        RunRecord.read(path)


def test_a_log_on_a_full_disk_fails_once_and_in_plain_words(small_disk: Path) -> None:
    log = EventWriter(small_disk / "events.jsonl", "anchor")
    with pytest.raises(RunFailed, match=r"No space left .* needed, .* free in "), log:
        while True:
            log.write("note", text="x" * 100_000, sync=False)
