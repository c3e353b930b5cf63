"""What a resumed run does again, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from vflops.record.folder import RunFolder
from vflops.run import pipeline
from vflops.run.observer import RunObserver


def test_a_model_that_was_counted_is_not_counted_again(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    count = run_folder.record.settings.count.model_copy(update={"models": ("sample", "other")})
    settings = run_folder.record.settings.model_copy(update={"count": count})
    run_folder.record = run_folder.record.model_copy(update={"settings": settings})
    counted: list[str] = []

    def note(folder: RunFolder, events: Any, model: str) -> None:
        counted.append(model)

    monkeypatch.setattr(pipeline, "_count", note)
    monkeypatch.setattr(pipeline, "_describe", lambda folder, events, prepared: None)
    monkeypatch.setattr(pipeline, "_measure", lambda folder, events, observer: None)
    pipeline.resume(run_folder, RunObserver())
    assert counted == ["other"]  # the fixture's log says that "sample" was counted
    assert run_folder.history().state.complete
