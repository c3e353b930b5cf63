"""The record of the GPU tests belongs to the code as it is; CI itself has no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT
from tools.called_functions import FOLDER_VARIABLE
from tools.code_digest import code_digest, imports_torch
from tools.gpu_tests import (
    RECORD,
    changed_files,
    covered,
    gpu_test_files,
    merged,
    outcomes,
    stale,
    stale_message,
)

ALLOWED_SKIPS = ("fp32 tiles", "needs two GPUs", "the backend does not say that it is determ")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORD.read_bytes())
    return content


def test_the_record_covers_this_code(record: dict[str, Any]) -> None:
    """Nobody needs a GPU to pass the tests; ``make release-check`` fails where this warns."""
    assert record["covered"]
    if message := stale_message(record):
        warnings.warn(message, stacklevel=1)


def test_all_recorded_gpu_tests_passed_or_were_skipped_for_want_of_hardware(
    record: dict[str, Any],
) -> None:
    assert record["failed"] == []
    assert record["passed"] > 100
    assert [skip for skip in record["skipped"] if not skip.startswith(ALLOWED_SKIPS)] == []


def test_every_file_with_gpu_tests_is_run() -> None:
    names = {path.relative_to(ROOT / "tests").as_posix() for path in gpu_test_files()}
    expected = {"models/kernels/test_kernels.py", "train/test_step.py", "machine/test_devices.py"}
    assert names >= expected


MODULE = '''
"""A module."""

import torch

LIMIT = 3
"""An attribute."""


class Model:
    """A class."""

    def forward(self, x):
        """Return it."""
        return f"{x}" + str(LIMIT)  # why

    def unused(self):
        return 1


def helper():
    return 2


@triton.jit
def kernel(x):
    return x
'''
CALLED = ["Model.forward"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""A module."""', ""),
        ('"""Return it."""', '"""Return another thing."""'),
        ('"""An attribute."""\n', ""),
        ("  # why", ""),
        ("LIMIT = 3", "LIMIT = (3)"),
        ("return 1", "return 10"),  # never called
        ("return 2", "return 20"),
        ("def helper():\n    return 2\n", ""),
    ],
)
def test_how_code_is_written_and_what_is_never_called_do_not_count(before: str, after: str) -> None:
    assert before in MODULE
    changed = MODULE.replace(before, after)
    assert code_digest(changed, CALLED) == code_digest(MODULE, CALLED)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = '3'"),
        ("self, x)", "self, x, y=None)"),
        ("class Model:", "class Model(Base):"),
        ('f"{x}"', 'f"{x} "'),
        ("    return x\n", "    return x + 1\n"),  # Python never calls a kernel
        ("def helper", "@pytest.mark.gpu\ndef helper"),  # a new GPU test
        ("import torch", "import torch, os"),
    ],
)
def test_what_code_does_counts(before: str, after: str) -> None:
    assert before in MODULE
    assert code_digest(MODULE.replace(before, after), CALLED) != code_digest(MODULE, CALLED)


def test_a_digest_does_not_depend_on_the_version_of_python() -> None:
    digest = "e9bc197fcde3198cc3bf18046d28b42cd1a6f4847bd3de79ae5e1ea3ea7e167e"
    assert code_digest(MODULE, CALLED) == digest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch", True),
        ("from torch.nn import functional", True),
        ("def f():\n    import triton.language as tl", True),
        ("import torchvision", False),
        ("from . import torch", False),
        ("text = 'import torch'", False),
    ],
)
def test_files_that_import_torch(source: str, expected: bool) -> None:
    assert imports_torch(source) == expected


def test_changed_and_missing_files_are_named_and_those_without_torch_are_not_covered(
    tmp_path: Path,
) -> None:
    for name in ("same.py", "changed.py", "gone.py"):
        (tmp_path / name).write_text(MODULE, encoding="utf-8")
    (tmp_path / "plain.py").write_text("def f(): return 1", encoding="utf-8")
    called = merged([{"same.py": CALLED, "plain.py": ["f"]}, {"changed.py": CALLED, "gone.py": []}])
    record = {"covered": covered(called, tmp_path)}
    assert list(record["covered"]) == ["changed.py", "gone.py", "same.py"]
    assert changed_files(record, tmp_path) == []
    (tmp_path / "changed.py").write_text(MODULE.replace("LIMIT = 3", "LIMIT = 4"), encoding="utf-8")
    (tmp_path / "same.py").write_text(MODULE + "\n\n# a comment\n", encoding="utf-8")
    (tmp_path / "gone.py").unlink()
    assert changed_files(record, tmp_path) == ["changed.py", "gone.py"]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernel.py").write_text(MODULE, encoding="utf-8")
    changed = ["changed.py (Model.forward)", "gone.py (module level)", "src/kernel.py (new)"]
    assert stale(record, tmp_path) == changed
    message = stale_message({**record, "device": "H200", "commit": "0123456789"}, tmp_path)
    assert all(line in message for line in (*changed, "H200 (commit 01234567)", "make test-gpu"))


def test_functions_of_several_processes_are_merged() -> None:
    assert merged([{"a": ["f"]}, {"a": ["g"], "b": []}]) == {"a": ["f", "g"], "b": []}


def test_outcomes_are_counted_with_names_and_reasons() -> None:
    xml = """
    <testsuite>
      <testcase classname="tests.a" name="one"/>
      <testcase classname="tests.a" name="two"><failure/></testcase>
      <testcase classname="tests.a" name="three"><error/></testcase>
      <testcase classname="tests.a" name="four"><skipped message="fp32 tiles"/></testcase>
    </testsuite>
    """
    assert outcomes(ElementTree.fromstring(xml).iter("testcase")) == {
        "passed": 1,
        "failed": ["tests.a.three", "tests.a.two"],
        "skipped": {"fp32 tiles": 1},
    }


def test_functions_that_gpu_tests_call_are_recorded_in_all_threads(tmp_path: Path) -> None:
    sample = """
    import threading

    import pytest

    from vflops import text, units


    @pytest.fixture
    def setup():
        units.shape((1, 2))


    @pytest.mark.gpu
    def test_gpu(setup):
        thread = threading.Thread(target=units.percent, args=(0.5,))
        thread.start()
        thread.join()


    def test_cpu():
        text.printable("a")
    """
    (tmp_path / "test_sample.py").write_text(dedent(sample), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-p", "tools.called_functions", "test_sample.py"]
    paths = (str(ROOT), str(ROOT / "src"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        FOLDER_VARIABLE: str(tmp_path),
    }
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = tmp_path.glob("*.json")
    called = json.loads(written.read_bytes())
    assert list(called) == ["src/vflops/units.py"]
    assert "percent" in called["src/vflops/units.py"]
    assert "shape" not in called["src/vflops/units.py"]
