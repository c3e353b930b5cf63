"""``python -m build`` makes a wheel that has every file and runs outside of the checkout."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

import vflops
from tests.support.golden_runs import GOLDEN, extracted, name_of
from tests.support.installed_wheel import Environment, build, installed
from tests.support.paths import ROOT
from vflops.record.installed_package import installed_package


def test_the_wheel_is_complete_and_runs_with_its_declared_dependencies(tmp_path: Path) -> None:
    """One test, so that parallel workers do not build the wheel several times."""
    archive, wheel = build(tmp_path / "dist")
    files_are_complete(archive, wheel)
    environment = installed(wheel, tmp_path)
    runs_outside_of_the_checkout(environment)
    counts_a_model_and_writes_a_page(environment)
    scores_and_checks_a_stored_run(environment)


def files_are_complete(archive: Path, wheel: Path) -> None:
    name = f"vflops-{vflops.__version__}"
    assert (archive.name, wheel.name) == (f"{name}.tar.gz", f"{name}-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        files = set(packed.namelist())
    assert {file for file in files if file.startswith("vflops/")} == sources()
    assert "vflops/publish/pages/templates/report.html" in files
    assert f"{name}.dist-info/licenses/LICENSE" in files
    with tarfile.open(archive) as source:
        assert {f"{name}/src/{file}" for file in sources()} < set(source.getnames())


def sources() -> set[str]:
    files = (path for path in (ROOT / "src" / "vflops").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in files
        if "__pycache__" not in path.parts
    }


def runs_outside_of_the_checkout(environment: Environment) -> None:
    done = environment.run("vflops", "--version")
    assert done.stdout == f"vflops {vflops.__version__}\n", done.stderr
    where = environment.run("python", "-c", "import vflops; print(vflops.__file__)")
    assert Path(where.stdout.strip()) == environment.site / "vflops" / "__init__.py"
    package = "vflops.record.installed_package"
    code = f"from {package} import installed_package; print(installed_package().sha256)"
    assert environment.run("python", "-c", code).stdout.strip() == installed_package().sha256
    done = environment.run("vflops", "list")
    assert done.returncode == 0, done.stderr
    assert "image-classification" in done.stdout


def counts_a_model_and_writes_a_page(environment: Environment) -> None:
    page = environment.work / "count.html"
    options = ("--rules", "executed", "--json", "--export", "html", "--out", page)
    done = environment.run("vflops", "count", "resnet50", *options)
    assert done.returncode == 0, done.stderr
    # 4.09 G multiply-accumulates: the published figure of ResNet-50 v1.5 at 224 × 224
    assert json.loads(done.stdout)["forward"] == pytest.approx(2 * 4.09e9, rel=0.005)
    assert "<table" in page.read_text(encoding="utf-8")


def scores_and_checks_a_stored_run(environment: Environment) -> None:
    (archive,) = (path for path in GOLDEN if name_of(path) == "repeats-on-two-ranks")
    run = extracted(archive, environment.work)
    recorded = json.loads((run / "score.json").read_text(encoding="utf-8"))["trainings"]
    done = environment.run("vflops", "score", run, "--json")
    assert done.returncode == 0, done.stderr
    computed = [training["speed"]["flops"] for training in json.loads(done.stdout)["trainings"]]
    # The stored score is older: it rounds operations per sample down.
    assert computed == pytest.approx([t["speed"]["flops"] for t in recorded], rel=4e-7)
    done = environment.run("vflops", "check", run)
    assert done.returncode == 1, done.stderr  # it was made on a busy machine
    assert "quiet" in done.stdout
