"""The framework: versions of torch, Python and packages that training uses."""

from __future__ import annotations

import platform
from functools import partial
from importlib import metadata
from typing import Any

import vflops
from vflops.machine.probe import AbsentError, fact
from vflops.machine.system.cpu_share import cpu_threads
from vflops.machine.system.openmp_waiting import waiting_policy
from vflops.record.formats.system import Fact


def framework_facts(torch: Any) -> list[Fact]:
    """Return facts about the framework in this process."""
    return [
        fact("torch", "torch", lambda: str(torch.__version__)),
        fact("torch commit", "torch", lambda: str(torch.version.git_version)),
        _threads(),
        fact("OpenMP waiting", "environment", _waiting),
        fact("torch threads between ops", "torch", lambda: int(torch.get_num_interop_threads())),
        fact("python", "python", _python),
        *(fact(name, f"package {name}", partial(_package, name)) for name in ("numpy", "triton")),
        fact("vflops", "vflops", lambda: vflops.__version__),
    ]


def _threads() -> Fact:
    """Return the number of CPU threads in ceilings and in a training on one rank."""
    threads = cpu_threads()
    return fact("torch threads", threads.source, lambda: threads.count)


def _waiting() -> str:
    """Return the variables that determine how OpenMP threads wait for each other."""
    policy = waiting_policy()
    if policy is None:
        raise AbsentError("no variable is set, the library chooses")
    return policy


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError as error:
        raise AbsentError("not installed") from error
