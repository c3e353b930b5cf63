"""Programs that a run folder names start only if the run is the user's own, or if allowed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_runs import settings as command_settings
from tests.support.evidence_runs import run_entry, write_archive
from vflops.cli.cluster.control import attach
from vflops.cli.publish import evidence
from vflops.cli.results.report import report
from vflops.cli.train.run import resume
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.config.settings import CountSettings, Settings
from vflops.errors import CheckFailed, UsageError
from vflops.launch.site import copy_to_run
from vflops.record.folder import RunFolder
from vflops.record.own_runs import is_own, mark_foreign
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.run.recorded_programs import foreign_programs, require_consent
from vflops.workloads.contract.run_settings import load, profile

PROGRAM = "sh -c 'touch executed'"

Make = Callable[[Settings], RunFolder]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Creates a run of the user, in an empty current folder."""
    monkeypatch.chdir(tmp_path)
    return lambda settings: RunFolder.create(Path("runs"), "command", settings)


@pytest.fixture
def foreign(own: Make) -> Make:
    """Creates a run that was not started here."""

    def make(settings: Settings) -> RunFolder:
        folder = own(settings)
        mark_foreign(folder.path)
        return folder

    return make


def with_job(folder: RunFolder, **settings: Any) -> RunFolder:
    folder.job_file(1).parent.mkdir(parents=True)
    folder.job_file(1).write_text(json.dumps({"job": 1, "settings": settings}))
    return folder


def on_slurm(**changes: object) -> Settings:
    return tiny().model_copy(update={"launch": LaunchSettings(on="slurm"), **changes})


def test_a_strangers_command_does_not_run(foreign: Make) -> None:
    run = foreign(command_settings(PROGRAM))
    with pytest.raises(UsageError, match="would run what its author chose: the command sh -c") as e:
        pipeline.resume(run, RunObserver())
    assert "--allow-command" in (e.value.hint or "")
    assert not Path("executed").exists() and not (run.path / "jobs").exists()


def test_ones_own_command_runs_without_a_question(own: Make) -> None:
    run = own(command_settings(PROGRAM))
    with_job(run, command=["sh", "-c", "touch executed"])
    assert foreign_programs(run) == []
    require_consent(run, allow_command=False)


def test_allowed_programs_are_named_first(foreign: Make) -> None:
    told: list[str] = []
    run = foreign(command_settings("evil \x1b[2J"))
    require_consent(run, allow_command=True, tell=told.append)
    (line,) = told
    assert "the command evil" in line and "\x1b" not in line


def test_a_strangers_training_without_programs_is_resumed_as_before(foreign: Make) -> None:
    assert foreign_programs(foreign(tiny())) == []
    assert foreign_programs(foreign(on_slurm())) == []


def test_a_command_in_a_job_of_ones_own_run_is_a_strangers(own: Make) -> None:
    """run.json, whose hash is known, has no such command."""
    run = with_job(own(tiny()), command=["evil"])
    assert foreign_programs(run) == ["the command evil"]
    shutil.move(run.job_file(1), run.job_file(1).with_name(".rearranged.json"))
    assert foreign_programs(run) == ["the command evil"]
    other = with_job(own(command_settings(PROGRAM)), command=["sh", "-c", "touch other"])
    assert foreign_programs(other) == ["the command sh -c 'touch other'"]


def test_imported_code_and_containers_are_programs(foreign: Make) -> None:
    launch = LaunchSettings(on="slurm", container="docker://evil")
    settings = tiny().model_copy(
        update={"count": CountSettings(models=("resnet50", "evil:model")), "launch": launch}
    )
    assert foreign_programs(foreign(settings)) == [
        "the Python code evil:model",
        "the container image docker://evil",
    ]


SITE = """
account = "theirs"
python = "/tmp/evil"
modules = ["evil"]
directives = ["--export=LD_PRELOAD=/tmp/evil.so"]
[environment]
LD_PRELOAD = "/tmp/evil.so"
[container]
image = "evil.sif"
"""


def test_the_site_of_a_run_is_a_strangers_unless_it_was_copied_here(own: Make) -> None:
    Path("site.toml").write_text('python = "/opt/python"\n')
    run = own(on_slurm())
    copy_to_run(run.path)
    Path("site.toml").unlink()
    assert foreign_programs(run) == []
    (run.path / "site.toml").write_text(SITE)
    found = foreign_programs(run)
    assert [line.split(" = ")[0] for line in found] == [
        *("directives", "modules", "environment", "python", "container")
    ]
    assert "python = '/tmp/evil' of its site.toml" in found
    Path("site.toml").write_text(SITE)  # the same as the user's
    assert foreign_programs(run) == []
    Path("site.toml").unlink()
    (run.path / "site.toml").write_text("account = 'theirs'\npartition = 'gpu'\n")
    assert foreign_programs(run) == []


def test_the_advice_of_the_tool_does_not_lead_to_a_strangers_program(
    foreign: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive that holds only run.json, as anyone can write it, named like the newest run."""
    run = foreign(command_settings(PROGRAM))
    record = run.record.model_copy(update={"id": "99991231T235959Z-command-ffffff"})
    record.write(run.path / "run.json")
    file = write_archive(tmp_path / "run.tar.bz2", run_entry(RunFolder(run.path, record)))
    shutil.rmtree(run.path)
    evidence.extract(file, Path("runs"))
    extracted = Path("runs") / record.id
    assert not is_own(extracted)
    for path in (extracted, file):
        with pytest.raises(CheckFailed, match="is not concluded yet") as unconcluded:
            evidence.verify(path)
        assert "ask its author" in (unconcluded.value.hint or "")
    starting: tuple[Callable[..., None], ...] = (resume, attach, evidence.reproduce)
    for command in starting:
        with pytest.raises(UsageError, match="the command sh -c 'touch executed'") as refused:
            command(extracted)
        assert "--allow-command" in (refused.value.hint or "")
    reading: tuple[Callable[..., None], ...] = (evidence.sign, evidence.archive, report)
    for command in (*reading, *starting):
        with pytest.raises(UsageError, match="only 1 run that vflops did not start here for you"):
            command(None)
    assert "vflops resume" not in "".join(capsys.readouterr())
    assert not Path("executed").exists()
    assert list(extracted.glob("[!.]*")) == [extracted / "run.json"]


def test_one_is_told_when_one_signs_the_run_of_another(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mark_foreign(run_folder.path)
    with pytest.raises(UsageError):
        evidence.sign(run_folder.path, tmp_path / "no-key")
    assert "your signature vouches for it" in capsys.readouterr().err


def test_a_ledger_cannot_bring_a_command_along(tmp_path: Path) -> None:
    """A replay runs the settings of its ledger, which are those of a search."""
    section = {**profile("tiny", ["automl"]).workloads["automl"], "command": ["evil"]}
    base = tiny().model_copy(update={"workloads": {"automl": section}})
    with pytest.raises(UsageError, match="command"):
        load(base, None, [])
