"""Pipes and links to themselves in place of files of a run: a line at once, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.support.ranking_runs import submit
from tests.support.sample_parts import Vflops
from vflops.cli import main
from vflops.record.folder import RunFolder

COMMANDS = {
    "check": ("check", "RUN"),
    "score": ("score", "RUN"),
    "verify": ("verify", "RUN"),
    "export": ("export", "RUN", "--format", "json"),
    "compare": ("compare", "RUN", "OTHER"),
    "archive": ("archive", "RUN"),
}
FILES = {
    "check": (
        *("system.json", "manifest.json", "jobs/1/job.json", "jobs/1/0/events.jsonl"),
        *("jobs/1/0/node-0.json", "jobs/1/0"),
    ),
    "score": ("run.json", "jobs/1/job.json", "jobs/1/0/telemetry.jsonl", "jobs/1", "graphs"),
    "verify": ("run.json", "manifest.json.sig", "jobs/1/0/events.jsonl", "jobs"),
}
OTHERS = ("system.json", ".lock", "jobs/1/job.json")
"""The files that are replaced, by command."""
LIMIT_S = 60.0


@contextmanager
def limited_time() -> Iterator[None]:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 1.0)  # again, if a handler catches it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return submit(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["pipe", "loop"])
def test_no_command_hangs_or_crashes(
    good: RunFolder,
    tmp_path: Path,
    command: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number, name in enumerate(FILES.get(command, OTHERS)):
        run = tmp_path / str(number) / good.path.name
        shutil.copytree(good.path, run)
        path = run / name
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path.name)
        places = {"RUN": str(run), "OTHER": str(good.path)}
        words = [places.get(word, word) for word in COMMANDS[command]]
        monkeypatch.setattr(sys, "argv", ["vflops", *words])
        monkeypatch.chdir(run.parent)
        code: object = 0
        with limited_time():
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        said = capsys.readouterr()
        assert "Traceback" not in said.err, f"{name}: {said.err[-3000:]}"
        assert code in (0, 1, 2, 3), f"{name}: {said.err}"
        shutil.rmtree(run.parent)


@pytest.mark.parametrize("command", [("report", "RUN"), ("compare", "RUN", "OTHER")])
@pytest.mark.parametrize("value", [10**400, 1e308])
def test_a_fact_that_no_machine_has_is_an_error_that_names_it(
    good: RunFolder, tmp_path: Path, vflops: Vflops, command: tuple[str, ...], value: float
) -> None:
    run = tmp_path / good.path.name
    shutil.copytree(good.path, run)
    system = json.loads((run / "system.json").read_text())
    fact = {"name": "memory", "value": value, "unit": "B", "source": "x", "reason": None}
    facts = [item for item in system["layers"][0]["facts"] if item["name"] != "memory"]
    system["layers"][0]["facts"] = [fact, *facts]
    (run / "system.json").write_text(json.dumps(system))
    places = {"RUN": run, "OTHER": good.path}
    done = vflops(*(places.get(word, word) for word in command))
    assert done.returncode == 2
    assert "the fact 'memory' is 1" in done.stderr and "restore it" in done.stderr
    assert "Traceback" not in done.stderr
