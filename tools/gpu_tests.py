"""Runs the GPU tests and records their outcome; ``make test-gpu`` on a machine with a GPU.

The tests of training and models run there on the CPUs, too, with the torch of that machine.

CI has no GPU. The record says on which code and which device these tests last passed, and holds a
digest of the code that they cover. If that code has changed since, ``make test`` warns, and
``make release-check`` (``python -m tools.gpu_tests --check``) fails.

Covered are the functions of ``src`` and ``tests`` that GPU tests call, with the module-level code
around them, and the Triton kernels, in files that import torch. Files without torch compute the
same on any device: tests without a GPU cover them, and a setting or a message that changes there
needs no GPU. A test process on a machine without git passes the commit as an argument.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools.called_functions import FOLDER_VARIABLE
from tools.code_digest import code_digest, imports_torch
from vflops.record.files import atomic

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "gpu-record.json"
PROCESSES = 12
"""Tests at a time on one GPU: most of their time is compilation on the CPU."""


def main(commit: str) -> int:
    """Run every test that is marked ``gpu``, then some without, and write the record."""
    import torch

    if sys.version_info < (3, 12):
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"this is Python {found}, which cannot tell what autograd's threads call: use Python "
            "3.12 or newer",
            file=sys.stderr,
        )
        return 2
    if not torch.accelerator.is_available():
        print("there is no accelerator here: the GPU tests would all be skipped", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        exit_code = _run_tests(results, Path(folder))
        cases = list(ElementTree.parse(results).iter("testcase"))
        called = merged(json.loads(path.read_bytes()) for path in Path(folder).glob("*.json"))
        exit_code = _run_tests_without_gpu(results) or exit_code
        others = list(ElementTree.parse(results).iter("testcase"))
    record = {
        "commit": commit,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "not CUDA",
        "torch": torch.__version__,
        **outcomes(cases),
        "without_gpu": outcomes(others),
        "covered": covered(called),
    }
    atomic.write_text(RECORD, json.dumps(record, indent=2) + "\n")
    print(json.dumps({**record, "covered": f"{len(called)} files"}, indent=2))
    return exit_code


def outcomes(cases: Iterable[ElementTree.Element]) -> dict[str, Any]:
    """Return the number of passed tests, the names of failed ones, and the reasons of skips."""
    cases = list(cases)
    skipped = Counter(
        str(reason.get("message")) for case in cases if (reason := case.find("skipped")) is not None
    )
    failed = sorted(
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    return {
        "passed": len(cases) - len(failed) - sum(skipped.values()),
        "failed": failed,
        "skipped": dict(sorted(skipped.items())),
    }


def merged(parts: Iterable[Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Return the functions called in any process, by file."""
    called: dict[str, set[str]] = {}
    for part in parts:
        for path, functions in part.items():
            called.setdefault(path, set()).update(functions)
    return {path: sorted(functions) for path, functions in sorted(called.items())}


def covered(called: Mapping[str, list[str]], root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Return the called functions of files that import torch, and the digest of their code."""
    sources = {path: (root / path).read_text(encoding="utf-8") for path in called}
    return {
        path: {"sha256": code_digest(sources[path], functions), "functions": functions}
        for path, functions in called.items()
        if imports_torch(sources[path])
    }


def changed_files(record: Mapping[str, Any], root: Path = ROOT) -> list[str]:
    """Return the files whose covered code is not that of the record, or that are gone."""
    return [
        path
        for path, entry in record["covered"].items()
        if not (root / path).is_file()
        or entry["sha256"]
        != code_digest((root / path).read_text(encoding="utf-8"), entry["functions"])
    ]


def stale(record: Mapping[str, Any], root: Path = ROOT) -> list[str]:
    """Return what the record does not cover: changed files, and new GPU tests and kernels."""
    changed = [
        f"{path} ({', '.join(record['covered'][path]['functions']) or 'module level'})"
        for path in changed_files(record, root)
    ]
    kernels = [path for path in (root / "src").rglob("*.py") if "@triton.jit" in path.read_text()]
    tests = [path for path in gpu_test_files(root) if imports_torch(path.read_text())]
    names = {path.relative_to(root).as_posix() for path in (*tests, *kernels)}
    return changed + [f"{name} (new)" for name in sorted(names - record["covered"].keys())]


def stale_message(record: Mapping[str, Any], root: Path = ROOT) -> str:
    """Return a warning that lists the changed code and the remedy; empty if the record is valid."""
    lines = stale(record, root)
    if not lines:
        return ""
    return (
        f"changed since the GPU tests ran on {record['device']} (commit {record['commit'][:8]}), "
        "each file with its functions that GPU tests call:\n  "
        + "\n  ".join(lines)
        + "\nbefore a release, run `make test-gpu` on a machine with a GPU and commit "
        "tests/gpu-record.json"
    )


def check() -> int:
    """Print what has changed since the record; return 1 if anything has."""
    message = stale_message(json.loads(RECORD.read_bytes()))
    print(message or "the GPU tests passed on this code", file=sys.stderr if message else None)
    return int(bool(message))


def gpu_test_files(root: Path = ROOT) -> list[Path]:
    """Return the test files with GPU tests: the machine may lack what the other files import."""
    files = sorted((root / "tests").rglob("test_*.py"))
    mark = re.compile(r"mark\.gpu|kernel_test|@on_both")
    return [path for path in files if mark.search(path.read_text(encoding="utf-8"))]


def _run_tests(results: Path, folder: Path) -> int:
    words = ["-m", "gpu", "-p", "tools.called_functions", *map(str, gpu_test_files())]
    return _pytest(words, results, {FOLDER_VARIABLE: str(folder)})


def _run_tests_without_gpu(results: Path) -> int:
    """Run the tests of training and models on the CPUs: this machine may have the oldest torch."""
    words = ["-m", "not gpu and not cluster and not frameworks", "tests/train", "tests/models"]
    return _pytest(words, results, {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})


def _pytest(words: Sequence[str], results: Path, variables: Mapping[str, str]) -> int:
    command = ["pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}", *words]
    if find_spec("xdist") is not None:
        command += ["-n", str(PROCESSES), "--dist", "worksteal"]
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=False)
    return done.returncode


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(
        check()
        if sys.argv[1:] == ["--check"]
        else main(sys.argv[1] if len(sys.argv) > 1 else _commit())
    )
