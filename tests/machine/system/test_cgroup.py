"""Limits of both versions of cgroups, inside and outside of containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system_fakes import tree
from vflops.machine.probe import AbsentError
from vflops.machine.system.cgroup import cpu_quota, memory_limit_b

V2 = {
    "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
    "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
}
V1 = {
    "proc/self/cgroup": "5:memory:/slurm/job_7\n4:cpu,cpuacct:/slurm/job_7\n0::/\n",
    "proc/self/mountinfo": (
        "30 20 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    ),
}
UNLIMITED_V1 = "9223372036854771712"


def test_v2_quota_is_time_over_period(tmp_path: Path) -> None:
    job = "sys/fs/cgroup/slurm/job_7/step_0"
    root = tree(tmp_path, {**V2, f"{job}/cpu.max": "150000 100000"})
    assert cpu_quota(root) == 1.5


def test_v2_limits_of_the_groups_above_count(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000",
        "sys/fs/cgroup/slurm/job_7/cpu.max": "800000 100000",
        "sys/fs/cgroup/slurm/cpu.max": "400000 100000",
        "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max",
        "sys/fs/cgroup/slurm/job_7/memory.max": "1073741824",
    }
    root = tree(tmp_path, {**V2, **files})
    assert cpu_quota(root) == 4
    assert memory_limit_b(root) == 2**30


def test_v1_limits(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "200000",
        "sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us": "50000",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": "2147483648",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
    }
    root = tree(tmp_path, {**V1, **files})
    assert cpu_quota(root) == 4
    assert memory_limit_b(root) == 2**31


def test_v1_in_a_container_that_shows_its_own_group_as_the_root(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu:/docker/abc\n5:memory:/docker/abc\n",
            "proc/self/mountinfo": (
                "30 20 0:26 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
                "31 20 0:27 /elsewhere /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
            ),
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096",
        },
    )
    assert cpu_quota(root) == 3
    assert memory_limit_b(root) == 4096


def test_unlimited_is_absent_not_a_number(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
    }
    root = tree(tmp_path, {**V1, **files})
    with pytest.raises(AbsentError, match="no cgroup sets a CPU quota"):
        cpu_quota(root)
    with pytest.raises(AbsentError, match="no cgroup sets a memory limit"):
        memory_limit_b(root)
