"""A drawing that is stopped ends soon, with all its processes, and is never taken for complete."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from vflops.data.cached_data import cached_data
from vflops.errors import RunFailed, UsageError
from vflops.record.files.lock import InUse

DRAW = """
import sys
from pathlib import Path

from vflops.data.climate.synthetic_weather import pack
from vflops.data.climate.weather import WeatherRecipe
from vflops.errors import Interrupted

if __name__ == "__main__":
    try:
        pack(
            WeatherRecipe(384, 576),
            Path(sys.argv[1]),
            5000,
            1,
            1,
            lambda done, total: print(done, flush=True),
            workers=2,
        )
    except Interrupted as error:
        print(error.message, flush=True)
        sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_all_processes(tmp_path: Path, number: int, code: int) -> None:
    script = tmp_path / "draw.py"
    script.write_text(DRAW)
    destination = tmp_path / "set"
    process = subprocess.Popen(
        [sys.executable, script, destination], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 1:
            pass
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.send_signal(number)
        assert process.wait(60) == code
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
    finally:
        process.kill()
    assert not destination.exists()
    partial = tmp_path / "set.partial"
    assert partial.is_dir() and not (partial / "index.json").exists()
    assert not list(partial.glob("*.bin"))
    if number == signal.SIGINT:
        assert not list(partial.glob(".*.tmp"))


def test_data_that_another_process_draws_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    waits: list[float] = []

    def pack(folder: Path) -> None:
        if len(waits) == 2:
            folder.mkdir()
            raise UsageError(f"{folder} exists and is not empty")
        raise InUse(f"{folder} is in use by process 1")

    path = cached_data("set", pack, lambda: waits.append(time.monotonic()))
    assert path == tmp_path / "set" and len(waits) == 2


def test_an_error_of_drawing_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))

    def pack(folder: Path) -> None:
        raise RunFailed("No space left on device")

    with pytest.raises(RunFailed, match="No space left"):
        cached_data("set", pack)
