"""What a rank writes to the log of its job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trained_runs import job
from vflops.config.profiles import tiny
from vflops.errors import RunFailed
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Tested
from vflops.train.context import JobContext
from vflops.train.phase_clock import Clock


class NoSignal:
    """A source of requests to stop that never asks."""

    signal = None

    def set_unsaved_work(self, unsaved: bool) -> None:
        """Ignore whether there is work to save."""


def test_a_quality_outside_of_its_bounds_is_an_error_when_it_is_reported(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "image-classification", tiny())
    record = job(1)
    record = record.model_copy(
        update={"goal": record.goal.model_copy(update={"bounds": (0.0, 1.0)})}
    )
    with folder.start_attempt(1) as events:
        context = JobContext(
            record, 0, 0, folder.attempt_folder(1, 0), events, clock=Clock(), stop=NoSignal()
        )
        context.write_event("tested", Tested(quality=1.0, evaluated=10))
        with pytest.raises(
            RunFailed, match=r"accuracy is 1\.7, but it lies between 0 and 1"
        ) as caught:
            context.write_event("tested", Tested(quality=1.7, evaluated=10))
    assert "image-classification" in str(caught.value.hint)
    assert len(folder.history(1).events("tested")) == 1
