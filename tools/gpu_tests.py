"""Runs the GPU tests and records their outcome; ``make test-gpu`` on a machine with a GPU.

CI has no GPU. The record says on which code and which device these tests last passed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "gpu-record.json"


def main(commit: str) -> int:
    """Run every test that is marked ``gpu`` and write ``tests/gpu-record.json``."""
    import torch

    if not torch.accelerator.is_available():
        print("there is no accelerator here: the GPU tests would all be skipped", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = ["pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={results}"]
        command += [str(path) for path in _files()]
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False)
        cases = list(ElementTree.parse(results).iter("testcase"))
    skipped = Counter(
        str(reason.get("message")) for case in cases if (reason := case.find("skipped")) is not None
    )
    failed = sorted(
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    record = {
        "commit": commit,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "not CUDA",
        "torch": torch.__version__,
        "passed": len(cases) - len(failed) - sum(skipped.values()),
        "failed": failed,
        "skipped": dict(sorted(skipped.items())),
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=2))
    return done.returncode


def _files() -> list[Path]:
    """Return the test files with GPU tests: the machine may lack what the other files import."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in files if "mark.gpu" in path.read_text(encoding="utf-8")]


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else _commit()))
