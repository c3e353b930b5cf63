from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.micro_tasks import CPU, make_task
from vflops.machine.ceilings import allreduce
from vflops.machine.devices import Device
from vflops.metrics.traffic import Sent, bytes_sent, powersgd_elements
from vflops.record.formats.measurement import Measurement


def _measure(monkeypatch: pytest.MonkeyPatch, code: str, seconds: float = 5.0) -> Measurement:
    """Return the measurement if the ranks run the program ``code``."""

    def command(backend: str, ranks: int, folder: Path, limit_s: float, seed: int) -> list[str]:
        return [sys.executable, "-c", code, str(folder)]

    monkeypatch.setattr(allreduce, "command", command)
    return allreduce.measure(make_task("all-reduce", "gloo-2-ranks", seconds=seconds))


def test_two_ranks_reduce_over_many_sizes() -> None:
    measured = allreduce.measure(make_task("all-reduce", "gloo-2-ranks", seconds=20.0))
    assert measured.value is not None, measured.reason
    assert measured.device == "cpu"
    assert measured.setting["ranks"] == 2
    sizes = [int(trial.setting["size_bytes"]) for trial in measured.tried]
    assert sizes == sorted(set(sizes))
    assert 1 << 20 in sizes
    assert measured.error is not None
    assert measured.error <= 1e-6
    assert measured.value in [
        trial.value for trial in measured.tried if trial.setting == measured.setting
    ]


def test_bus_bandwidth_counts_what_crosses_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import pathlib, sys; pathlib.Path(sys.argv[1], 'result.jsonl').write_text("
        '\'{"size_bytes": 1000, "times_s": [2.0, 1.0, 4.0], "error": 0.0}\\n\')'
    )
    measured = _measure(monkeypatch, code)
    assert measured.value == 2 * (2 - 1) / 2 * 1000 / 2.0
    assert measured.samples == (500.0, 1000.0, 250.0)


