"""The table of back ends, and that nothing else knows their names."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sample_parts import Vflops
from vflops.config.profiles import for_single_workload
from vflops.errors import UsageError
from vflops.launch.factory import GROUP, launcher_class, launcher_names
from vflops.launch.node_check.findings import Preflight
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobBegun
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.advice import advice
from vflops.studies.audit.stacks import stack_differences
from vflops.workloads.contract.run_settings import load, profile

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


def test_a_launcher_of_another_package_runs_jobs(tmp_path: Path, vflops_alone: Vflops) -> None:
    example = ROOT / "examples" / "vflops-one-by-one"
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    ((name, target),) = project["entry-points"][GROUP].items()
    metadata = tmp_path / "site" / "vflops_one_by_one-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {target}\n")
    path = f"{tmp_path / 'site'}:{example / 'src'}:{os.environ['PYTHONPATH']}"
    listed = " ".join(vflops_alone("list", PYTHONPATH=path, COLUMNS="200").stdout.split())
    assert "one-by-one One agent at a time" in listed and "(from vflops-one-by-one)" in listed
    small = ["synthetic.train=64", "synthetic.validation=16", "train.batch=16", "train.epochs=1"]
    small += ["train.warmup_epochs=0", "micro.benchmarks=[]", "train.device=cpu"]
    words = [word for item in small for word in ("--set", item)]
    done = vflops_alone(
        *("run", "image-classification", "--profile", "tiny", "--models", 2, "--on", name, *words),
        PYTHONPATH=path,
    )
    assert done.returncode in (0, 1), done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    history = RunFolder.open(run).history(0)
    assert [e.payload(JobBegun).launcher for e in history.events("job-begun")] == [name, name]
    kinds = [e.kind for e in history.logs[0].events if e.kind in ("job-begun", "job-ended")]
    assert kinds == ["job-begun", "job-ended"] * 2, "one after the other"
    assert_on_this_machine(RunFolder.open(run))
    refused = vflops_alone("preflight", "--on", name, PYTHONPATH=path)
    assert refused.returncode == 2 and f"through {name}" in refused.stderr


def assert_on_this_machine(folder: RunFolder) -> None:
    """Whoever reads the run knows it, also without the package of its launcher."""
    with pytest.raises(UsageError, match="unknown launcher 'one-by-one'"):
        launcher_class(folder.record.settings.launch.on)
    assert folder.record.this_machine is True
    assert "--wait-quiet" in advice("quiet", folder.record)
    assert stack_differences(Contents(folder), SystemRecord.read(folder.system_file)) == []


@pytest.mark.parametrize(("here", "links"), [(True, 0), (False, 1), (None, 1)])
def test_links_are_measured_only_if_jobs_run_on_nodes(here: bool | None, links: int) -> None:
    chosen = load(profile("tiny", ["image-classification"]), None, ["launch.on=one-by-one"])
    found = for_single_workload(chosen, here=here)
    assert found.micro.benchmarks.count("all-reduce") == links


def test_a_preflight_is_recorded_with_the_name_of_any_launcher(tmp_path: Path) -> None:
    path = tmp_path / "preflight.json"
    Preflight(utc="2026-01-01", on="one-by-one", nodes=("a",), findings=()).write(path)
    assert Preflight.read(path).on == "one-by-one"


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
