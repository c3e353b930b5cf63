"""The kind of container and of virtual machine that this process runs in."""

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
    if "kubepods" in cgroups:  # a pod also has the files of its container engine
        return "kubernetes"
    for marker, kind in _FILES.items():
        if (root / marker).exists():
            return kind
    return next((kind for marker, kind in _CGROUPS.items() if marker in cgroups), "none")


def virtualisation(root: Path) -> str:
    """Return the hypervisor as visible to a guest; ``none`` on bare metal."""
    vendor = _vendor(root)
    if _is_guest(root, vendor):
        kind = _hypervisor(root) or "virtual machine"
        return f"{kind} ({vendor})" if vendor else kind
    return "none"


def _is_guest(root: Path, vendor: str) -> bool:
    if any(word in vendor.lower() for word in _VM_WORDS):
        return True
    info = CpuInfo.read(root)
    if any("flags" in cpu for cpu in info.cpus):
        return "hypervisor" in info.flags()
    if vendor:
        return False
    raise AbsentError("neither the CPU flags nor a DMI table show it")


def _hypervisor(root: Path) -> str | None:
    """Return the hypervisor, identified by the clock sources that it offers to guests."""
    clocks = root / "sys/devices/system/clocksource/clocksource0/available_clocksource"
    clock_sources = text(clocks) if clocks.is_file() else ""
    return next((kind for marker, kind in _CLOCKS.items() if marker in clock_sources), None)


def _vendor(root: Path) -> str:
    files = (root / "sys/class/dmi/id" / name for name in ("sys_vendor", "product_name"))
    return " ".join(text(file) for file in files if file.is_file())
