"""What the package promises as a whole: light to import, documented."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vflops.metrics
from tests.support.paths import DOCS


def test_importing_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import vflops.metrics\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(loaded - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["vflops"]


@pytest.mark.parametrize("name", vflops.metrics.__all__)
def test_every_public_name_is_in_the_documentation(name: str) -> None:
    page = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page
    assert getattr(vflops.metrics, name)
