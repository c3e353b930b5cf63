"""Main memory, and what root can read of its modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system_fakes import named, script, tree, value
from vflops.machine.system.memory import memory_facts

MEMINFO = {"proc/meminfo": "MemTotal:       1056789 kB\nSwapTotal:      0 kB\n"}
DMI = """cat <<'END'
# dmidecode 3.3
Handle 0x0010, DMI type 16, 23 bytes
Physical Memory Array
	Maximum Capacity: 6 TB

Handle 0x0011, DMI type 17, 92 bytes
Memory Device
	Size: 64 GB
	Type: DDR5
	Speed: 5600 MT/s
	Configured Memory Speed: 4800 MT/s

Handle 0x0012, DMI type 17, 92 bytes
Memory Device
	Size: No Module Installed
	Type: Unknown

Handle 0x0013, DMI type 17, 92 bytes
Memory Device
	Size: 64 GB
	Type: DDR5
	Configured Memory Speed: 4400 MT/s
END"""


@pytest.fixture(autouse=True)
def no_dmidecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_kib_of_meminfo_are_bytes_here(tmp_path: Path) -> None:
    facts = memory_facts(tree(tmp_path, MEMINFO))
    assert value(facts, "memory") == 1056789 * 1024
    assert value(facts, "swap") == 0


def test_modules_need_dmidecode(tmp_path: Path) -> None:
    facts = memory_facts(tree(tmp_path, MEMINFO))
    reason = "dmidecode is not on PATH (it needs root)"
    assert {named(facts, f"memory {what}").reason for what in ("type", "speed", "modules")} == {
        reason
    }


def test_edac_gives_the_type_to_anyone(tmp_path: Path) -> None:
    edac = {"sys/devices/system/edac/mc/mc0/dimm0/dimm_mem_type": "Registered-DDR5\n"}
    facts = memory_facts(tree(tmp_path, MEMINFO | edac))
    assert value(facts, "memory type") == "Registered-DDR5"
    assert value(facts, "memory speed") is None


def test_dmidecode_gives_type_speed_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    script(tmp_path / "bin", "dmidecode", DMI)
    facts = memory_facts(tree(tmp_path, MEMINFO))
    assert value(facts, "memory type") == "DDR5"
    assert value(facts, "memory speed") == 4400  # as configured, of the slowest
    assert value(facts, "memory modules") == 2


def test_dmidecode_without_root_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "bin", "dmidecode", "exit 1")
    facts = memory_facts(tree(tmp_path, MEMINFO))
    assert "failed with exit status 1" in str(named(facts, "memory speed").reason)
