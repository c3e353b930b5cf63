"""Processors, memory and disks, from fake trees of /proc; and of this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.telemetry_fakes import tree
from vflops.machine.telemetry.cpu_sensor import CpuSensor
from vflops.machine.telemetry.disk_sensor import DeviceSensor, RunDiskSensor
from vflops.machine.telemetry.process_tree import ProcessTree, process

PAGE_B = os.sysconf("SC_PAGESIZE")


def stat(
    pid: int, parent: int, ticks: int = 0, *, pages: int = 0, started: int = 1
) -> dict[str, str]:
    """Return ``/proc/<pid>/stat`` of a process with an awkward name."""
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", "0", "0"]
    fields += ["20", "0", "1", "0", str(started), "0", str(pages)]
    return {f"proc/{pid}/stat": f"{pid} (a) b ({pid}) {' '.join(fields)}\n"}


def machine(root: Path, busy: int, idle: int, run: int, stolen: int = 0) -> Path:
    """Create a launcher 10 with a child 11, and another user's 12, on CPUs 0 and 1 of 3."""
    cpu = f"{busy} 0 0 {idle} 0 0 0 {stolen} 99 0"
    return tree(
        root,
        {
            "proc/stat": f"cpu  1 1 1 1\ncpu0 {cpu}\ncpu1 {cpu}\ncpu2 0 0 0 7\nintr 5\n",
            "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n",
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            **stat(10, 1, run // 2, pages=10),
            **stat(11, 10, run - run // 2, pages=5),
            **stat(12, 1, 10**6, pages=1000),
        },
    )


def test_percentages_are_since_the_reading_before(tmp_path: Path) -> None:
    sensor = CpuSensor(10, machine(tmp_path, busy=100, idle=100, run=50), {0, 1})
    assert sensor.read() == [None, None, None, None, 400 * 1024, 15 * PAGE_B]
    machine(tmp_path, busy=180, idle=120, run=150)  # 160 of 200 ticks, 100 of them the run's
    assert sensor.read()[:4] == [80.0, 50.0, 30.0, 0.0]
    assert sensor.read()[:4] == [None, None, None, None]  # no time has passed


def test_time_that_the_host_withholds_is_not_that_of_other_programs(tmp_path: Path) -> None:
    sensor = CpuSensor(10, machine(tmp_path, busy=0, idle=0, run=0), {0, 1})
    sensor.read()
    machine(tmp_path, busy=70, idle=10, run=130, stolen=20)
    assert sensor.read()[:4] == [70.0, 65.0, 5.0, 20.0]


def test_a_quota_is_what_the_run_may_use(tmp_path: Path) -> None:
    machine(tmp_path, busy=0, idle=0, run=0)
    tree(tmp_path, {"sys/fs/cgroup/cpu.max": "50000 100000\n"})
    sensor = CpuSensor(10, tmp_path, {0, 1})
    sensor.read()
    machine(tmp_path, busy=25, idle=75, run=50)
    assert sensor.read()[:3] == [25.0, 100.0, 0.0]
    assert "0.5 CPUs" in sensor.series()[1].title


def test_a_run_whose_process_was_never_waited_for_does_not_go_below_zero(tmp_path: Path) -> None:
    sensor = CpuSensor(10, machine(tmp_path, busy=0, idle=0, run=500), {0, 1})
    sensor.read()
    machine(tmp_path, busy=100, idle=100, run=100)
    assert sensor.read()[:3] == [50.0, 0.0, 50.0]


def test_without_proc_the_reason_is_kept(tmp_path: Path) -> None:
    assert CpuSensor(10, tmp_path, {0}).series() == []
    assert CpuSensor(10, tmp_path, {0}).absent[0].reason == "/proc does not exist"
    gone = CpuSensor(99, machine(tmp_path, 0, 0, 0), {0})
    assert gone.absent[0].reason == "the launcher's process has ended"


def test_a_tree_keeps_orphans_and_takes_new_children(tmp_path: Path) -> None:
    tree(tmp_path, {**stat(1, 0), **stat(10, 1), **stat(11, 10), **stat(12, 11), **stat(20, 1)})
    family = ProcessTree(10, tmp_path / "proc")
    assert [item.pid for item in family.processes()] == [10, 11, 12]
    (tmp_path / "proc/11/stat").unlink()
    (tmp_path / "proc/11").rmdir()
    tree(tmp_path, {**stat(12, 1), **stat(13, 10)})  # 12's parent is gone
    assert [item.pid for item in family.processes()] == [10, 12, 13]


def test_a_number_that_came_around_is_another_process(tmp_path: Path) -> None:
    tree(tmp_path, {**stat(10, 1), **stat(11, 10), **stat(20, 1)})
    family = ProcessTree(10, tmp_path / "proc")
    assert len(family.processes()) == 2
    tree(tmp_path, {**stat(11, 1, started=77), **stat(20, 10, started=78)})
    assert [item.pid for item in family.processes()] == [10]
    for _ in range(30):
        pids = [item.pid for item in family.processes()]
    assert pids == [10, 20]  # seen when all processes are read again


def test_a_process_that_is_gone_is_none(tmp_path: Path) -> None:
    assert process(tmp_path, 5) is None
    tree(tmp_path, {"5/stat": "5 (cut"})
    assert process(tmp_path, 5) is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_a_child_that_works_is_seen_as_the_run_s() -> None:
    sensor = CpuSensor(os.getpid())
    sensor.read()
    work = "import time\nend = time.time() + 0.6\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", work]) as child:
        time.sleep(0.5)
        busy, run, _, _, used_b, run_b = sensor.read()
        child.wait()
    assert busy is not None and run is not None and used_b and run_b
    assert 0 < run <= 102 and busy > 0


