"""The command in the process of the tests is that of a process of its own, and leaves no trace."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from tests.support.programs import needs_process
from tests.support.sample_parts import Vflops

COMMANDS = (["list"], ["score", "nowhere"], ["run", "--oops"])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_here_says_what_it_says_alone(
    vflops: Vflops, vflops_alone: Vflops, words: list[str]
) -> None:
    here, alone = vflops(*words), vflops_alone(*words)
    said = alone.stderr.replace("python -m vflops", "__main__.py")
    assert (here.returncode, here.stdout, here.stderr) == (alone.returncode, alone.stdout, said)


def state() -> list[object]:
    return [
        dict(os.environ),
        Path.cwd(),
        list(sys.path),
        list(sys.argv),
        (sys.stdin, sys.stdout, sys.stderr),
        [os.fstat(number)[:3] for number in range(3)],
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
        tempfile.gettempdir(),
        torch.get_num_threads(),
    ]


def test_a_command_leaves_no_trace(vflops: Vflops, tmp_path: Path) -> None:
    (tmp_path / "own_model.py").write_text(
        "import os\nfrom torch import nn\n"
        "os.environ['TRACE'] = 'left'\n"
        "def build():\n    return nn.Linear(3, 2)\n"
    )
    before = state()
    done = vflops("count", "own_model:build", "--input", "3", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert state() == before
    assert "own_model" not in sys.modules


def test_variables_that_only_a_new_interpreter_reads_need_one() -> None:
    assert not needs_process({**os.environ, "WORD": "x"})
    assert needs_process({**os.environ, "PYTHONHASHSEED": "7"})
    assert needs_process({**os.environ, "OMP_NUM_THREADS": "7"})
