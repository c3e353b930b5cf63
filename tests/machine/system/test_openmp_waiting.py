"""OpenMP threads wait as the user chose, or else spin briefly; the description says which."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vflops.launch import agent
from vflops.launch.job_script import NODE_CHECK
from vflops.machine.system.framework import framework_facts
from vflops.machine.system.openmp_waiting import (
    SPINS,
    VARIABLES,
    set_waiting_policy,
    waiting_policy,
)
from vflops.record.formats.system import Fact


@pytest.fixture(autouse=True)
def _unset() -> Iterator[None]:
    before = dict(os.environ)
    for name in VARIABLES:
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


def fact() -> Fact:
    (found,) = (item for item in framework_facts(None) if item.name == "OpenMP waiting")
    return found


def test_threads_spin_briefly_by_default() -> None:
    set_waiting_policy()
    assert os.environ["GOMP_SPINCOUNT"] == str(SPINS)
    assert fact().value == f"GOMP_SPINCOUNT={SPINS}"


@pytest.mark.parametrize("name", VARIABLES)
def test_the_users_own_choice_is_kept(name: str) -> None:
    os.environ[name] = "7"
    set_waiting_policy()
    assert [other for other in VARIABLES if other in os.environ] == [name]
    assert waiting_policy() == fact().value == f"{name}=7"


def test_without_a_policy_the_library_chooses() -> None:
    assert waiting_policy() is None
    assert fact().reason == "no variable is set, the library chooses"


def test_an_agent_sets_the_policy_of_its_ranks(tmp_path: Path) -> None:
    agent.main(str(tmp_path), "1")  # fails, because there is no run
    assert os.environ["GOMP_SPINCOUNT"] == str(SPINS)


SHOW = """
import os, runpy, sys
class Torch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch sees", os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Torch())
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "words", [("vflops", "micro", "gemm"), (NODE_CHECK[-1], "RUN", "1", "1")], ids=["cli", "node"]
)
def test_the_policy_is_set_before_torch_is_imported(words: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == [f"torch sees {SPINS}"], done.stderr
