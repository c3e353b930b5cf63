"""What ``import vflops`` offers, and that it loads nothing before it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import vflops
from tests.support.paths import DOCS
from tests.support.public_interface import STORED, described


def test_the_public_interface_changes_only_on_purpose() -> None:
    assert described() == STORED.read_text(encoding="utf-8"), (
        "users depend on these names and columns: keep the old ones, note the change in "
        "CHANGELOG.md, then run python -m tests.support.public_interface"
    )


def test_every_public_name_is_documented_in_code_and_in_the_reference() -> None:
    reference = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    for name in vflops.__all__:
        value = getattr(vflops, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(value), name
        assert f"::: vflops.{name}\n" in reference
        for member, object in vars(value).items():
            if not member.startswith("_") and (callable(object) or isinstance(object, property)):
                assert inspect.getdoc(object), f"{name}.{member}"


def test_importing_the_package_loads_no_library() -> None:
    program = (
        "import sys, vflops\n"
        "print(*sorted({'torch', 'numpy', 'pydantic', 'vflops.api'} & set(sys.modules)))\n"
        "vflops.Run, vflops.compare, vflops.count\n"
        "print(*sorted({'torch', 'pandas'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'vflops' has no attribute 'Runs'"):
        _ = vflops.Runs
    assert not hasattr(vflops, "api_")
    assert set(vflops.__all__) <= set(dir(vflops))


def test_the_hint_of_an_error_is_in_its_traceback() -> None:
    with pytest.raises(vflops.VflopsError) as caught:
        vflops.Run("no/such/run")
    assert "no/such/run is not a run folder" in str(caught.value)
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    assert "vflops run" in str(caught.value.hint)
