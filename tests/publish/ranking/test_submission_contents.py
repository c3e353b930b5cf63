"""What submissions share is what each of them holds."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranking_runs import submit
from vflops.errors import FolderError
from vflops.publish.ranking.judge import NO_KEYS
from vflops.publish.ranking.reader_processes import read_chunk
from vflops.publish.ranking.submission_contents import SubmissionContents
from vflops.publish.ranking.submission_folders import find
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Evaluated, Finished
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return submit(tmp_path)


def test_the_score_is_the_recorded_one_even_if_another_follows_from_the_record(
    folder: RunFolder,
) -> None:
    contents = SubmissionContents(folder)
    assert contents.read(Score, folder.score_file) is contents.once(score)
    text = folder.score_file.read_text()
    folder.score_file.write_text(text.replace('"repeat": 0', '"repeat": 7'))
    (recorded,) = SubmissionContents(folder).read(Score, folder.score_file).trainings
    assert recorded.repeat == 7


def test_an_unreadable_document_is_named(folder: RunFolder) -> None:
    folder.system_file.write_text("{}")
    with pytest.raises(FolderError, match=r"system\.json"):
        SubmissionContents(folder).read(SystemRecord, folder.system_file)


def test_events_are_those_of_the_log_and_validated_once(folder: RunFolder) -> None:
    contents = SubmissionContents(folder)
    (event,) = contents.history.events("finished")
    (plain,) = Contents(folder).history.events("finished")
    assert event.payload(Finished) == plain.payload(Finished)
    assert event.payload(Finished) is event.payload(Finished)
    for _ in range(2):
        with pytest.raises(FolderError, match="not a finished event"):
            event.payload(Evaluated)


def test_every_file_is_opened_once_and_every_folder_is_listed_once(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = Counter(map(str, [folder.path, *folder.path.rglob("*")]))
    (submission,) = find([folder.path], folder.path.parent / "site")
    uses: Counter[str] = Counter()

    def count_calls(owner: object, name: str) -> None:
        call = getattr(owner, name)

        def counted(path: str | Path, *arguments: Any, **options: Any) -> Any:
            uses[os.fspath(path)] += 1
            return call(path, *arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in ((os, "open"), (os, "scandir"), (Path, "open")):
        count_calls(owner, name)
    _, entry = read_chunk([submission], NO_KEYS)[submission]
    monkeypatch.undo()
    assert entry.reasons == ()
    assert {path: times for path, times in uses.items() if path in present} == present


def test_nothing_of_a_submission_waits_for_the_garbage_collector(folder: RunFolder) -> None:
    submissions = find([folder.path], folder.path.parent / "site")
    read_chunk(submissions, NO_KEYS)  # fills the caches
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        read_chunk(submissions, NO_KEYS)
        assert not [item for item in gc.get_objects() if isinstance(item, Event)]
    finally:
        gc.enable()
        gc.unfreeze()
