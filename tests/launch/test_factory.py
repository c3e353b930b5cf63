"""The table of back ends, and that nothing else knows their names."""

from __future__ import annotations

import re

import pytest

from tests.support.paths import ROOT
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class, launcher_names

_NAMES = ("local", "slurm", "join")
_COMPARED = re.compile(rf"""(?:\bon\b|\.name)\s*(?:==|!=|in)\s*\(?["'](?:{"|".join(_NAMES)})["']""")


def test_every_built_in_launcher_has_its_name() -> None:
    assert tuple(launcher_names()) == _NAMES
    assert tuple(launcher_class(name).name for name in _NAMES) == _NAMES
    assert [name for name in _NAMES if launcher_class(name).is_this_machine] == ["local"]


def test_an_unknown_launcher_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="unknown launcher 'slrm'") as error:
        launcher_class("slrm")
    assert error.value.hint == "did you mean slurm?"


def test_no_other_module_compares_the_name_of_a_launcher() -> None:
    source = ROOT / "src" / "vflops"
    folders = tuple(source / "launch" / folder for folder in _NAMES)
    config = source / "config"  # lies below launch
    comparisons = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in source.rglob("*.py")
        if not path.is_relative_to(config)
        and not any(path.is_relative_to(part) for part in folders)
        for match in _COMPARED.finditer(path.read_text(encoding="utf-8"))
    ]
    assert comparisons == []
