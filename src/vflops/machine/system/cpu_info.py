"""Reads ``/proc/cpuinfo``, which differs between x86-64, arm64 and POWER."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vflops.machine.probe import AbsentError, text

# arm64 has numbers instead of names: see arch/arm64/include/asm/cputype.h in Linux.
_ARM_CORES = {
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x41", "0xd84"): "Arm Neoverse-V3",
    ("0x41", "0xd8e"): "Arm Neoverse-N3",
    ("0x43", "0x0af"): "Marvell ThunderX2",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x48", "0xd01"): "HiSilicon TaiShan v110",
    ("0xc0", "0xac3"): "Ampere-1",
}


@dataclass(frozen=True)
class CpuInfo:
    """The blocks of the file, one per logical CPU; empty if it cannot be read."""

    cpus: tuple[dict[str, str], ...]

    @classmethod
    def read(cls, root: Path) -> CpuInfo:
        """Read ``proc/cpuinfo`` under ``root``; the result is empty if the file is missing."""
        try:
            blocks = text(root / "proc/cpuinfo").split("\n\n")
        except OSError:
            return cls(())
        return cls(tuple(_parse_block(block) for block in blocks if block.strip()))

    def all(self, key: str) -> set[str]:
        """Return the distinct values of one key over all CPUs."""
        return {cpu[key] for cpu in self.cpus if cpu.get(key)}

    def model(self) -> str:
        """Return the name of the processor; several names if the cores differ."""
        names = self.all("model name") or self._arm_cores() or self.all("cpu")
        if not names:
            raise AbsentError("/proc/cpuinfo names no model")
        return " + ".join(sorted(names))

    def flags(self) -> set[str]:
        """Return the features of the first CPU: ``flags`` on x86-64, ``Features`` on arm64."""
        for cpu in self.cpus:
            words = cpu.get("flags") or cpu.get("Features")
            if words:
                return set(words.split())
        raise AbsentError("/proc/cpuinfo lists no features")

    def _arm_cores(self) -> set[str]:
        ids = {(cpu["CPU implementer"], cpu["CPU part"]) for cpu in self.cpus if "CPU part" in cpu}
        return {_ARM_CORES.get(core, f"arm64 implementer {core[0]} part {core[1]}") for core in ids}


def _parse_block(lines: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines.splitlines())
    # Some processors have several spaces in their name, which a record does not keep.
    return {key.strip(): " ".join(value.split()) for key, _, value in pairs}
