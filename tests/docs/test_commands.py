"""Every command in the documentation is a real one, and those that take seconds really run."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.support.data_text import docstrings
from tests.support.markdown import Command, commands, fences, inline_code, name_of, pages
from tests.support.paths import DOCS, ROOT
from tests.support.ranking_runs import Submitted, submit
from tests.support.sample_parts import MEASUREMENTS, Vflops
from tests.support.ssh_keygen import MAY_SKIP
from tests.support.trained_runs import ZERO
from vflops.cli import application, options
from vflops.errors import UsageError, VflopsError
from vflops.record.folder import file_hash
from vflops.record.own_runs import remember

COMMANDS = list(commands())
PARSED = [command for command in COMMANDS if command.words[0] == "vflops"]
RUN = [command for command in COMMANDS if command.fence.reason is None]
PROGRAMS = {
    *(
        "apptainer",
        "cd",
        "ch-convert",
        "git",
        "mlflow",
        "pip",
        "podman",
        "pytest",
        "reframe",
        "salloc",
        "ssh-keygen",
    ),
    *(".", "/shared/$USER/env/bin/pip"),
}
"""Other people's programs in blocks that are not run."""
VERDICTS = {"check": (0, 1), "history": (0, 1), "accept": (0, 1, 4)}
"""Commands whose exit code is a verdict."""


@functools.cache
def program() -> Any:
    """The command line with all its commands."""
    return typer.main.get_command(application([]))


