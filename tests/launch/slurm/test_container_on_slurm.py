"""An ensemble on a real SLURM whose jobs run in the container image of this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import container_images
from tests.support.ensemble_runs import ended, processes_of, started
from tests.support.paths import ROOT
from tests.support.slurm_bench import SlurmBench
from vflops.launch.job_script import node_command, quoted
from vflops.launch.site import SiteSettings
from vflops.machine.system.installed_files import installed_digest
from vflops.record.formats.node import NodeRecord, node_file
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score

pytestmark = pytest.mark.cluster

PACKAGES = ("usr/local/lib/python3.11/dist-packages", "usr/lib/python3/dist-packages")
"""The folders of Python packages in the image."""


def test_an_ensemble_trains_in_the_image(
    slurm: SlurmBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, because the image takes a minute of CPU time to build."""
    with container_images.built() as (image, metadata):
        has_nothing_of_the_machine_that_built_it(image, metadata, monkeypatch)
        jobs_import_nothing_of_the_node(image, tmp_path)
        trains_and_is_recorded(image, tmp_path)


def has_nothing_of_the_machine_that_built_it(
    image: Path, metadata: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put there for this test is found."""
    assert container_images.traces_of_this_machine(image, metadata) == []
    index = "https://index.example/simple"
    monkeypatch.setenv("PIP_INDEX_URL", index)
    resolver, settings = image / "etc" / "resolv.conf", image / "opt" / "pip.conf"
    resolver.write_text("nameserver 192.0.2.1\n")
    settings.write_text(f"index-url = {index}\n")
    traces = container_images.traces_of_this_machine(image, f'"Env": ["PIP_INDEX_URL={index}"]')
    resolver.write_text("")
    settings.unlink()
    monkeypatch.delenv("PIP_INDEX_URL")
    assert traces == [
        f"opt/pip.conf: {index}",
        f"metadata: {index}",
        "etc/resolv.conf is not empty",
    ]


def jobs_import_nothing_of_the_node(image: Path, tmp_path: Path) -> None:
    """Although PYTHONPATH and PATH of the tests name this checkout and its environment."""
    site = SiteSettings.model_validate(
        {"container": {"image": str(image), "runtime": "charliecloud"}}
    )
    code = (
        "import importlib.util as u, sys; "
        "print(*(u.find_spec(name).origin for name in ('vflops', 'torch')), sys.executable)"
    )
    command = node_command(site, tmp_path, "1", gpus=False, program=("-P", "-c", quoted(code)))
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}/src", "PATH": f"{ROOT}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", command], env=variables, capture_output=True, text=True, check=True
    )
    packages = f"/{PACKAGES[0]}"
    assert done.stdout.split() == [
        f"{packages}/vflops/__init__.py",
        f"{packages}/torch/__init__.py",
        "/usr/bin/python3",
    ]


def trains_and_is_recorded(image: Path, tmp_path: Path) -> None:
    """The record says which image, by a digest of what is installed in it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "site.toml").write_text(
        f'[container]\nimage = "{image}"\nruntime = "charliecloud"\n'
        f'mounts = ["{tmp_path}/elsewhere"]\n'
    )
    folder = ended(started(tmp_path, "--on", "slurm", "--models", "2"), tmp_path)
    (scored,) = score(Contents(folder)).ensembles
    assert scored.jobs == (1, 2) and scored.vflops is not None
    nodes = [NodeRecord.read(node_file(folder.logged_attempts(job)[-1], 0)) for job in (1, 2)]
    assert {node.name for node in nodes} == {"n1", "n2"}
    facts = {fact.name: fact.value for fact in nodes[0].facts}
    assert facts["container"] == "charliecloud"
    (used,) = {node.image for node in nodes}
    assert used is not None and used.sha256 is not None
    assert used.sha256 == installed_digest(image, [str(image / path) for path in PACKAGES])
    assert (used.image, used.runtime) == (str(image), "charliecloud")
    findings = Findings.read(folder.findings_file)
    assert {failure.rule for failure in findings.failures} <= {"quiet"}
    (finding,) = (finding for finding in findings.findings if finding.rule == "image")
    assert f"{image} (charliecloud, contents sha256 {used.sha256[:12]})" in finding.evidence
    assert used.sha256[:12] in folder.report_file.read_text()
    assert processes_of(tmp_path) == []
