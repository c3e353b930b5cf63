"""The libraries for computation: CUDA, cuDNN, cuBLAS, ROCm, oneDNN and the BLAS of the CPU."""

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
    """Return facts about the libraries that torch was built with or loads."""
    return [
        fact("nvidia driver", f"{nvidia.source} and /sys/module", lambda: _driver(nvidia, root)),
        fact("cuda of driver", nvidia.source, nvidia.cuda),
        fact("cuda", "torch", lambda: torch.version.cuda or missing("torch is built without CUDA")),
        fact("cudnn", "torch", lambda: _cudnn(torch)),
        fact("cublas", "package nvidia-cublas", lambda: _cublas(torch, environ)),
        fact("rocm", "torch", lambda: torch.version.hip or missing("torch is built without ROCm")),
        fact(
            "onednn", "torch", lambda: _build_setting(torch, r"(?:MKL-DNN|oneDNN) v(\S+)", "oneDNN")
        ),
        fact(
            "mkl",
            "torch",
            lambda: _build_setting(
                torch, r"Math Kernel Library Version (\S+?)(?:-Product)? ", "MKL"
            ),
        ),
        fact("blas", "torch", lambda: _build_setting(torch, r"BLAS_INFO=(\w+)", "a BLAS library")),
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
    """Return ``9.10.2`` for 91002, or ``8.9.2`` for 8902: versions before 9 have four digits."""
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
    # NVIDIA's containers set this variable instead of having such a package.
    return environ.get("CUBLAS_VERSION") or missing(
        "there is neither a package nvidia-cublas nor the variable CUBLAS_VERSION"
    )


def _build_setting(torch: Any, pattern: str, name: str) -> str:
    match = re.search(pattern, torch.__config__.show())
    return match[1] if match else missing(f"torch's build settings do not mention {name}")
