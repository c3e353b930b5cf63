"""``vflops join --lead``: what is refused, and a controller that fails at once."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vflops.cli import application
from vflops.cli.cluster.join import join
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.python_start import module_command
from vflops.record.files.lock import locked
from vflops.record.folder import RunFolder


def run_on(place: str, folder: Path) -> RunFolder:
    launch = LaunchSettings(on=place, nodes=2 if place == "join" else None)
    settings = tiny().model_copy(update={"launch": launch})
    return RunFolder.create(folder, "image-classification", settings)


def test_a_run_that_no_node_can_join_is_not_led(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run on local: no node can join it") as refused:
        join(run_on("local", tmp_path).path, lead=True)
    assert "vflops resume" in str(refused.value.hint)


def test_a_run_has_one_controller(tmp_path: Path) -> None:
    folder = run_on("join", tmp_path)
    with locked(folder.lock, folder.path), pytest.raises(UsageError, match="has a controller"):
        join(folder.path, lead=True)


def test_a_controller_that_fails_does_not_wait_for_its_own_node(tmp_path: Path) -> None:
    folder = run_on("join", tmp_path)
    (folder.path / "join").write_text("")  # where the controller and the nodes would meet
    began_s = time.monotonic()
    done = subprocess.run(
        module_command("vflops", "join", "--lead", folder.path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2 and "join" in done.stderr, done.stderr
    assert time.monotonic() - began_s < 110, "the node waits 120 s for a controller"


@pytest.mark.parametrize("words", [("image-classification",), ("--paper", "v3")])
def test_an_experiment_of_several_runs_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = ["scale", *words, "--on", "join", "--nodes", "2", "--out", str(tmp_path / "x")]
    done = CliRunner().invoke(application(command), command)
    assert isinstance(done.exception, UsageError)
    assert "several runs cannot share them" in done.exception.message
    assert not (tmp_path / "x").exists()
