"""The processors: model, cores, CPUs that this process may use, clocks and caches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

from vflops.machine.probe import AbsentError, count_listed, fact, filled_text, missing, text
from vflops.machine.system import cgroup
from vflops.machine.system.cpu_caches import read_caches
from vflops.machine.system.cpu_info import CpuInfo
from vflops.record.formats.system import Fact

_CPUINFO = "/proc/cpuinfo"
_CPUS = "/sys/devices/system/cpu"

# Those that determine which kernels oneDNN, MKL and torch choose.
_INSTRUCTION_SETS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "svebf16", "sme"),
)


def cpu_facts(root: Path) -> list[Fact]:
    """Return facts about the processors of this node."""
    info = CpuInfo.read(root)  # once: the kernel samples every clock for each read
    cpus = root / "sys/devices/system/cpu"
    caches = read_caches(cpus)
    return [
        fact("cpu model", _CPUINFO, info.model),
        fact("cpu sockets", f"{_CPUS}/cpu*/topology", lambda: _sockets(cpus, info)),
        fact("physical cores", f"{_CPUS}/cpu*/topology", lambda: _cores(cpus, info)),
        fact("logical cpus", f"{_CPUS}/online", lambda: _logical(cpus, info)),
        fact("usable cpus", "/proc/self/status and cgroup", lambda: _usable(root)),
        fact("cpus in affinity", "/proc/self/status", lambda: _affinity(root)),
        fact("cpus in cgroup quota", "cgroup", lambda: _as_integer(cgroup.cpu_quota(root))),
        fact("numa nodes", "/sys/devices/system/node/online", lambda: _numa_nodes(root)),
        fact(
            "cpu clock max",
            f"{_CPUS}/cpu*/cpufreq/cpuinfo_max_freq",
            lambda: max(int(khz) for khz in _cpufreq(cpus, "cpuinfo_max_freq")) / 1e3,
            unit="MHz",
        ),
        fact("cpu clock now", _CPUINFO, lambda: _clock_now_mhz(cpus, info), unit="MHz"),
        fact(
            "cpu governor",
            f"{_CPUS}/cpu*/cpufreq/scaling_governor",
            lambda: ", ".join(sorted(set(_cpufreq(cpus, "scaling_governor")))),
        ),
        *(
            fact(f"cpu {name} cache", f"{_CPUS}/cpu*/cache", partial(_cache, caches, name))
            for name in ("L1d", "L1i", "L2", "L3")
        ),
        fact("instruction sets", _CPUINFO, lambda: _instruction_sets(info)),
    ]


def _sockets(cpus: Path, info: CpuInfo) -> int:
    ids = _topology(cpus, "physical_package_id") or info.all("physical id")
    if not ids or "-1" in ids:
        raise AbsentError("the kernel does not report which socket a CPU is in")
    return len(ids)


def _cores(cpus: Path, info: CpuInfo) -> int:
    cores = _topology(cpus, "thread_siblings_list") or {
        f"{cpu.get('physical id')}:{cpu['core id']}" for cpu in info.cpus if cpu.get("core id")
    }
    if not cores:
        raise AbsentError("the kernel does not report which CPUs share a core")
    return len(cores)


def _topology(cpus: Path, name: str) -> set[str]:
    """Return the distinct values of one file of the CPUs that are online."""
    return {text(file) for file in cpus.glob(f"cpu[0-9]*/topology/{name}")} - {""}


def _logical(cpus: Path, info: CpuInfo) -> int:
    """Return the number of CPUs that are online; containers may hide the kernel's list."""
    try:
        return count_listed(text(cpus / "online"))
    except (OSError, AbsentError):
        return len(info.all("processor")) or missing("neither /sys nor /proc/cpuinfo lists CPUs")


def _affinity(root: Path) -> int:
    for line in text(root / "proc/self/status").splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return count_listed(value.strip())
    raise AbsentError("/proc/self/status has no Cpus_allowed_list")


def _usable(root: Path) -> int | float:
    """Return the number of CPUs that this process may use: by its affinity or a lower quota."""
    try:
        quota = cgroup.cpu_quota(root)
    except (AbsentError, OSError, ValueError):
        return _affinity(root)
    return _as_integer(min(_affinity(root), quota))


def _as_integer(count: float) -> int | float:
    return int(count) if count == int(count) else round(count, 3)


def _numa_nodes(root: Path) -> int:
    return count_listed(filled_text(root / "sys/devices/system/node/online"))


def _cpufreq(cpus: Path, name: str) -> list[str]:
    values = [text(file) for file in sorted(cpus.glob(f"cpu[0-9]*/cpufreq/{name}"))]
    values = [value for value in values if value]
    if not values:
        raise AbsentError(
            "the kernel has no cpufreq driver for these CPUs, as in most virtual machines"
        )
    return values


def _clock_now_mhz(cpus: Path, info: CpuInfo) -> float:
    clocks = [float(cpu["cpu MHz"]) for cpu in info.cpus if cpu.get("cpu MHz")]
    if not clocks:
        clocks = [int(khz) / 1e3 for khz in _cpufreq(cpus, "scaling_cur_freq")]
    return round(median(clocks), 1)


def _cache(caches: Mapping[str, str], name: str) -> str:
    return caches.get(name) or missing(f"the kernel lists no {name} cache")


def _instruction_sets(info: CpuInfo) -> str:
    flags = info.flags()
    return " ".join(name for name in _INSTRUCTION_SETS if name in flags) or "none that matters"
