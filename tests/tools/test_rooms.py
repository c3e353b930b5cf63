"""The guard of the rooms finds what it is for, and the document shows the source as it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools import rooms
from tools.import_graph import ImportGraph


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    return ImportGraph()


def test_no_import_points_upwards_and_no_unit_is_in_a_circle(graph: ImportGraph) -> None:
    assert rooms.complaints(graph) == []


def test_the_document_shows_the_rooms_as_they_are(graph: ImportGraph) -> None:
    text = rooms.DOCUMENT.read_text(encoding="utf-8")
    assert rooms.drawn(text, graph) == text, "run: python -m tools.rooms --write"
    picture = rooms.PICTURE.read_text(encoding="utf-8")
    assert rooms.picture(graph) == picture, "run: python -m tools.rooms --write"


def test_files_that_the_document_walks_through_exist() -> None:
    text = rooms.DOCUMENT.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.py)?)`", text)
    assert len(paths) > 30
    folders = (ROOT, ROOT / "src" / "vflops")
    assert [path for path in paths if not any((folder / path).exists() for folder in folders)] == []


def made(folder: Path, files: dict[str, str]) -> ImportGraph:
    """A package of these modules, each entry of the order with at least an ``__init__.py``."""
    names = {f"{entry.replace('.', '/')}/__init__.py": "" for entry in rooms.ORDER}
    for name, text in {"__init__.py": "", **names, **files}.items():
        path = folder / "src" / "vflops" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ImportGraph(folder / "src")


@pytest.mark.parametrize(
    "text",
    [
        "from vflops.results import figures\n",
        "import vflops.results.figures\n",
        "def call() -> None:\n    from vflops.results.figures import one\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import vflops.results.figures\n",
        "try:\n    pass\nexcept ValueError:\n    from vflops.results import figures\n",
        "from ..results import figures  # vflops\n",
        "from .. import results  # vflops\n",
        "for _ in ():\n    import vflops.results.figures\n",
        "NAME = 'vflops.results.figures:one'\n",
        "class Some:\n    def method(self) -> None:\n        from vflops.results import figures\n",
    ],
)
def test_an_import_upwards_is_named_with_its_line_and_room(tmp_path: Path, text: str) -> None:
    graph = made(tmp_path, {"record/folder.py": text, "results/figures.py": "one = 1\n"})
    (complaint,) = rooms.complaints(graph)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "vflops" in line)
    assert complaint.startswith(f"src/vflops/record/folder.py:{line}: ")
    assert "the import belongs in `results` or above it" in complaint


def test_a_circle_between_packages_of_one_room_is_named(tmp_path: Path) -> None:
    files = {
        "record/log/__init__.py": "",
        "record/log/events.py": "from vflops.record.files import lock\n",
        "record/files/__init__.py": "",
        "record/files/lock.py": "def call():\n    from vflops.record.log import events\n",
    }
    (complaint,) = rooms.complaints(made(tmp_path, files))
    assert complaint.startswith("record.files, record.log import each other in a circle:")
    assert "src/vflops/record/files/lock.py:2: " in complaint


def test_a_package_may_stand_lower_than_its_room(tmp_path: Path) -> None:
    files = {
        "train/engine.py": "from vflops.workloads.contract import spec\n",
        "workloads/contract/spec.py": "",
    }
    assert rooms.complaints(made(tmp_path, files)) == []
    files["train/engine.py"] = "from vflops.workloads import automl\n"
    files["workloads/automl.py"] = ""
    assert len(rooms.complaints(made(tmp_path, files))) == 1


@pytest.mark.parametrize(
    ("module", "text", "faults"),
    [
        ("results/score.py", "import torch\n", 1),
        ("results/score.py", "def call():\n    import torch\n", 1),
        ("results/score.py", "from vflops.counting import capture\n", 1),
        ("run/pipeline.py", "def call():\n    import torch\n", 0),
        ("run/pipeline.py", "from vflops.counting import capture\n", 1),
        ("train/engine.py", "import torch\n", 0),
        ("record/log.py", "import torchvision\n", 1),
        ("run/pipeline.py", "for _ in ():\n    import torch\n", 1),
        ("run/pipeline.py", "if not TYPE_CHECKING:\n    import torch\n", 1),
        ("run/pipeline.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import torch\n", 1),
        ("run/pipeline.py", "if TYPE_CHECKING:\n    import torch\n", 0),
    ],
)
def test_torch_is_found_through_other_modules(
    tmp_path: Path, module: str, text: str, faults: int
) -> None:
    graph = made(tmp_path, {"counting/capture.py": "from torch import nn\n", module: text})
    assert len(rooms.complaints(graph)) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("from vflops import cli\n", 1),
        ("from vflops import api\n", 1),
        ("def call():\n    from vflops import cli\n", 1),
        ("def call():\n    from vflops import api\n", 0),
        ("if TYPE_CHECKING:\n    from vflops.api import Run\n", 0),
    ],
)
def test_the_package_itself_imports_its_interface_on_first_use_and_nothing_else(
    tmp_path: Path, text: str, faults: int
) -> None:
    complaints = rooms.complaints(made(tmp_path, {"__init__.py": text}))
    assert len(complaints) == faults
    assert all("vflops/__init__.py may import `api` inside functions" in c for c in complaints)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("import vflops\nVERSION = vflops.__version__\n", 0),
        ("from vflops import __version__, errors\n", 0),
        ("import vflops\nRUN = vflops.Run\n", 1),
        ("from vflops import count\n", 1),
    ],
)
def test_no_room_uses_the_interface_through_the_package(
    tmp_path: Path, text: str, faults: int
) -> None:
    files = {
        "__init__.py": "def __getattr__(name):\n    from vflops import api\n",
        "api/__init__.py": "def count():\n    import torch\n",
        "record/folder.py": text,
    }
    complaints = rooms.complaints(made(tmp_path, files))
    assert len(complaints) == faults
    assert all("is for users of the package" in complaint for complaint in complaints)


def test_what_is_started_by_name_exists(graph: ImportGraph) -> None:
    assert {(edge.importer, edge.imported) for edge in graph.named} >= rooms.STARTED_BY_NAME


def test_a_new_room_must_be_added_to_the_order(tmp_path: Path) -> None:
    (complaint,) = rooms.complaints(made(tmp_path, {"utils/__init__.py": ""}))
    assert complaint.startswith("src/vflops/utils is in no room")


def test_every_module_of_the_order_exists(graph: ImportGraph) -> None:
    for entry in rooms.ORDER:
        assert f"vflops.{entry}" in graph.modules
        assert ast.get_docstring(ast.parse(graph.modules[f"vflops.{entry}"].read_text())), entry
