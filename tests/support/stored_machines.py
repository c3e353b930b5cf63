"""Strange machines, stored in the folder ``machines``: one text file per machine.

A file starts with a comment and with lines that describe what cannot be read from files, and what
is expected:

    gpus 8                                 the number of H200 that torch and NVML see
    environ NAME=VALUE                     an environment variable
    expect LAYER: FACT = VALUE             a fact of ``system.json``
    expect LAYER: FACT is absent           the same, for a fact without a value
    last_level_cache BYTES                 absent if the kernel does not list the caches
    usable_cpus COUNT                      how many CPUs' time the process may use

The rest are the files of the machine: a header ``=== PATH`` and the content, up to the next header.
With ``=== PATH for 0-3,8`` the content is repeated for each number ``n``, in files of their own if
the path contains ``{n}``. Expressions in braces are evaluated. ``=== PATH -> TARGET`` is a link.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.system_fakes import FakeNvml, fake_torch, tree
from vflops.machine import host
from vflops.machine.probe import numbers
from vflops.machine.system import cpu_share
from vflops.machine.system import gather as gather_module
from vflops.machine.system.torch_module import load_torch
from vflops.record.formats.system import SystemRecord

_FOLDER = Path(__file__).parent / "machines"
MACHINES = sorted(path.stem for path in _FOLDER.glob("*.txt"))
LAUNCHER = 42
"""The PID of the launcher on every machine."""


@dataclass(frozen=True)
class Expected:
    """A fact that a machine must or must not have."""

    layer: str
    name: str
    value: str | None


@dataclass(frozen=True)
class Machine:
    """A stored machine, whose files were written to ``root``."""

    name: str
    root: Path
    gpus: int
    environ: dict[str, str]
    facts: tuple[Expected, ...]
    last_level_cache_bytes: int | None
    usable_cpus: int
    cores: tuple[int, ...]
    """The numbers of the CPUs that the process may run on."""

    def gather(self, folder: Path, **options: Any) -> SystemRecord:
        """Return the description of this machine by the real code."""
        with pytest.MonkeyPatch.context() as patch:
            self.become(patch)
            return gather_module.gather(folder, root=self.root, environ=self.environ, **options)

    def become(self, patch: pytest.MonkeyPatch) -> None:
        """Let torch, NVML and the kernel answer as on this machine."""
        uuids = [f"{index:04x}" for index in range(self.gpus)]
        patch.setitem(sys.modules, "pynvml", FakeNvml(uuids) if self.gpus else None)
        patch.setattr(
            *(gather_module, "load_torch"),
            lambda wanted: _TorchWithGpus(uuids) if wanted else load_torch(wanted),
        )
        patch.setattr(host, "_ROOT", self.root)
        patch.setattr(cpu_share, "_ROOT", self.root)
        patch.setattr(os, "sched_getaffinity", lambda pid: set(self.cores))


class _TorchWithGpus:
    """The real torch, but for the accelerators that it sees."""

    def __init__(self, uuids: list[str]) -> None:
        import torch

        self._torch, fake = torch, fake_torch(uuids)
        self.accelerator, self.cuda = fake.accelerator, fake.cuda
        self.version = SimpleNamespace(**{**vars(torch.version), "cuda": None, "hip": None})
        if uuids:
            self.version.cuda = fake.version.cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def write_machine(name: str, root: Path) -> Machine:
    """Write the files of the machine called ``name`` to ``root``."""
    head, *sections = re.split(r"^=== ", (_FOLDER / f"{name}.txt").read_text(), flags=re.MULTILINE)
    for section in sections:
        header, _, content = section.partition("\n")
        path, _, target = header.partition(" for ")[0].partition(" -> ")
        files = _repeated(path, target or content, header.partition(" for ")[2])
        if target:
            for link, target in files.items():
                (root / link).parent.mkdir(parents=True, exist_ok=True)
                (root / link).symlink_to(target)
        else:
            tree(root, files)
    status = (root / "proc/self/status").read_text()
    fields = ["S", "1", *["0"] * 9, "500", "0", "0", "0", "20", "0", "1", "0", "9", "0", "1000"]
    tree(
        root,
        {
            f"proc/{LAUNCHER}/status": status,
            f"proc/{LAUNCHER}/stat": f"{LAUNCHER} (vflops) {' '.join(fields)}\n",
            f"proc/{LAUNCHER}/io": "read_bytes: 4096\nwrite_bytes: 8192\n",
        },
    )
    words = [line.partition(" ") for line in head.splitlines() if line and line[0] != "#"]
    values: dict[str, list[str]] = {}
    for key, _, value in words:
        values.setdefault(key, []).append(_evaluated(value))
    return Machine(
        name=name,
        root=root,
        gpus=int(values.get("gpus", ["0"])[0]),
        environ=dict(_pair(line) for line in values.get("environ", [])),
        facts=tuple(_expected(line) for line in values["expect"]),
        last_level_cache_bytes=next(map(int, values.get("last_level_cache", [])), None),
        usable_cpus=int(values["usable_cpus"][0]),
        cores=tuple(numbers(status.partition("Cpus_allowed_list:")[2])),
    )


def _repeated(path: str, content: str, listed: str) -> dict[str, str]:
    """Return the content of each path; a path without ``{n}`` has all contents in a row."""
    files: dict[str, str] = {}
    for number in numbers(listed) if listed else [0]:
        name = _evaluated(path, number)
        files[name] = files.get(name, "") + _evaluated(content, number)
    return files


def _evaluated(text: str, n: int = 0) -> str:
    return re.sub(r"\{([^}]+)\}", lambda found: str(eval(found[1], {"n": n})), text)


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name, value


def _expected(line: str) -> Expected:
    layer, _, rest = line.partition(": ")
    if rest.endswith(" is absent"):
        return Expected(layer, rest.removesuffix(" is absent"), None)
    name, _, value = rest.partition(" = ")
    return Expected(layer, name, value.strip())
