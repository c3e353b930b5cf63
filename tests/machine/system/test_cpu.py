"""Processors of several machines, from their /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system_fakes import named, tree, value
from vflops.machine.system.cpu import cpu_facts

CPUS = "sys/devices/system/cpu"
XEON = """processor : {n}
model name : Intel(R) Xeon(R) Platinum 8480+
cpu MHz : {mhz}
physical id : {socket}
core id : {core}
flags : fpu avx2 fma avx512f avx512_bf16 amx_tile amx_bf16 sep
"""
GRACE = """processor : {n}
BogoMIPS : 2000.00
Features : fp asimd asimdhp bf16 i8mm sve sve2
CPU implementer : 0x41
CPU part : 0xd4f
"""


def two_sockets(root: Path) -> Path:
    """Two sockets of two cores of two threads, an L3 for each socket."""
    files = {
        "proc/cpuinfo": "\n".join(
            XEON.format(n=n, socket=n // 2 % 2, core=n % 2, mhz=1900 + 100 * n) for n in range(8)
        ),
        "proc/self/status": "Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,6\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        f"{CPUS}/online": "0-7\n",
        "sys/devices/system/node/online": "0-1\n",
    }
    for n in range(8):
        socket, core = n // 2 % 2, n % 4
        cpu = f"{CPUS}/cpu{n}"
        files |= {
            f"{cpu}/topology/physical_package_id": f"{socket}\n",
            f"{cpu}/topology/thread_siblings_list": f"{core},{core + 4}\n",
            f"{cpu}/cpufreq/cpuinfo_max_freq": "3800000\n" if n else "2000000\n",
            f"{cpu}/cpufreq/scaling_governor": "performance\n" if n else "powersave\n",
        }
        kinds = [("1", "Data", "48K", f"{core}"), ("3", "Unified", "107520K", f"{socket}")]
        for index, (level, kind, size, sharers) in enumerate(kinds):
            files |= {
                f"{cpu}/cache/index{index}/level": level,
                f"{cpu}/cache/index{index}/type": kind,
                f"{cpu}/cache/index{index}/size": size,
                f"{cpu}/cache/index{index}/shared_cpu_list": sharers,
            }
    return tree(root, files)


def test_two_sockets_with_threads(tmp_path: Path) -> None:
    facts = cpu_facts(two_sockets(tmp_path))
    counts = ("cpu sockets", "physical cores", "logical cpus", "numa nodes")
    assert [value(facts, name) for name in counts] == [2, 4, 8, 2]
    assert value(facts, "cpu model") == "Intel(R) Xeon(R) Platinum 8480+"


def test_clocks_are_in_mhz(tmp_path: Path) -> None:
    facts = cpu_facts(two_sockets(tmp_path))
    assert value(facts, "cpu clock max") == 3800
    assert value(facts, "cpu clock now") == 2250  # the median over the CPUs
    assert named(facts, "cpu clock max").unit == "MHz"


def test_arm64_has_its_clock_in_cpufreq_only(tmp_path: Path) -> None:
    clock = {f"{CPUS}/cpu0/cpufreq/scaling_cur_freq": "3402000\n"}
    facts = cpu_facts(tree(tmp_path, {"proc/cpuinfo": GRACE.format(n=0), **clock}))
    assert value(facts, "cpu clock now") == 3402


def test_governors_that_differ_are_all_named(tmp_path: Path) -> None:
    assert value(cpu_facts(two_sockets(tmp_path)), "cpu governor") == "performance, powersave"


def test_a_shared_cache_is_counted_once(tmp_path: Path) -> None:
    facts = cpu_facts(two_sockets(tmp_path))
    assert value(facts, "cpu L1d cache") == "48 KiB x 4"
    assert value(facts, "cpu L3 cache") == "105 MiB x 2"
    assert named(facts, "cpu L2 cache").reason == "the kernel lists no L2 cache"


def test_only_instruction_sets_that_matter_are_named(tmp_path: Path) -> None:
    facts = cpu_facts(two_sockets(tmp_path))
    assert value(facts, "instruction sets") == "avx2 fma avx512f avx512_bf16 amx_tile amx_bf16"


@pytest.mark.parametrize(
    ("quota", "usable"), [("max 100000", 5), ("300000 100000", 3), ("250000 100000", 2.5)]
)
def test_usable_cpus_are_bound_by_affinity_and_quota(
    tmp_path: Path, quota: str, usable: float
) -> None:
    facts = cpu_facts(tree(two_sockets(tmp_path), {"sys/fs/cgroup/cpu.max": quota}))
    assert value(facts, "cpus in affinity") == 5
    assert value(facts, "usable cpus") == usable


def test_arm64_is_named_from_its_part_number(tmp_path: Path) -> None:
    cpuinfo = "\n".join(GRACE.format(n=n) for n in range(2))
    facts = cpu_facts(tree(tmp_path, {"proc/cpuinfo": cpuinfo}))
    assert value(facts, "cpu model") == "Arm Neoverse-V2"
    assert value(facts, "instruction sets") == "asimd asimdhp i8mm bf16 sve sve2"
    assert "which socket" in str(named(facts, "cpu sockets").reason)


def test_an_arm64_core_that_is_not_in_the_table_keeps_its_numbers(tmp_path: Path) -> None:
    cpuinfo = GRACE.format(n=0).replace("0xd4f", "0xfff")
    facts = cpu_facts(tree(tmp_path, {"proc/cpuinfo": cpuinfo}))
    assert value(facts, "cpu model") == "arm64 implementer 0x41 part 0xfff"


def test_power_names_its_model_in_another_key(tmp_path: Path) -> None:
    facts = cpu_facts(tree(tmp_path, {"proc/cpuinfo": "processor : 0\ncpu : POWER9, altivec\n"}))
    assert value(facts, "cpu model") == "POWER9, altivec"


def test_a_topology_that_sys_hides_comes_from_cpuinfo(tmp_path: Path) -> None:
    cpuinfo = "\n".join(XEON.format(n=n, socket=n // 2, core=n % 2, mhz=1) for n in range(4))
    facts = cpu_facts(tree(tmp_path, {"proc/cpuinfo": cpuinfo}))
    assert (value(facts, "cpu sockets"), value(facts, "physical cores")) == (2, 4)


def test_a_virtual_machine_without_cpufreq_says_so(tmp_path: Path) -> None:
    facts = cpu_facts(tree(tmp_path, {"proc/cpuinfo": XEON.format(n=0, socket=0, core=0, mhz=1)}))
    assert "no cpufreq driver" in str(named(facts, "cpu clock max").reason)
    assert "no cpufreq driver" in str(named(facts, "cpu governor").reason)
