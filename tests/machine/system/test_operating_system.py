"""Distribution, container and hypervisor, from their marks."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.support.system_fakes import named, tree, value
from vflops.machine.probe import AbsentError
from vflops.machine.system.container import container, virtualisation
from vflops.machine.system.machine import machine_facts
from vflops.machine.system.operating_system import operating_system_facts

CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
DMI = "sys/class/dmi/id"
GUEST = "processor : 0\nflags : fpu hypervisor avx2\n"
METAL = "processor : 0\nflags : fpu avx2\n"
ARM = "processor : 0\nFeatures : asimd\n"


def test_distribution_kernel_and_huge_pages(tmp_path: Path) -> None:
    files = {
        "etc/os-release": 'NAME="Rocky"\nPRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\n',
        "proc/sys/kernel/osrelease": "5.14.0-427.el9.x86_64\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    }
    facts = operating_system_facts(tree(tmp_path, files), {})
    assert value(facts, "distribution") == "Rocky Linux 9.4 (Blue Onyx)"
    assert value(facts, "kernel") == "5.14.0-427.el9.x86_64"
    assert value(facts, "transparent huge pages") == "madvise"


@pytest.mark.parametrize(
    ("limit", "shown"), [(8 * 2**20, 8 * 2**20), (resource.RLIM_INFINITY, "unlimited")]
)
def test_locked_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, shown: int | str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, -1))
    assert value(operating_system_facts(tmp_path, {}), "locked memory limit") == shown


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({}, {}, "none"),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".singularity.d/runscript": ""}, {}, "apptainer"),
        ({}, {"APPTAINER_CONTAINER": "/home/alice/torch.sif"}, "apptainer"),
        ({}, {"SINGULARITY_CONTAINER": "/home/alice/torch.sif"}, "singularity"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({".dockerenv": "", "proc/self/cgroup": "0::/kubepods/pod1/x"}, {}, "kubernetes"),
        ({"proc/self/cgroup": "4:cpu:/docker/abc"}, {}, "docker"),
        ({"proc/self/cgroup": "0::/user.slice/libpod-abc.scope"}, {}, "podman"),
        ({"proc/self/cgroup": "0::/user.slice/user-0.slice"}, {}, "none"),
    ],
)
def test_containers_by_their_marks(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], kind: str
) -> None:
    assert container(tree(tmp_path, files), environ) == kind


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"proc/cpuinfo": METAL}, "none"),
        ({"proc/cpuinfo": GUEST}, "virtual machine"),
        ({"proc/cpuinfo": GUEST, CLOCKS: "tsc kvm-clock\n"}, "KVM"),
        (
            {"proc/cpuinfo": GUEST, f"{DMI}/sys_vendor": "Amazon EC2", CLOCKS: "kvm-clock tsc"},
            "KVM (Amazon EC2)",
        ),
        ({"proc/cpuinfo": METAL, f"{DMI}/sys_vendor": "Amazon EC2"}, "none"),
        ({"proc/cpuinfo": ARM, f"{DMI}/sys_vendor": "QEMU"}, "virtual machine (QEMU)"),
        ({"proc/cpuinfo": ARM, f"{DMI}/sys_vendor": "Supermicro"}, "none"),
    ],
)
def test_hypervisors_by_their_marks(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    assert virtualisation(tree(tmp_path, files)) == kind


def test_an_arm64_without_dmi_does_not_tell_whether_it_is_virtual(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="nor a DMI table show it"):
        virtualisation(tree(tmp_path, {"proc/cpuinfo": ARM}))


def test_the_maker_is_read_and_the_serial_number_is_not(tmp_path: Path) -> None:
    names = {"sys_vendor": "NVIDIA", "product_name": "DGXH100", "product_serial": "SN12345"}
    facts = machine_facts(
        tree(tmp_path, {f"{DMI}/{name}": content for name, content in names.items()})
    )
    assert [fact.value for fact in facts] == ["NVIDIA", "DGXH100"]


def test_a_machine_without_dmi_says_so(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path)
    assert named(facts, "machine model").reason == "the firmware provides no DMI table"
