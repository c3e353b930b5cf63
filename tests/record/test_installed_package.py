"""The hash of the package is that of its files, wherever they are, and of nothing else."""

from __future__ import annotations

import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import vflops
from tests.support.paths import ROOT
from tools import note_release
from vflops.record import installed_package as module
from vflops.record.folder import RunFolder
from vflops.record.installed_package import (
    PackageRecord,
    installed_package,
    origin_fault,
    tree_hash,
)

FILES = {"__init__.py": "VERSION = 1\n", "data/table.json": "{}\n", "code/a.py": "A = 1\n"}


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_the_hash_does_not_depend_on_place_order_times_or_bytecode(tmp_path: Path) -> None:
    first = written(tmp_path / "a", FILES)
    second = written(tmp_path / "elsewhere" / "b", dict(reversed(FILES.items())))
    written(second, {"__pycache__/a.pyc": "bytecode", "code/__pycache__/b.pyc": "bytecode"})
    assert tree_hash(first) == tree_hash(second) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"code/a.py": "A = 2\n"},
        {"code/b.py": ""},
        {"code/a.pyc": "bytecode that Python would load"},
        {"data/table.json": "{} \n"},
    ],
)
def test_every_change_of_a_file_changes_the_hash(tmp_path: Path, change: dict[str, str]) -> None:
    root = written(tmp_path / "a", FILES)
    before = tree_hash(root)
    assert tree_hash(written(root, change)) not in (before, None)


def test_a_renamed_file_changes_the_hash(tmp_path: Path) -> None:
    root = written(tmp_path / "a", FILES)
    before = tree_hash(root)
    (root / "code" / "a.py").rename(root / "code" / "b.py")
    assert tree_hash(root) not in (before, None)


def test_a_copy_of_the_package_has_its_hash(tmp_path: Path) -> None:
    copy = tmp_path / "site-packages" / "vflops"
    shutil.copytree(ROOT / "src" / "vflops", copy)
    releases = copy / "record" / "releases.json"
    releases.write_text('{"0.0.1": "0"}')  # the list contains the hash, so it is not part of it
    assert tree_hash(copy, without=releases) == installed_package().sha256
    (copy / "train" / "loop.py").write_text("")
    assert tree_hash(copy, without=releases) != installed_package().sha256


def test_a_package_that_is_not_a_folder_has_no_hash(tmp_path: Path) -> None:
    assert tree_hash(tmp_path / "vflops.zip" / "vflops") is None


def test_compiled_modules_are_named(tmp_path: Path) -> None:
    assert installed_package().compiled == ()
    name = f"fast{EXTENSION_SUFFIXES[0]}"
    assert module._compiled(written(tmp_path, {f"code/{name}": ""})) == (f"code/{name}",)


def test_extensions_are_named_with_their_own_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {
        "METADATA": "Metadata-Version: 2.1\nName: own-workloads\nVersion: 3.1\n",
        "entry_points.txt": "[vflops.workloads]\nx = own_workloads_of_a_test.x:SPEC\n",
    }
    written(tmp_path / "own_workloads-3.1.dist-info", metadata)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "own-workloads 3.1: own_workloads_of_a_test"
    assert dict(module._extensions())[name] is None  # its code cannot be found
    root = written(tmp_path / "own_workloads_of_a_test", FILES)
    assert dict(module._extensions())[name] == tree_hash(root)
    assert "own_workloads_of_a_test" not in sys.modules


def test_only_a_release_or_the_installed_package_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = PackageRecord(version="9.0.0", sha256="a" * 64)
    monkeypatch.setattr(module, "release_hashes", lambda: {"9.0.0": "a" * 64})
    assert origin_fault(installed_package()) is None
    assert origin_fault(released) is None
    other = released.model_copy(update={"version": "9.0.1"})
    assert origin_fault(other) == "aaaaaaaaaaaa, not a known release"
    changed = released.model_copy(update={"sha256": "b" * 64})
    assert origin_fault(changed) == "bbbbbbbbbbbb, not a known release"
    assert origin_fault(None) == "not recorded"
    assert origin_fault(released.model_copy(update={"sha256": None})) == "not recorded"


def test_a_release_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "releases.json"
    path.write_text('{"0.0.1": "1"}')
    monkeypatch.setattr(note_release, "RELEASES", path)
    monkeypatch.setattr(module, "RELEASES", path)
    assert note_release.note_release() == note_release.note_release() == installed_package().sha256
    module.release_hashes.cache_clear()
    known = module.release_hashes()
    module.release_hashes.cache_clear()
    assert known == {"0.0.1": "1", vflops.__version__: installed_package().sha256}
    path.write_text(f'{{"{vflops.__version__}": "2"}}')
    with pytest.raises(SystemExit, match="a release is never changed, raise the version"):
        note_release.note_release()


def test_the_shipped_list_has_hashes_of_versions() -> None:
    module.release_hashes.cache_clear()
    assert all(len(sha256) == 64 for sha256 in module.release_hashes().values())


def test_a_run_records_the_package(run_folder: RunFolder) -> None:
    assert RunFolder.open(run_folder.path).record.package == installed_package()
