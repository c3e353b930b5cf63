"""The communication libraries, which move tensors between ranks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from typing import Any

from vflops.machine.probe import AbsentError, command, fact, missing
from vflops.record.formats.system import Fact

# Open MPI, MPICH's Hydra and Intel MPI.
_MPI = (
    (r"\(Open MPI\) (\S+)", "Open MPI"),
    (r"^\s*Version:\s+(\S+)", "MPICH"),
    (r"Intel\(R\) MPI Library.*Version (\S+)", "Intel MPI"),
)


def communication_facts(torch: Any, environ: Mapping[str, str]) -> list[Fact]:
    """Return facts about NCCL, gloo, MPI and the layers below them."""
    return [
        fact("nccl", "torch", lambda: _nccl(torch)),
        fact("gloo in torch", "torch", lambda: bool(torch.distributed.is_gloo_available())),
        fact("mpi in torch", "torch", lambda: bool(torch.distributed.is_mpi_available())),
        fact("mpi", "mpirun or mpiexec --version", lambda: _mpi(environ)),
        fact("ucx", "ucx_info -v", lambda: _version(r"(?i)version:? (\d\S*)", "ucx_info", "-v")),
        fact(
            "libfabric",
            "fi_info --version",
            lambda: _version(r"libfabric: (\S+)", "fi_info", "--version"),
        ),
    ]


def _nccl(torch: Any) -> str:
    if not torch.distributed.is_nccl_available():
        raise AbsentError("this build of torch has no NCCL")
    name = "RCCL " if torch.version.hip else ""
    return name + ".".join(str(part) for part in torch.cuda.nccl.version())


def _mpi(environ: Mapping[str, str]) -> str:
    if "CRAY_MPICH_VERSION" in environ:  # started by srun: there is no mpirun
        return f"Cray MPICH {environ['CRAY_MPICH_VERSION']}"
    launcher = next(filter(shutil.which, ("mpirun", "mpiexec")), None)
    output = command(launcher or missing("neither mpirun nor mpiexec is on PATH"), "--version")
    for pattern, name in _MPI:
        match = re.search(pattern, output, re.MULTILINE)
        if match:
            return f"{name} {match[1]}"
    return output.splitlines()[0]


def _version(pattern: str, *arguments: str) -> str:
    match = re.search(pattern, command(*arguments))
    if match is None:
        raise AbsentError(f"`{' '.join(arguments)}` names no version")
    return match[1]
