"""Versions of libraries, as torch and commands report them."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.system_fakes import FakeNvml, fake_torch, named, script, tree, value
from vflops.machine.system.accelerator_libraries import accelerator_library_facts
from vflops.machine.system.communication_libraries import communication_facts
from vflops.machine.system.cpu_precisions import cpu_precisions, cuda_precisions
from vflops.machine.system.nvidia import NVIDIA_FIGURES, Nvidia
from vflops.machine.system.programming_model import programming_model_facts
from vflops.machine.system.torch_module import NoTorch
from vflops.machine.system.vendor import NoVendor
from vflops.record.formats.system import Fact

ARM_BUILD = "PyTorch built with:\n - Intel(R) MKL-DNN v3.5.3 (Git Hash 6)\n - BLAS_INFO=open, X=1"
NO_NVML = NoVendor("NVML", "no driver", NVIDIA_FIGURES)


def libraries(torch: Any, root: Path, **environ: str) -> list[Fact]:
    return accelerator_library_facts(torch, NO_NVML, root, environ)


@pytest.mark.parametrize(("number", "version"), [(91002, "9.10.2"), (8902, "8.9.2")])
def test_cudnn_numbers_its_versions_in_two_ways(tmp_path: Path, number: int, version: str) -> None:
    torch = fake_torch()
    torch.backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: number))
    assert value(libraries(torch, tmp_path), "cudnn") == version


def test_build_settings_without_mkl_say_so(tmp_path: Path) -> None:
    torch = fake_torch()
    torch.__config__ = SimpleNamespace(show=lambda: ARM_BUILD)
    facts = libraries(torch, tmp_path)
    assert (value(facts, "onednn"), value(facts, "blas")) == ("3.5.3", "open")
    assert named(facts, "mkl").reason == "torch's build settings do not mention MKL"


def test_the_real_torch_names_its_cpu_libraries(tmp_path: Path) -> None:
    import torch

    facts = libraries(torch, tmp_path)
    assert str(value(facts, "onednn")) in torch.__config__.show()
    assert value(facts, "cpu kernels") == torch.backends.cpu.get_cpu_capability()


def test_cublas_is_that_of_the_cuda_that_torch_is_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {"nvidia-cublas-cu12": "12.8.4.1", "nvidia-cublas-cu13": "13.0.0"}

    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(metadata, "version", version)
    assert value(libraries(fake_torch(), tmp_path), "cublas") == "12.8.4.1"
    packages.clear()
    assert value(libraries(fake_torch(), tmp_path, CUBLAS_VERSION="12.9"), "cublas") == "12.9"
    assert "neither a package" in str(named(libraries(fake_torch(), tmp_path), "cublas").reason)


def test_the_driver_is_known_without_nvml(tmp_path: Path) -> None:
    assert named(libraries(fake_torch(), tmp_path), "nvidia driver").reason == "no driver"
    root = tree(tmp_path, {"sys/module/nvidia/version": "550.54.15\n"})
    assert value(libraries(fake_torch(), root), "nvidia driver") == "550.54.15"
    with_nvml = accelerator_library_facts(fake_torch(), Nvidia(FakeNvml()), root, {})
    assert value(with_nvml, "nvidia driver") == "570.86.15"


def test_nccl_has_the_version_that_torch_loads() -> None:
    assert value(communication_facts(fake_torch(), {}), "nccl") == "2.26.2"


def test_every_fact_of_torch_says_that_it_was_not_imported() -> None:
    facts = communication_facts(NoTorch("torch was not imported"), {})
    assert named(facts, "nccl").reason == "torch was not imported"
    assert named(facts, "gloo in torch").reason == "torch was not imported"


OPEN_MPI = 'echo "mpirun (Open MPI) 5.0.5"; echo "Report bugs to https://www.open-mpi.org"'
HYDRA = 'echo "HYDRA build details:"; echo "    Version:      4.2.1"; echo "    CC: gcc"'
INTEL = 'echo "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515"'


@pytest.mark.parametrize(
    ("starter", "lines", "version"),
    [
        ("mpirun", OPEN_MPI, "Open MPI 5.0.5"),
        ("mpiexec", HYDRA, "MPICH 4.2.1"),
        ("mpirun", INTEL, "Intel MPI 2021.13"),
        ("mpirun", 'echo "Other MPI 1"', "Other MPI 1"),
    ],
)
def test_mpi_by_what_its_starter_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter: str, lines: str, version: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path, starter, lines)
    assert value(communication_facts(fake_torch(), {}), "mpi") == version


def test_cray_mpich_has_no_mpirun_but_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    facts = communication_facts(fake_torch(), {"CRAY_MPICH_VERSION": "8.1.29"})
    assert value(facts, "mpi") == "Cray MPICH 8.1.29"
    without = communication_facts(fake_torch(), {})
    assert named(without, "mpi").reason == "neither mpirun nor mpiexec is on PATH"


def test_ucx_and_libfabric_by_what_they_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path, "ucx_info", 'echo "# Library version: 1.16.0"; echo "# API headers"')
    script(tmp_path, "fi_info", 'echo "fi_info: 1.20.1"; echo "libfabric: 1.21.0"')
    facts = communication_facts(fake_torch(), {})
    assert (value(facts, "ucx"), value(facts, "libfabric")) == ("1.16.0", "1.21.0")


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [
        ((7, 0), "fp64 fp32 fp16 int8"),
        ((8, 0), "fp64 fp32 tf32 bf16 fp16 int8"),
        ((8, 9), "fp64 fp32 tf32 bf16 fp16 fp8 int8"),
        ((12, 0), "fp64 fp32 tf32 bf16 fp16 fp8 int8"),
    ],
)
def test_precisions_of_cuda_devices(capability: tuple[int, int], precisions: str) -> None:
    assert cuda_precisions(*capability) == precisions


def test_precisions_of_cpus() -> None:
    assert cpu_precisions({"avx2"}) == "fp64 fp32"
    assert cpu_precisions({"avx512_bf16", "avx512_fp16"}) == "fp64 fp32 bf16 fp16"
    assert cpu_precisions({"asimdhp"}) == "fp64 fp32 fp16"


def test_compiling_needs_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = programming_model_facts(fake_torch(), tmp_path, {"CXX": "my-c++"})
    assert named(facts, "c++ compiler").reason == "my-c++ is not on PATH"
    assert "lacks my-c++" in str(value(facts, "torch.compile for cpu"))
    script(tmp_path, "my-c++", 'echo "my-c++ 14"; echo "no warranty"')
    facts = programming_model_facts(fake_torch(), tmp_path, {"CXX": "my-c++"})
    assert value(facts, "c++ compiler") == "my-c++ 14"
    assert "my-c++" not in str(value(facts, "torch.compile for cpu"))
