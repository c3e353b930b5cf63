"""A pytest plugin that records which functions of this repository GPU tests call.

Only the call phase of tests counts, so a module that is merely imported is not recorded. In Python
3.12 and later each function costs one callback, in all threads, those of autograd included. Python
3.11 calls back for every call and only sees threads that Python started.

``python -m tools.gpu_tests`` loads the plugin and names the folder in an environment variable, in
which each process of pytest-xdist writes one file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER_VARIABLE = "CALLED_FUNCTIONS_FOLDER"
FOLDERS = tuple(f"{ROOT / name}{os.sep}" for name in ("src", "tests"))


class CallRecorder:
    """Records the code objects that run between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()

    if sys.version_info >= (3, 12):

        def start(self) -> None:
            """Start to record calls."""
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.PROFILER_ID, "called functions")
            monitoring.register_callback(
                monitoring.PROFILER_ID, monitoring.events.PY_START, self._started
            )
            monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)

        def stop(self) -> None:
            """Stop to record calls."""
            sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)

        def _started(self, code: CodeType, offset: int) -> Any:
            self.codes.add(code)
            return sys.monitoring.DISABLE  # one event per function is enough

    else:

        def start(self) -> None:
            """Start to record calls."""
            threading.setprofile(self._called)
            sys.setprofile(self._called)

        def stop(self) -> None:
            """Stop to record calls."""
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type,unused-ignore]

        def _called(self, frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                self.codes.add(frame.f_code)

    def by_file(self) -> dict[str, list[str]]:
        """Return the qualified names of recorded functions by file, relative to the repository."""
        files: dict[str, set[str]] = {}
        for code in self.codes:
            file = os.path.realpath(code.co_filename)
            if file.startswith(FOLDERS):
                path = Path(file).relative_to(ROOT).as_posix()
                # A function inside of another is part of that one's code.
                files.setdefault(path, set()).add(code.co_qualname.partition(".<locals>")[0])
        return {path: sorted(names) for path, names in sorted(files.items())}


_recorder = CallRecorder()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record calls while a GPU test runs."""
    if item.get_closest_marker("gpu") is None:
        return (yield)
    _recorder.start()
    try:
        return (yield)
    finally:
        _recorder.stop()


def pytest_sessionfinish() -> None:
    """Write what this process recorded."""
    called = _recorder.by_file()
    for path in _imported_kernels():
        called.setdefault(path, [])
    file = Path(os.environ[FOLDER_VARIABLE], f"{os.getpid()}.json")
    file.write_text(json.dumps(called), encoding="utf-8")


def _imported_kernels() -> list[str]:
    """Return the imported files with Triton kernels: these run on the GPU, never in Python."""
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    paths = [Path(file) for file in map(os.path.realpath, files) if file.startswith(FOLDERS[0])]
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in paths
        if "@triton.jit" in path.read_text(encoding="utf-8")
    )
