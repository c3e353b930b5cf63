"""Whether this process runs in a container, and in which kind of virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vflops.machine.probe import AbsentError, text
from vflops.machine.system.cpu_info import CpuInfo

_VARIABLES = {
    "APPTAINER_CONTAINER": "apptainer",
    "SINGULARITY_CONTAINER": "singularity",
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "SHIFTER_RUNTIME": "shifter",
    "CH_RUNNING": "charliecloud",
}
_FILES = {
    ".singularity.d": "apptainer",
    "run/.containerenv": "podman",
    ".dockerenv": "docker",
}
_CGROUPS = {"kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "lxc"}
_CLOCKS = {"kvm": "KVM", "hyperv": "Hyper-V", "xen": "Xen"}
_VM_WORDS = (
    *("qemu", "kvm", "vmware", "virtualbox", "innotek", "virtual machine", "xen", "bochs"),
    *("openstack", "google compute engine", "droplet", "parallels"),
)


def container(root: Path, environ: Mapping[str, str]) -> str:
    """Return the kind of container; ``none`` without any sign of one."""
    for variable, kind in _VARIABLES.items():
        if environ.get(variable):
            return kind
    cgroups = text(root / "proc/self/cgroup") if (root / "proc/self/cgroup").is_file() else ""
    if "kubepods" in cgroups:  # a pod also has the marks of its container engine
        return "kubernetes"
    for mark, kind in _FILES.items():
        if (root / mark).exists():
            return kind
    return next((kind for mark, kind in _CGROUPS.items() if mark in cgroups), "none")


def virtualisation(root: Path) -> str:
    """Return the hypervisor, as far as a guest can see it; ``none`` on bare metal."""
    maker = _maker(root)
    if _is_guest(root, maker):
        kind = _hypervisor(root) or "virtual machine"
        return f"{kind} ({maker})" if maker else kind
    return "none"


def _is_guest(root: Path, maker: str) -> bool:
    if any(word in maker.lower() for word in _VM_WORDS):
        return True
    info = CpuInfo.read(root)
    if any("flags" in cpu for cpu in info.cpus):
        return "hypervisor" in info.flags()
    if maker:
        return False
    raise AbsentError("neither the CPU flags nor a DMI table tell")


def _hypervisor(root: Path) -> str | None:
    """Return the hypervisor by the clocks that it offers to its guests."""
    clocks = root / "sys/devices/system/clocksource/clocksource0/available_clocksource"
    offered = text(clocks) if clocks.is_file() else ""
    return next((kind for mark, kind in _CLOCKS.items() if mark in offered), None)


def _maker(root: Path) -> str:
    files = (root / "sys/class/dmi/id" / name for name in ("sys_vendor", "product_name"))
    return " ".join(text(file) for file in files if file.is_file())
