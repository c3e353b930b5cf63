"""Starts of Python: none of them imports modules from the current folder.

``python -m``, ``python -c`` and the processes of ``multiprocessing`` put the current folder first
on ``sys.path``, so that a ``json.py`` in it, such as one in a stranger's submission, would run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAFE_PATH = "-P"
"""The option that leaves the current folder out."""
_VARIABLE = "PYTHONSAFEPATH"
"""The same as an environment variable."""


def module_options(module: str) -> tuple[str, ...]:
    """Return the options of Python that run a module as a program."""
    return SAFE_PATH, "-m", module


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module with this Python."""
    return [sys.executable, *module_options(module), *map(str, arguments)]


@contextmanager
def safe_spawning() -> Iterator[None]:
    """Keep the current folder from the ``sys.path`` of Pythons that are started in the block.

    This is for ``multiprocessing``, which writes the command lines of its processes itself. Modules
    of the current folder that this process can import can still be imported in its children.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