@pytest.mark.parametrize(
    ("mode", "precision", "errors", "sent"),
    [
        ("torus", "int8", (1e-4, 0.017), lambda count: bytes_sent("torus", "int8", 4, 2, count)),
        ("all-reduce", "powersgd", (0.0, 1e-3), lambda count: _narrow(count)),
    ],
)
def test_a_mode_is_measured_against_the_exact_mean(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: str,
    precision: str,
    errors: tuple[float, float],
    sent: Callable[[int], Sent],
) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        "import os, sys\n"
        "from vflops.machine.ceilings import allreduce_rank, allreduce_steps as rank\n"
        "rank._SIZE_EXPONENTS = {'gloo': (12, 14)}\n"
        "os._exit(allreduce_rank.main([str(os.getppid()), *sys.argv[1:]]))\n"
    )

    def command(*arguments: object) -> list[str]:
        return [sys.executable, str(script), *map(str, arguments)]

    monkeypatch.setattr(allreduce, "command", command)
    monkeypatch.setattr(allreduce, "available_cpus", lambda: 2)
    task = make_task("all-reduce-modes", f"{mode}-4-ranks", precision, seconds=30.0)
    measured = allreduce.measure_mode(task)
    assert measured.value is not None, measured.reason
    assert [trial.setting for trial in measured.tried] == [
        {"size_bytes": size, "sent_bytes": sent(size // 4).all} for size in (1 << 12, 1 << 14)
    ]
    assert measured.error is not None
    assert errors[0] < measured.error < errors[1]
    assert (measured.caveat or "").startswith("2 cores: 4 ranks share them")


def _narrow(count: int) -> Sent:
    """Average two matrices of four columns by a ring, instead of a square one."""
    side = math.isqrt(count)
    numbers = powersgd_elements([(side, side)], 4)
    assert numbers == 8 * side
    return bytes_sent("all-reduce", "fp32", 4, 4, numbers)


def test_a_mode_without_rows_is_not_measured() -> None:
    task = make_task("all-reduce-modes", "torus-3-ranks", "fp32")
    assert allreduce.measure_mode(task).reason == (
        "3 ranks have no rows of equal length: torus needs 4, 6, 8 …"
    )


def test_a_rank_that_dies_is_the_reason_with_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = _measure(monkeypatch, "import sys; sys.exit('first line\\nthe link went down')")
    assert measured.value is None
    assert measured.reason == "the ranks ended with exit code 1: the link went down"


def test_a_wrong_sum_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import pathlib, sys; pathlib.Path(sys.argv[1], 'result.jsonl').write_text("
        '\'{"size_bytes": 1000, "times_s": [2.0], "error": Infinity}\\n\')'
    )
    assert _measure(monkeypatch, code).reason == (
        "wrong result: relative error inf, tolerance 1e-06"
    )


def test_ranks_that_hang_are_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(allreduce, "_KILL_AFTER_S", 0.2)
    mark = tmp_path / "pid"
    code = (
        f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); "
        "time.sleep(600)"
    )
    measured = _measure(monkeypatch, code, seconds=0.6)
    assert measured.value is None
    assert "did not end within" in (measured.reason or "")
    assert not Path("/proc", mark.read_text()).exists()


def test_a_killed_rank_ends_the_others(tmp_path: Path) -> None:
    """The real program: rank 1 is killed while the others wait."""
    script = tmp_path / "ranks.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from vflops.machine.ceilings import allreduce_rank, allreduce_steps as rank\n"
        "class Rank:\n"
        "    def __init__(self, number, *rest):\n"
        "        self.number = number\n"
        "    def measure(self):\n"
        "        if self.number == 1:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        time.sleep(600)\n"
        "rank.Rank = Rank\n"
        "sys.exit(allreduce_rank.main([str(os.getppid()), *sys.argv[1:]]))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), "gloo", "2", str(tmp_path), "60", "1"],
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "rank 1 ended with signal 9" in (tmp_path / "result.jsonl").read_text()


def test_ranks_do_not_outlive_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "name = 'vflops.machine.ceilings.allreduce_rank'\n"
        "program = [sys.executable, '-m', name, str(os.getpid())]\n"
        f"child = subprocess.Popen([*program, 'gloo', '2', {str(tmp_path)!r}, '600', '1'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = Path("/proc", parent.stdout.readline().strip())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline_s = time.monotonic() + 20
    while child.exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not child.exists()


def test_one_accelerator_has_nothing_to_reduce_between(monkeypatch: pytest.MonkeyPatch) -> None:
    item = make_task("all-reduce", "nccl").item
    assert allreduce.unavailable_reason(CPU, item) == (
        "the device is the CPU: NCCL reduces between accelerators"
    )
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    one = Device(torch.device("cuda:0"))
    assert allreduce.unavailable_reason(one, item) == "one accelerator: nothing to reduce between"
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 8)
    assert allreduce.unavailable_reason(one, item) is None


@pytest.mark.parametrize(
    ("case", "value"),
    [
        ("nccl-2-ranks", "None"),
        ("nccl-2-ranks-ring", "allreduce:ring"),
        ("nccl-2-ranks-tree", "allreduce:tree"),
        ("gloo-2-ranks", "None"),
    ],
)
def test_a_case_fixes_the_algorithm_of_nccl(
    monkeypatch: pytest.MonkeyPatch, case: str, value: str
) -> None:
    """The ranks here only say what they were told: there are no two accelerators."""
    code = "import os, sys; sys.exit(f'NCCL_ALGO {os.environ.get(\"NCCL_ALGO\")}')"
    monkeypatch.setattr(allreduce, "command", lambda *arguments: [sys.executable, "-c", code])
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    device = CPU if case.startswith("gloo") else Device(torch.device("cuda:0"))
    measured = allreduce.measure(make_task("all-reduce", case, device=device, seconds=60.0))
    assert measured.reason == f"the ranks ended with exit code 1: NCCL_ALGO {value}"


def test_the_folder_of_the_ranks_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def command(backend: str, ranks: int, folder: Path, limit_s: float, seed: int) -> list[str]:
        seen.append(folder)
        return [sys.executable, "-c", "raise SystemExit(7)"]

    monkeypatch.setattr(allreduce, "command", command)
    measured = allreduce.measure(make_task("all-reduce", "gloo-2-ranks"))
    assert measured.reason == "the ranks ended with exit code 7"
    assert not seen[0].exists()
