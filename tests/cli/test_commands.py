"""The command as a user meets it: exit codes, one clear line, the next step, light starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from tests.support.stored_machines import Machine
from vflops import cli
from vflops.cli import COMMANDS
from vflops.machine.system import gather as gather_module
from vflops.machine.system.gather import gather
from vflops.record.folder import RunFolder
from vflops.record.formats.system import LAYERS
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 4)
    def forward(self, x):
        return self.layer(x)

class Picky(Net):
    def forward(self, x):
        if x.max() > 1:
            x = x / 2
        return self.layer(x)

class Leaves(Net):
    def forward(self, x):
        raise SystemExit(5)

class Attention(Net):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 10)
    def forward(self, tokens):
        x = self.words(tokens)
        return self.layer(nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True))

instance = Net()

def words():
    return "not a module"
"""


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(4)")
    return path


def test_count_prints_the_exact_table_and_the_next_step(vflops: Vflops) -> None:
    result = vflops("count", "resnet50-v1", "--rules", "aiperf-original")
    assert result.returncode == 0
    assert "23,053,458,315" in result.stdout
    assert (
        "next: vflops count resnet50-v1 --rules aiperf-original --against executed" in result.stderr
    )


def test_count_of_the_users_own_model(vflops: Vflops, model_file: Path) -> None:
    result = vflops("count", "mine:Net", "--input", "10", "--batch", "3", "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["forward"] == 3 * 2 * 10 * 4
    assert data["rules"] == {"id": "executed", "version": 1}
    assert data["parameters"] == 44


def test_count_of_an_instance_that_is_there_already(vflops: Vflops, model_file: Path) -> None:
    result = vflops("count", "mine:instance", "--input", "10", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["parameters"] == 44


def test_count_against_another_rule_set_by_layer(vflops: Vflops, model_file: Path) -> None:
    result = vflops("count", "mine:Net", "--input", "10", "--against", "executed", "--by", "layer")
    assert result.returncode == 0
    assert "layer" in result.stdout
    assert (
        "0.7500" in result.stdout
    )  # by default against each other: 3 × 40 by hpcai500, 80 + 80 executed: no input gradient


def test_count_against_several_conventions(vflops: Vflops, model_file: Path) -> None:
    model = ("count", "mine:Attention", "--input", "6:int64", "--batch", "2")
    several = ("--against", "palm,megatron, causal,executed")
    result = vflops(*model, *several, "--json")
    assert result.returncode == 0, result.stderr
    per_token = {item["rules"]["id"]: item["per_token"] for item in json.loads(result.stdout)}
    attention = 12 * 10 * 6
    assert per_token == {
        "palm": 6 * 44 + attention,
        "megatron": 6 * 40 + attention // 2,
        "causal": 6 * 44 + attention // 2,
        "executed": 6 * 40 + attention,
    }
    shown = vflops(*model, "--rules", "palm", *several)
    assert [line.split()[:3] for line in shown.stdout.splitlines() if " palm " in line[:6]] == [
        ["palm", "11,808", "984"]
    ]


def test_count_exports_a_page_and_a_graph(vflops: Vflops, tmp_path: Path) -> None:
    for format, name in (("html", "page.html"), ("graph", "graph.json")):
        result = vflops("count", "resnet50", "--export", format, "--out", name)
        assert result.returncode == 0
        assert f"written: {name}" in result.stderr
    assert "8,203,465,728" in (tmp_path / "page.html").read_text()
    assert json.loads((tmp_path / "graph.json").read_text())["schema"] == "vflops.graph/1"


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (("cuont",), "No such command 'cuont'", "count"),
        (("count", "resnet51"), "unknown model 'resnet51'", "resnet50"),
        (
            ("count", "resnet50", "--rules", "aipref"),
            "counting convention 'aipref'",
            "aiperf",
        ),
        (("count", "resnet50", "--against", "palm,megatrom"), "'megatrom'", "megatron"),
        (("count", "resnet50", "--against", "palm,"), "has an empty name", "palm,megatron"),
        (("count", "resnet50", "--against", "palm"), "has no tokens", "executed"),
        (("count", "resnet50", "--input", "3x-1"), "input '3x-1'", "3x224x224"),
        (
            ("count", "resnet50", "--input", "4x32x32"),
            "does not run on an input of 4x32x32",
            "--in",
        ),
        (("count", "mine:Net"), "needs the shape of its input", "--input"),
        (("count", "mine:words", "--input", "3"), "returned str, expected a torch", "class"),
        (("count", "mine:Picky", "--input", "10"), "mine.py:14: if x.max() > 1", "torch.where"),
        (("count", "mine:Nett", "--input", "3"), "unknown name 'Nett' in mine", "Net"),
        (("micro", "gem"), "unknown benchmark 'gem'", "gemm"),
        (("micro", "--precision", "fp31"), "unknown precision 'fp31'", "fp32"),
        (("micro", "--device", "cudaa"), "'cudaa'", ""),
        (("micro", "--budget", "-1"), "micro.budget_s = -1", "leave it out"),
        (("run", "--profile", "labtop"), "unknown profile 'labtop'", "laptop"),
        (("run", "--set", "count.models=resnet51"), "unknown model 'resnet51'", "resnet50"),
        (("run", "--set", "micro.speed=1"), "unknown setting 'micro.speed'", "micro."),
        (("run", "--config", "none.toml"), "cannot read none.toml", ""),
        (("score",), "no run is given", "vflops run"),
        (("check", "nowhere"), "nowhere is not a run folder: it does not exist", ""),
        (("report", "."), "it has no run.json", "vflops run"),
        (("roofline", "--rules", "x"), "unknown counting convention 'x'", ""),
        (("score", "a" * 300), "File name too long", ""),
        (("count", "mine:Leaves", "--input", "10"), "SystemExit", ""),
        (("count", "mine.py:Net", "--input", "3"), "mine.py is a file", "mine:Net"),
        (("count", "leaves:Net", "--input", "3"), "cannot import leaves: SystemExit", ""),
        (("count", "torch.nn:Linear", "--input", "3"), "missing 2 required", "needs arguments"),
        (("count", "resnet50", "--input", "9" * 5000), "input '999", "3x224x224"),
        (("count", "resnet50", "--export", "html", "--out", "mine.py/x"), "Not a directory", ""),
        (
            ("run", "--set", "count.models=mine:Net"),
            "whose input shape is not known",
            "vflops count",
        ),
        (("run", "--set", "profile=zzz"), "setting profile = 'zzz'", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_use_is_one_clear_line_exit_code_2_and_nothing_written(
    vflops: Vflops,
    model_file: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    error: str,
    hint: str,
) -> None:
    before = {path.name for path in tmp_path.iterdir()} | {"__pycache__"}
    result = vflops(*arguments)
    assert result.returncode == 2
    assert error in result.stderr
    assert hint in result.stderr
    assert "Traceback" not in result.stderr
    assert {path.name for path in tmp_path.iterdir()} <= before


ALONE = {
    "run": ("--profile labtop", 2),
    "resume": ("RUN", 0),
    "attach": ("RUN", 2),
    "cancel": ("RUN", 2),
    "micro": ("gem", 2),
    "roofline": ("RUN", 0),
    "data": ("check none", 2),
}
"""A use of a command and its exit code; of the others it is their help."""
ALONE_ELSEWHERE = {"plan", "scale", "count", "system", "score", "check", "report", "list"}


@pytest.mark.parametrize(
    "command",
    [name for names in COMMANDS.values() for name in names if name not in ALONE_ELSEWHERE],
)
def test_each_command_in_a_python_of_its_own(
    vflops_alone: Vflops, run_folder: RunFolder, command: str
) -> None:
    """Most tests have everything imported already; here a command imports what it uses."""
    arguments, code = ALONE.get(command, ("--help", 0))
    words = [str(run_folder.path) if word == "RUN" else word for word in arguments.split()]
    result = vflops_alone(command, *words)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout or result.stderr


def test_list_shows_what_there_is(vflops: Vflops) -> None:
    result = vflops("list")
    assert result.returncode == 0
    for name in ("resnet50-v1", "aiperf-original", "gemm", "bf16", "laptop"):
        assert name in result.stdout


@pytest.mark.parametrize(
    "command", [["--help"], ["list"], ["score", "RUN"], ["check", "RUN"], ["report", "RUN"]]
)
def test_nothing_after_the_record_imports_torch(run_folder: RunFolder, command: list[str]) -> None:
    arguments = [str(run_folder.path) if part == "RUN" else part for part in command]
    code = (
        "import sys\nfrom vflops.cli import main\n"
        f"sys.argv = ['vflops', *{arguments!r}]\n"
        "try:\n    main()\nfinally:\n"
        "    print('loaded', 'torch' in sys.modules, 'altair' in sys.modules)\n"
    )
    score(Contents(run_folder)).write(run_folder.score_file)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    draws = command[0] == "report"
    assert f"loaded False {draws}" in result.stdout


def test_score_gives_the_same_bytes_every_time(vflops: Vflops, run_folder: RunFolder) -> None:
    first = vflops("score", run_folder.path)
    data = run_folder.score_file.read_bytes()
    run_folder.score_file.unlink()
    second = vflops("score", run_folder.path, "--json", PYTHONHASHSEED="7", LC_ALL="C")
    assert first.returncode == second.returncode == 0
    assert run_folder.score_file.read_bytes() == data
    assert second.stdout.encode() == data


def test_check_passes_a_good_run_and_fails_an_edited_one(
    vflops: Vflops, run_folder: RunFolder
) -> None:
    vflops("score", run_folder.path)
    assert vflops("check", run_folder.path).returncode == 0
    text = run_folder.score_file.read_text()
    run_folder.score_file.write_text(text.replace("200000000000.0", "900000000000.0"))
    result = vflops("check", run_folder.path)
    assert result.returncode == 1
    assert result.stderr.endswith("1 of 13 rules is not met: score\n")  # no hint: all is said
    findings = json.loads(run_folder.findings_file.read_text())
    assert [f["rule"] for f in findings["findings"] if f["verdict"] == "fail"] == ["score"]


@pytest.mark.parametrize("command", ["score", "check", "report", "roofline"])
def test_an_interrupted_run_is_read_and_named_as_incomplete(
    vflops: Vflops, run_folder: RunFolder, command: str
) -> None:
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    log.write_bytes(log.read_bytes()[:-40])
    result = vflops(command, run_folder.path)
    assert result.returncode == (1 if command == "check" else 0)
    assert "incomplete run" in result.stderr
    assert "vflops resume" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_newer_schema_is_refused_with_the_cure(vflops: Vflops, run_folder: RunFolder) -> None:
    path = run_folder.path / "run.json"
    path.write_text(path.read_text().replace("vflops.run/", "vflops.run/9"))
    for command in ("score", "check", "report", "resume"):
        result = vflops(command, run_folder.path)
        assert result.returncode == 2
        assert "newer vflops" in result.stderr
        assert "upgrade" in result.stderr


@pytest.mark.parametrize("format", ["html", "svg", "png"])
def test_roofline_writes_pages_and_pictures(
    vflops: Vflops, run_folder: RunFolder, format: str
) -> None:
    result = vflops("roofline", run_folder.path, "--export", format)
    assert result.returncode == 0, result.stderr
    assert "is bound by" in result.stdout
    data = (run_folder.path / f"roofline.{format}").read_bytes()
    magic = {"html": b"<!doctype html>", "svg": b"<svg", "png": b"\x89PNG"}[format]
    assert data.startswith(magic)


def test_roofline_in_a_precision_that_was_not_measured(
    vflops: Vflops, run_folder: RunFolder
) -> None:
    result = vflops("roofline", run_folder.path, "--precision", "bf16")
    assert result.returncode == 2
    assert "has no ceilings in 'bf16'" in result.stderr
    assert "fp32" in result.stderr


def test_the_newest_run_is_meant_when_none_is_named(vflops: Vflops, run_folder: RunFolder) -> None:
    result = vflops("score")  # the fixture's run is in ./runs
    assert result.returncode == 0
    assert run_folder.score_file.exists()


def test_output_that_is_not_unicode_does_not_crash(vflops: Vflops, run_folder: RunFolder) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    for command in (("count", "resnet50"), ("system",), ("score", run_folder.path)):
        result = vflops(*command, **plain)
        assert result.returncode == 0, result.stderr


def test_system_as_json_and_for_mlperf(vflops: Vflops, tmp_path: Path) -> None:
    result = vflops(
        "system", "--json", "--mlperf", "desc.json", "--submitter", "us", "--name", "it"
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["schema"] == "vflops.system/1"
    description = json.loads((tmp_path / "desc.json").read_text())
    assert description["submitter"] == "us"
    assert len(description) >= 33


def test_system_of_a_stored_machine(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.become(monkeypatch)
    monkeypatch.setattr(
        gather_module, "gather", partial(gather, root=machine.root, environ=machine.environ)
    )
    monkeypatch.chdir(tmp_path)
    app, asked = cli.application(["system"]), ["system", "--mlperf", "desc.json", "--name", "it"]
    shown = CliRunner().invoke(app, ["system"])
    assert (shown.exit_code, shown.exception) == (0, None)
    assert all(layer in shown.stdout for layer in LAYERS)
    assert CliRunner().invoke(app, [*asked, "--submitter", "us"]).exit_code == 0
    assert all(json.loads((tmp_path / "desc.json").read_text()).values())


def test_the_groups_of_help_are_the_folders_of_cli() -> None:
    folders = {path.parent.name for path in Path(cli.__path__[0]).glob("*/__init__.py")}
    assert set(cli.groups()) == folders - {"terminal"}
    names = [name for group in cli.groups().values() for name in group]
    assert len(names) == len(set(names))
    app = typer.main.get_command(cli.application([]))
    assert isinstance(app, TyperGroup) and set(app.commands) == set(names)


def test_help_shows_every_command_in_its_group(vflops: Vflops) -> None:
    shown: dict[str, list[str]] = {}
    for section in vflops("--help").stdout.split("\n\n")[3:]:
        title, *lines = section.rstrip().splitlines()
        shown[title.removesuffix(":").lower()] = [line.split()[0] for line in lines]
    assert shown == cli.groups()


@pytest.mark.parametrize("command", [(), ("data",)])
def test_the_summary_of_every_command_fits_in_80_columns(
    vflops: Vflops, command: tuple[str, ...]
) -> None:
    sections = vflops(*command, "--help", COLUMNS="80").stdout.partition("Options:")[2]
    lines = [line for line in sections.splitlines() if line.startswith("  ") and "--" not in line]
    assert len(lines) == (4 if command else sum(map(len, COMMANDS.values())))
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def test_errors_name_a_way_on(vflops: Vflops, run_folder: RunFolder) -> None:
    power = vflops("power", run_folder.path, "nolog.csv")
    assert power.returncode == 2 and "the CSV file that the meter wrote" in power.stderr
    judged = vflops("check", run_folder.path, run_folder.path, "--rules", "hpcai500-v3")
    assert judged.returncode == 1
    assert "--rules hpcai500-v3" in judged.stderr