MOUNTS = """\
1 0 252:0 / / rw - ext4 /dev/vda rw
2 1 0:40 / /data rw - btrfs /dev/sdb1 rw
3 1 0:50 / /home rw - nfs4 server:/home rw
"""
STATS = """\
 252 0 vda 9 9 100 9 9 9 200 9 9 9 9
   8 17 sdb1 9 9 7 9 9 9 8 9 9 9 9
"""


@pytest.mark.parametrize(
    ("point", "expected"),
    [("/tmp", [100 * 512, 200 * 512]), ("/data", [7 * 512, 8 * 512])],
)
def test_the_disk_under_the_folder(tmp_path: Path, point: str, expected: list[int]) -> None:
    # The folder is real and the machine is not: mount the fake disk at the folder.
    mounts = MOUNTS.replace("/data", str(tmp_path)) if point == "/data" else MOUNTS
    tree(tmp_path, {"proc/self/mountinfo": mounts, "proc/diskstats": STATS})
    sensor = DeviceSensor(tmp_path / "not/yet/there", tmp_path)
    assert sensor.read() == expected
    assert [item.id for item in sensor.series()] == ["disk.read", "disk.written"]


def test_a_network_file_system_has_no_disk(tmp_path: Path) -> None:
    mounts = MOUNTS.replace("/home rw", f"{tmp_path} rw")
    tree(tmp_path, {"proc/self/mountinfo": mounts, "proc/diskstats": STATS})
    sensor = DeviceSensor(tmp_path, tmp_path)
    assert sensor.series() == []
    assert sensor.absent[0].reason == "a nfs4 file system does not show its disk"


def test_bytes_of_the_run_are_those_of_all_its_processes(tmp_path: Path) -> None:
    io = "rchar: 9\nread_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: 0\n"
    files = {"proc/10/io": io.format(1, 2), "proc/11/io": io.format(10, 20)}
    tree(tmp_path, {**stat(10, 1), **stat(11, 10), **stat(12, 10), **files})  # 12 ends just now
    assert RunDiskSensor(10, tmp_path).read() == [11, 22]


def test_a_kernel_without_io_accounting_says_so(tmp_path: Path) -> None:
    sensor = RunDiskSensor(10, tree(tmp_path, stat(10, 1)))
    assert sensor.series() == []
    assert "does not report" in sensor.absent[0].reason
