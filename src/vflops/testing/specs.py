"""Conformance tests for the description of a workload, whatever its runner."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import ClassVar

import pytest
from pydantic import ValidationError

from vflops.config.profiles import SHARED_PROFILES
from vflops.counting.conventions import convention
from vflops.errors import UsageError
from vflops.extensions import import_object
from vflops.python_start import SAFE_PATH
from vflops.workloads.contract.code import WorkloadCode
from vflops.workloads.contract.spec import WorkloadSpec

_IMPORTS = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print("torch" in sys.modules)
"""


class SpecConformance:
    """Tests that a description is valid in every profile, and does not import torch."""

    spec: ClassVar[WorkloadSpec]

    def test_its_description_does_not_import_torch(self) -> None:
        """Listing workloads and scoring a run must not import torch."""
        import_paths = [self.spec.combine, *([self.spec.exhibit] if self.spec.exhibit else [])]
        modules = {
            self.spec.settings.__module__,
            *(path.partition(":")[0] for path in import_paths),
        }
        search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
        done = subprocess.run(
            [sys.executable, SAFE_PATH, "-c", _IMPORTS, *sorted(modules)],
            env={**os.environ, "PYTHONPATH": search_path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == "False", f"importing {sorted(modules)} imports torch"

    def test_it_has_a_name_and_a_title(self) -> None:
        """The name is used on the command line."""
        assert self.spec.name and self.spec.name == self.spec.name.strip().lower()
        assert not set(self.spec.name) & set(" ./:=")
        assert self.spec.title

    def test_its_import_paths_are_valid(self) -> None:
        """The code, the runner, and the functions for ensembles and figures can be imported."""
        assert issubclass(self.spec.load_code(), WorkloadCode)
        assert callable(import_object(self.spec.runner))
        assert callable(import_object(self.spec.combine))
        assert self.spec.exhibit is None or callable(import_object(self.spec.exhibit))

    def test_its_counting_rules_are_installed(self) -> None:
        """The score counts operations by these rules."""
        assert convention(self.spec.rules).id == self.spec.rules

    @pytest.mark.parametrize("name", sorted(SHARED_PROFILES))
    def test_its_settings_survive_a_round_trip(self, name: str) -> None:
        """Every profile is valid, and unchanged after a round trip through JSON."""
        settings = self.spec.profile(name)
        assert type(settings) is self.spec.settings
        text = json.dumps(settings.model_dump(mode="json"), allow_nan=False)
        assert self.spec.settings.model_validate(json.loads(text)) == settings

    def test_an_unknown_setting_is_refused(self) -> None:
        """A misspelt setting must not be ignored."""
        data = self.spec.profile("tiny").model_dump(mode="json")
        with pytest.raises(ValidationError):
            self.spec.settings.model_validate({**data, "no_such_setting": 1})
        with pytest.raises(ValidationError):
            self.spec.settings.model_validate({**data, "train": {"no_such_setting": 1}})

    def test_its_quality_is_valid(self) -> None:
        """The quality has a name, a direction and an exponent of at least 1."""
        quality = self.spec.quality
        assert quality.name
        assert quality.better in ("higher", "lower")
        assert type(quality.exponent) is int and quality.exponent >= 1

    def test_its_targets_are_positive(self) -> None:
        """The quality factor divides by the target, so it must be positive in every profile."""
        code = self.spec.load_code()
        for name in self.spec.profiles:
            try:
                target = code.target(self.spec.profile(name))
            except UsageError as error:  # the target depends on the user's data
                pytest.skip(f"{name}: {error.message}")
            assert target > 0 and math.isfinite(target), f"{name}: {target}"
