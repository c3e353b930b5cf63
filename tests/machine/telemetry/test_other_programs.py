"""Programs outside of a run, from fake trees of /proc; and a real one beside this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.telemetry_fakes import tree
from vflops.machine.telemetry.other_programs import OtherPrograms
from vflops.machine.telemetry.sampling import Sampler
from vflops.record.log.telemetry_log import read

TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int, parent: int, used_s: float, name: str, cpu: int = 0) -> dict[str, str]:
    """Return ``/proc/<pid>/stat`` of a process that has used the CPU for ``used_s``."""
    fields = ["S", str(parent), *["0"] * 9, str(round(used_s * TICKS)), "0", "0", "0"]
    fields += ["20", "0", "1", "0", "1", "0", "0", *["0"] * 14, str(cpu)]
    return {f"proc/{pid}/stat": f"{pid} ({name}) {' '.join(fields)}\n"}


def remove(root: Path, pid: int) -> None:
    for file in (root / f"proc/{pid}").iterdir():
        file.unlink()
    (root / f"proc/{pid}").rmdir()


def shares(programs: OtherPrograms) -> dict[str, float]:
    return {program.name: program.share for program in programs.shares()}


def test_programs_are_named_by_their_share_and_the_run_is_left_out(tmp_path: Path) -> None:
    now_s = iter([0.0, 10.0, 20.0])
    tree(tmp_path, {**stat(10, 1, 5, "vflops"), **stat(20, 1, 100, "firefox")})
    programs = OtherPrograms(10, tmp_path, cpus={0, 1}, clock=lambda: next(now_s))
    tree(
        tmp_path,
        {
            **stat(10, 1, 9, "vflops"),
            **stat(11, 10, 9, "python3"),  # the run's
            **stat(20, 1, 108, "firefox"),
            **stat(21, 1, 2, "python3"),
            **stat(22, 1, 9, "far away", cpu=7),
            **stat(23, 1, 0.1, "idle"),
        },
    )
    assert shares(programs) == {"firefox": 0.4, "python3": 0.1}
    assert shares(programs) == {"firefox": 0.2, "python3": 0.05}  # since the start


def test_a_process_that_ended_counts_once(tmp_path: Path) -> None:
    now_s = iter([0.0, 10.0, 20.0])
    tree(tmp_path, {**stat(10, 1, 0, "vflops"), **stat(20, 1, 0, "make")})
    programs = OtherPrograms(10, tmp_path, cpus={0}, clock=lambda: next(now_s))
    tree(tmp_path, stat(21, 20, 8, "cc1plus"))
    assert shares(programs) == {"cc1plus": 0.8}
    remove(tmp_path, 21)
    tree(tmp_path, stat(20, 1, 10, "make"))  # 8 s of it are those of cc1plus
    assert shares(programs) == {"cc1plus": 0.4, "make": 0.1}


def test_a_process_that_ended_with_its_parent_counts_once(tmp_path: Path) -> None:
    now_s = iter([0.0, 10.0, 20.0])
    tree(tmp_path, {**stat(10, 1, 0, "vflops"), **stat(20, 1, 0, "make")})
    programs = OtherPrograms(10, tmp_path, cpus={0}, clock=lambda: next(now_s))
    tree(tmp_path, {**stat(21, 20, 0, "sh"), **stat(22, 21, 8, "cc1plus")})
    assert shares(programs) == {"cc1plus": 0.8}
    remove(tmp_path, 21)
    remove(tmp_path, 22)
    tree(tmp_path, stat(20, 1, 10, "make"))  # 8 s of it are those of cc1plus
    assert shares(programs) == {"cc1plus": 0.4, "make": 0.1}


def test_orphans_do_not_count_for_init(tmp_path: Path) -> None:
    now_s = iter([0.0, 10.0, 20.0])
    tree(tmp_path, {**stat(1, 0, 0, "init"), **stat(10, 1, 0, "vflops")})
    programs = OtherPrograms(10, tmp_path, cpus={0}, clock=lambda: next(now_s))
    tree(tmp_path, {**stat(20, 1, 0, "sh"), **stat(21, 20, 8, "cc1plus")})
    assert shares(programs) == {"cc1plus": 0.8}
    remove(tmp_path, 20)
    remove(tmp_path, 21)
    tree(tmp_path, stat(1, 0, 9, "init"))
    assert shares(programs) == {"cc1plus": 0.4}


def test_other_jobs_of_the_run_are_no_other_programs(tmp_path: Path) -> None:
    now_s = iter([0.0, 10.0])
    folder = Path("runs/20260101T000000Z-suite-abcdef")
    tree(tmp_path, stat(10, 1, 0, "agent"))
    programs = OtherPrograms(10, tmp_path, run_folder=folder, cpus={0}, clock=lambda: next(now_s))
    agent = {"proc/20/cmdline": f"python\0-m\0vflops.launch.agent\0/x/{folder}\0002\0"}
    tree(
        tmp_path,
        {
            **stat(20, 1, 1, "python3"),
            **agent,
            **stat(21, 20, 8, "python3"),
            **stat(30, 1, 1, "chrome"),
        },
    )
    assert shares(programs) == {"chrome": 0.1}


def test_without_proc_no_program_is_named(tmp_path: Path) -> None:
    assert shares(OtherPrograms(10, tmp_path, cpus={0})) == {}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_telemetry_records_a_busy_program(tmp_path: Path) -> None:
    """The program is not started by the process that the sampler belongs to."""
    spin = [sys.executable, "-c", "while True: pass"]
    with (
        subprocess.Popen(["sleep", "60"]) as run,
        subprocess.Popen(spin) as other,
    ):
        try:
            name = Path(f"/proc/{other.pid}/stat").read_text().split("(")[1].split(")")[0]
            with Sampler(tmp_path / "telemetry.jsonl", tmp_path, pid=run.pid):
                time.sleep(0.5)
        finally:
            run.kill()
            other.kill()
    assert name in {program.name for program in read(tmp_path / "telemetry.jsonl").programs}