def parsed(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name of the command and its arguments; raises what the command line would."""
    command, names, rest = program(), ["vflops"], list(words)
    while hasattr(command, "commands"):
        if rest[0] not in command.commands:
            raise UsageError(f"no such command: {rest[0]}", hint=", ".join(command.commands))
        command = command.commands[rest[0]]
        names.append(rest.pop(0))
    arguments = command.make_context(names[-1], rest).params
    return " ".join(names[1:]), arguments


def settings_of(name: str, arguments: dict[str, Any]) -> None:
    """Build the settings that a command names, if it takes settings of a workload."""
    workload = arguments.get("workload")
    if name not in ("run", "plan", "scale", "resume") or workload == "digits":
        return
    assignments = list(arguments.get("set_") or [])
    for variant in arguments.get("variant") or []:
        assignments += variant.split("=", 1)[1].split(",") if "=" in variant else []
    if str(arguments.get("ranks") or "").isdigit():
        assignments.append(f"train.ranks={arguments['ranks']}")
    config = arguments.get("config")
    options.settings(
        arguments.get("profile") or "tiny",
        None,
        config and ROOT / config,
        assignments,
        workloads=workload or ("image-classification" if name == "resume" else "suite"),
    )


def faults(words: Sequence[str]) -> str | None:
    """What is wrong with a ``vflops`` command; None if nothing is."""
    if words in (["--help"], ["--version"]):
        return None
    try:
        settings_of(*parsed(words))
    except VflopsError as error:
        return f"{error} ({error.hint})"
    except Exception as error:  # the command line's own; its base class is private to typer
        return getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("command", PARSED, ids=str)
def test_every_command_of_vflops_is_accepted_by_the_command_line(command: Command) -> None:
    assert faults(list(command.words[1:])) is None


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("rum image-classification", "no such command: rum"),
        ("run image-classification --modles 2", "No such option"),
        ("run image-classification --set train.epoch=3", "train.epoch"),
        ("run image-classification --set parallel.mode=sharted", "sharted"),
        ("run image-clasification", "image-clasification"),
        ("data sync image-classification DIR", "no such command: sync"),
        ("predict RUN --upto many", "valid integer"),
    ],
)
def test_a_misspelled_command_would_be_noticed(line: str, fault: str) -> None:
    assert fault in (faults(shlex.split(line)) or "")


def test_job_scripts_for_joining_nodes_run_real_commands() -> None:
    blocks = fences(DOCS / "how-to" / "cluster.md")
    (manifest,) = (block.text for block in blocks if block.language == "yaml")
    job = yaml.safe_load(manifest)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["completionMode"] == "Indexed"
    scripts = [block.text for block in blocks if "--on join" in block.text]
    scripts = [text for text in scripts if text != manifest] + [container["command"][-1]]
    for script in scripts:
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr
        found = re.findall(r"vflops (?:run|join) [^&\n\"]+", script)
        assert [line.split()[1] for line in found] == ["run", "join"], script
        assert [faults(shlex.split(line)[1:]) for line in found] == [None, None]
    assert len(scripts) == 5


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_commands_in_the_text_name_real_commands_and_options(page: Path) -> None:
    for code in inline_code(page):
        if not code.startswith("vflops ") or code.startswith(("vflops COMMAND", "vflops --")):
            continue
        found, words = program(), code.split()[1:]
        while hasattr(found, "commands") and words and re.fullmatch(r"[a-z]+", words[0]):
            assert words[0] in found.commands, f"{code}: no such command"
            found, words = found.commands[words[0]], words[1:]
        known = {option for parameter in found.params for option in parameter.opts}
        named = {word.strip("[]").split("=")[0] for word in words if "--" in word[:3]}
        assert named <= known, f"{code}: no option {named - known}"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_other_programs_exist(command: Command) -> None:
    program, *words = command.words
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M)
    elif program in ("python", "python3"):
        assert command.fence.reason
    elif program != "vflops":
        assert program in PROGRAMS and command.fence.reason


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_programs_in_the_text_are_modules_that_exist(page: Path) -> None:
    for code in inline_code(page):
        for module in re.findall(r"python -m ((?:benchmarks|vflops)[.\w]*)", code):
            assert importlib.util.find_spec(module), code


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands of the documentation name: runs, data, keys, settings."""
    folder = tmp_path_factory.mktemp("documented")
    for number, name in enumerate(("RUN", "A", "B", "A1", "A2", "A3", "B1", "B2", "B3")):
        day = f"202601{number + 1:02}T000000Z"
        wanted = Submitted(
            id=f"{day}-image-classification-{number:06x}",
            created_utc=f"2026-01-{number + 1:02}T00:00:00+00:00",
            ranks=1,
            quality=0.88 + number / 1000,
            ceilings=MEASUREMENTS,
        )
        run = submit(folder / "runs", wanted)
        remember(file_hash(run.path / "run.json"), name)  # as if the reader had started it
        (folder / name).symlink_to(run.path.relative_to(folder))
    submit(folder / "submissions" / "some-centre", Submitted())
    began = ZERO + timedelta(seconds=960)
    readings = [(began + timedelta(seconds=5 * number), 500 + number) for number in range(30)]
    rows = [f"{time:%Y-%m-%dT%H:%M:%SZ},{power}" for time, power in readings]
    (folder / "pdu.csv").write_text("\n".join(["time,power_w", *rows, ""]))
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "examples").symlink_to(ROOT / "examples")
    docstrings(folder / "python-docs", ("argparse", "ast", "inspect", "logging", "random"))
    if not MAY_SKIP:
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "KEY"]
        subprocess.run(make, cwd=folder, check=True)
        public = (folder / "KEY.pub").read_text()
        (folder / "SIGNERS").write_text(f'alice@example.org namespaces="vflops" {public}')
    return folder


CLUSTER = """
step = {time_s = 0.1, batch = 64, ops_per_sample = 24e9}
model = {gradient_bytes = 1e8, activation_bytes = 1e8, layers = 50}
node = {accelerators = 8, bandwidth = 150e9, latency_s = 1e-6, power_w = 500}
link = {bandwidth = 25e9, latency_s = 5e-6}
training = {samples = 1281167, epochs = 90, quality_factor = 1}
"""


@pytest.mark.parametrize("page", sorted({command.fence.page for command in RUN}), ids=name_of)
def test_commands_run_as_documented(
    page: Path, prepared: Path, tmp_path: Path, vflops: Vflops
) -> None:
    shutil.copytree(prepared, tmp_path, symlinks=True, dirs_exist_ok=True)
    for command in (command for command in RUN if command.fence.page == page):
        if command.words[1] == "sign" and MAY_SKIP:
            pytest.skip("signing needs ssh-keygen")
        done = vflops(*command.words[1:])
        allowed = VERDICTS.get(command.words[1], (0,))
        assert done.returncode in allowed, f"{command}\n{done.stdout}{done.stderr}"
