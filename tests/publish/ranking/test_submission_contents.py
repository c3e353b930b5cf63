"""What submissions share is what each of them holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranking_runs import submit
from vflops.errors import FolderError
from vflops.publish.ranking.submission_contents import SubmissionContents
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Evaluated, Finished
from vflops.record.formats.system import SystemRecord
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
