"""The libraries that do the arithmetic: CUDA, cuDNN and cuBLAS, ROCm, oneDNN and the CPU's BLAS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from vflops.machine.probe import AbsentError, fact, missing, text
from vflops.machine.system.vendor import Vendor
from vflops.record.formats.system import Fact


def accelerator_library_facts(
    torch: Any, nvidia: Vendor, root: Path, environ: Mapping[str, str]
) -> list[Fact]:
    """Facts of the libraries below torch, as torch was built with them or loads them."""
    return [
        fact("nvidia driver", f"{nvidia.source} and /sys/module", lambda: _driver(nvidia, root)),
        fact("cuda of driver", nvidia.source, nvidia.cuda),
        fact("cuda", "torch", lambda: torch.version.cuda or missing("torch is built without CUDA")),
        fact("cudnn", "torch", lambda: _cudnn(torch)),
        fact("cublas", "package nvidia-cublas", lambda: _cublas(torch, environ)),
        fact("rocm", "torch", lambda: torch.version.hip or missing("torch is built without ROCm")),
        fact("onednn", "torch", lambda: _built_with(torch, r"(?:MKL-DNN|oneDNN) v(\S+)", "oneDNN")),
        fact(
            "mkl",
            "torch",
            lambda: _built_with(torch, r"Math Kernel Library Version (\S+?)(?:-Product)? ", "MKL"),
        ),
        fact("blas", "torch", lambda: _built_with(torch, r"BLAS_INFO=(\w+)", "a named BLAS")),
        fact("cpu kernels", "torch", lambda: str(torch.backends.cpu.get_cpu_capability())),
    ]


def _driver(nvidia: Vendor, root: Path) -> str:
    module = root / "sys/module/nvidia/version"
    try:
        return nvidia.driver()
    except AbsentError:
        if module.is_file():
            return text(module)
        raise


def _cudnn(torch: Any) -> str:
    """91002 as ``9.10.2``; before version 9 there were four digits, 8902 as ``8.9.2``."""
    version = torch.backends.cudnn.version()
    if version is None:
        raise AbsentError("torch is built without cuDNN, or sees no device for it")
    major, rest = divmod(int(version), 10000 if version >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _cublas(torch: Any, environ: Mapping[str, str]) -> str:
    if not torch.version.cuda:
        raise AbsentError("torch is built without CUDA")
    major = str(torch.version.cuda).partition(".")[0]
    for package in (f"nvidia-cublas-cu{major}", "nvidia-cublas"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    # NVIDIA's own containers have no such package, but this variable.
    return environ.get("CUBLAS_VERSION") or missing(
        "neither a package nvidia-cublas nor CUBLAS_VERSION tells"
    )


def _built_with(torch: Any, pattern: str, name: str) -> str:
    match = re.search(pattern, torch.__config__.show())
    return match[1] if match else missing(f"torch's build settings name no {name}")
