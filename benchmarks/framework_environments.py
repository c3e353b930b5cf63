"""The interpreters that have a framework: TensorFlow and MindSpore have environments of their own.

Benchmarks measure each framework in a process of its own, with the first interpreter that has it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from vflops.config.frameworks import FRAMEWORKS, NAMES

_ROOT = Path(__file__).resolve().parents[1]
_ENVIRONMENTS = (".venv-tensorflow", ".venv-mindspore")
"""Those that ``make test-frameworks`` installs."""


def add_options(parser: argparse.ArgumentParser, *others: str) -> None:
    """Add ``--frameworks`` and ``--python``; ``others`` are measured besides frameworks."""
    names = ",".join((*NAMES, *others))
    parser.add_argument("--frameworks", help=f"some of {names}; by default all installed ones")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        help="another interpreter to look for frameworks in; by default also those of "
        "make test-frameworks",
    )


def interpreters(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the interpreter of each framework that is asked for and installed."""
    found = [str(_ROOT / name / "bin" / "python") for name in _ENVIRONMENTS]
    candidates = [sys.executable, *arguments.python, *filter(lambda p: Path(p).exists(), found)]
    asked = arguments.frameworks.split(",") if arguments.frameworks else NAMES
    chosen: dict[str, str] = {}
    for name in asked:
        package = FRAMEWORKS[name].package if name in FRAMEWORKS else "torch"
        for python in candidates:
            if name not in chosen and _has(python, package):
                chosen[name] = python
        if name not in chosen:
            print(f"{name}: not installed in {', '.join(candidates)}", file=sys.stderr)
    return chosen


def measured(python: str, module: str, *words: str) -> Any:
    """Run a benchmark's module in a new process, and return the JSON on its last line of output.

    Return None, and print the last line of its errors, if it fails.
    """
    done = subprocess.run(
        [python, "-m", module, *words], capture_output=True, text=True, check=False, cwd=_ROOT
    )
    if done.returncode:
        print(f"{' '.join(words)}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def _has(python: str, package: str) -> bool:
    program = f"import importlib.util; raise SystemExit(not importlib.util.find_spec({package!r}))"
    return not subprocess.run([python, "-c", program], check=False, cwd="/").returncode
