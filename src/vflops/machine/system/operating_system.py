"""The operating system: distribution, kernel, container, and limits that affect training."""

from __future__ import annotations

import platform
import resource
from collections.abc import Mapping
from pathlib import Path

from vflops.machine.probe import fact, missing, text
from vflops.machine.system.container import container, virtualisation
from vflops.record.formats.system import Fact

_HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


def operating_system_facts(root: Path, environ: Mapping[str, str]) -> list[Fact]:
    """Return facts about the operating system, without host name and users."""
    return [
        fact("distribution", "/etc/os-release", lambda: _distribution(root)),
        # /proc/version also has the user and the host that built the kernel.
        fact(
            "kernel",
            "/proc/sys/kernel/osrelease",
            lambda: text(root / "proc/sys/kernel/osrelease"),
        ),
        fact("architecture", "uname", platform.machine),
        fact("c library", "python", lambda: " ".join(platform.libc_ver())),
        fact("container", "marks of known containers", lambda: container(root, environ)),
        fact("virtualisation", "/proc/cpuinfo and DMI", lambda: virtualisation(root)),
        fact("transparent huge pages", f"/{_HUGE_PAGES}", lambda: _huge_pages(root)),
        fact("locked memory limit", "getrlimit", _locked_memory, unit="B"),
    ]


def _distribution(root: Path) -> str:
    for line in text(root / "etc/os-release").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
    return missing("/etc/os-release has no PRETTY_NAME")


def _huge_pages(root: Path) -> str:
    """Return ``madvise`` for ``always [madvise] never``."""
    choices = text(root / _HUGE_PAGES).split()
    active = [choice.strip("[]") for choice in choices if choice.startswith("[")]
    return active[0] if active else missing("no value is marked as active")


def _locked_memory() -> int | str:
    """Return the memory that RDMA may pin; with a low limit, NCCL and MPI fail over InfiniBand."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else soft
