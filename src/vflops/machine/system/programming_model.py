"""The programming model: precisions, compilers and communication back ends."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vflops.machine.probe import AbsentError, command, fact
from vflops.machine.system.cpu_info import CpuInfo
from vflops.machine.system.cpu_precisions import cpu_precisions, cuda_precisions
from vflops.machine.system.torch_module import accelerator_kind
from vflops.record.formats.system import Fact

_BACK_ENDS = ("nccl", "gloo", "mpi", "ucc", "xccl")


def programming_model_facts(torch: Any, root: Path, environ: Mapping[str, str]) -> list[Fact]:
    """Return facts about how programs for this system compute, compile and communicate."""
    cxx = environ.get("CXX") or "g++"  # as torch.compile does
    cc = environ.get("CC") or "gcc"  # as triton does
    path = "PATH and sysconfig"
    return [
        fact("default precision", "torch", lambda: _default(torch)),
        fact("fp32 matrix products", "torch", lambda: str(torch.get_float32_matmul_precision())),
        fact("cpu precisions", "/proc/cpuinfo", lambda: cpu_precisions(CpuInfo.read(root).flags())),
        fact("accelerator precisions", "torch", lambda: _precisions(torch)),
        fact("c++ compiler", "$CXX or g++", lambda: command(cxx, "--version").splitlines()[0]),
        fact("torch.compile for cpu", path, lambda: _verdict(_tools_missing(cxx))),
        fact("torch.compile for accelerator", path, lambda: _compiles_for_accelerator(torch, cc)),
        fact("distributed back ends", "torch", lambda: _back_ends(torch)),
    ]


def _default(torch: Any) -> str:
    return str(torch.get_default_dtype()).removeprefix("torch.")


def _precisions(torch: Any) -> str:
    kind = accelerator_kind(torch)
    if kind != "cuda":
        raise AbsentError(f"vflops has no table of the precisions of {kind}")
    return cuda_precisions(*torch.cuda.get_device_capability())


def _compiles_for_accelerator(torch: Any, cc: str) -> str:
    accelerator_kind(torch)
    return _verdict([*_tools_missing(cc), *([] if find_spec("triton") else ["triton"])])


def _verdict(missing_tools: list[str]) -> str:
    """Return whether torch.compile has its tools, without compiling, which would take seconds."""
    return f"lacks {', '.join(missing_tools)}" if missing_tools else "has its tools"


def _tools_missing(compiler: str) -> list[str]:
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    tools = {compiler: shutil.which(compiler), "Python.h": headers.is_file()}
    return [name for name, present in tools.items() if not present]


def _back_ends(torch: Any) -> str:
    if not torch.distributed.is_available():
        raise AbsentError("this build of torch has no torch.distributed")
    checks = {name: getattr(torch.distributed, f"is_{name}_available") for name in _BACK_ENDS}
    return ", ".join(name for name, is_available in checks.items() if is_available()) or "none"
