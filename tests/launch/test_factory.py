"""The table of back ends, and that nothing else knows their names."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tests.support.paths import ROOT
from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.factory import backend, backends

_NAMES = get_args(LaunchSettings.model_fields["on"].annotation)
_COMPARED = re.compile(rf"""(?:\bon\b|\.name)\s*(?:==|!=|in)\s*\(?["'](?:{"|".join(_NAMES)})["']""")


def test_every_setting_of_launch_on_has_a_back_end() -> None:
    assert tuple(known.name for known in backends()) == _NAMES
    assert [known.name for known in backends() if known.is_this_machine] == ["local"]
    assert [known.name for known in backends() if known.knows_nodes] == ["local", "slurm"]


def test_an_unknown_back_end_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="unknown launcher 'slrm'") as error:
        backend("slrm")
    assert error.value.hint == "did you mean slurm?"


def test_nodes_of_other_schedulers_must_be_described() -> None:
    with pytest.raises(UsageError, match="the nodes of pbs are not known") as error:
        backend("pbs").nodes(LaunchSettings(on="pbs"), "cpu")
    assert "--nodes N --slots K" in (error.value.hint or "")


def test_no_other_module_compares_the_name_of_a_back_end() -> None:
    source = ROOT / "src" / "vflops"
    folders = tuple(source / "launch" / folder for folder in ("local", "slurm", "psij"))
    config = source / "config"  # lies below launch
    comparisons = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in source.rglob("*.py")
        if not path.is_relative_to(config)
        and not any(path.is_relative_to(part) for part in folders)
        for match in _COMPARED.finditer(path.read_text(encoding="utf-8"))
    ]
    assert comparisons == []
