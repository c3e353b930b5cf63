"""Runs parts of the tests on machines that differ from this one; ``make test-machines``.

The rows are in ``tools/machine_rows.py``. Each row leaves a log. A row that cannot be made on this
machine is listed with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.machine_rows import ROWS, Row

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "test-machines"
"""Logs and environments; not in git."""
_PYTEST = ("-m", "pytest", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider")
_SETUP_FAILED = 97
_PROGRESS_S = 5.0 if sys.stdout.isatty() else 60.0


class CannotMake(Exception):
    """Why this machine cannot be made to look like that of a row."""


@dataclass(frozen=True)
class Result:
    """The outcome of one row."""

    row: str
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""
    """Why the row was not run, or has no result."""

    def __str__(self) -> str:
        if self.note:
            return f"{self.row:15}  {textwrap.shorten(self.note, 160)}"
        counts = f"{self.passed:6} passed {self.failed:4} failed {self.skipped:4} skipped"
        return f"{self.row:15} {counts} {self.seconds:6.0f} s"


def main(arguments: Sequence[str]) -> int:
    """Run the chosen rows and print a table; 1 if a test failed, 2 for an unknown row."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_machines")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all rows if there is none")
    parser.add_argument("--tests", nargs="+", help="run these tests instead of the row's")
    chosen = parser.parse_args(arguments)
    names = [row.name for row in ROWS]
    if unknown := [name for name in chosen.rows if name not in names]:
        print(f"there is no row {unknown[0]}: choose from {', '.join(names)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    rows = [row for row in ROWS if row.name in (chosen.rows or names)]
    results = []
    for row in rows:
        results.append(run(row, chosen.tests or row.tests))
        print(results[-1], flush=True)
    if len(results) > 1:
        print("\n" + "\n".join(map(str, results)))
    print(f"logs are in {FOLDER}")
    return int(any(result.failed for result in results))


def run(row: Row, tests: Sequence[str]) -> Result:
    """Run these tests on the row's machine; their output is in ``test-machines/ROW.log``."""
    start_s = time.monotonic()
    log = FOLDER / f"{row.name}.log"
    report = FOLDER / f"{row.name}.xml"
    report.unlink(missing_ok=True)
    with ExitStack() as stack, log.open("w", encoding="utf-8") as output:
        try:
            _check(row)
            python = _environment(row) if row.install else sys.executable
            folder = ROOT
            if row.checkout:
                temporary = stack.enter_context(tempfile.TemporaryDirectory())
                folder = _checkout(Path(temporary) / row.checkout)
        except CannotMake as error:
            output.write(f"{error}\n")
            return Result(row.name, 0.0, note=f"not run: {error}")
        command = _command(row, python, folder, [*tests, f"--junitxml={folder / report.name}"])
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_variables(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _follow(process, row, log, start_s)
        if (folder / report.name).exists():
            shutil.move(folder / report.name, report)
    return _result(row, report, process.returncode, log, time.monotonic() - start_s)


def _check(row: Row) -> None:
    if row.unshare and os.geteuid() != 0:
        raise CannotMake(f"needs root for unshare {' '.join(row.unshare)}")
    if row.unshare:
        command = ["unshare", *row.unshare, "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotMake(f"{' '.join(command)}: {done.stderr.strip()}")


def _environment(row: Row) -> str:
    """Return the Python of the row's environment, after installing it with ``uv``."""
    beside = Path(sys.executable).parent
    pythons = Path.home().glob(".pyenv/versions/*/bin")  # its shims need a version to be chosen
    path = os.pathsep.join([os.environ["PATH"], str(beside), *map(str, pythons)])
    uv = shutil.which("uv", path=path)
    if uv is None:
        raise CannotMake("needs uv: pip install uv")
    folder = FOLDER / "environments" / row.name
    python = folder / "bin" / "python"
    version = row.python or f"{sys.version_info.major}.{sys.version_info.minor}"
    commands = [
        *([] if python.exists() else [["venv", "--python", version, str(folder)]]),
        ["pip", "install", "--python", str(python), *row.install],
    ]
    print(f"{row.name:15} installing …", flush=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in commands:
        done = subprocess.run(
            [uv, "--quiet", *command],
            cwd=ROOT,
            env=variables | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CannotMake(f"uv {' '.join(command)}: {' '.join(done.stderr.split())}")
    return str(python)


def _checkout(folder: Path) -> Path:
    """Copy the files of the repository, committed or not, to a folder that anyone can enter."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    folder.parent.chmod(0o755)
    return folder


def _command(row: Row, python: str, folder: Path, arguments: Sequence[str]) -> list[str]:
    lines = ["set -e", f"trap 'exit {_SETUP_FAILED}' ERR", row.setup, "trap - ERR", 'exec "$@"']
    unshare = ["unshare", *row.unshare] if row.unshare else []
    pytest = [python, *_PYTEST, *arguments]
    if row.checkout:
        pytest.append(f"--basetemp={folder / 'test files'}")
    return [*unshare, "bash", "-c", "\n".join(lines), "bash", *pytest]


def _variables(folder: Path) -> dict[str, str]:
    """Return the variables of the tests; the row's Bash may change them."""
    return {
        **os.environ,
        "PYTHONPATH": str(folder / "src"),
        "OMP_WAIT_POLICY": "passive",
        "PREFIX": sys.prefix,
        "BASE_PREFIX": sys.base_prefix,
    }


def _follow(process: subprocess.Popen[bytes], row: Row, log: Path, start_s: float) -> None:
    """Wait for the tests and print their progress."""
    try:
        while True:
            try:
                process.wait(_PROGRESS_S)
                return
            except subprocess.TimeoutExpired:
                shares = re.findall(r"\[ *(\d+)%\]", log.read_text(errors="replace"))
                done = f"{shares[-1] if shares else 0} %"
                end = "\r" if sys.stdout.isatty() else "\n"
                print(f"{row.name:15} {done:>5} {time.monotonic() - start_s:6.0f} s", end=end)
                sys.stdout.flush()
    finally:
        process.terminate()
        process.wait()


def _result(row: Row, report: Path, code: int, log: Path, seconds: float) -> Result:
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    if code == _SETUP_FAILED:
        return Result(row.name, seconds, note=f"not run: {' '.join(last)}")
    if not report.exists():
        return Result(row.name, seconds, failed=1, note=f"pytest failed: {' '.join(last)}")
    (suite,) = ElementTree.parse(report).iter("testsuite")
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    return Result(row.name, seconds, passed, failed, counts["skipped"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
