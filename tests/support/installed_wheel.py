"""An environment with the wheel of this checkout and its declared dependencies, and nothing else.

The dependencies, torch among them, take a gigabyte: they are linked from the environment of the
tests instead of being downloaded. Only what the metadata of the wheel and of its dependencies
declares is linked, so that a dependency that is not declared is missed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.paths import ROOT


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder in which its programs run."""

    folder: Path
    work: Path

    @property
    def site(self) -> Path:
        """The folder of installed packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, without the paths of this checkout."""
        unset = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        variables = {name: value for name, value in os.environ.items() if name not in unset}
        return subprocess.run(
            [str(self.folder / "bin" / program), *map(str, arguments)],
            cwd=self.work,
            env={**variables, "PYTHONNOUSERSITE": "1", "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def build(folder: Path) -> tuple[Path, Path]:
    """Build the source archive, and the wheel from it; return the paths of both."""
    _run("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def installed(wheel: Path, folder: Path) -> Environment:
    """Install the wheel in a new environment, with its dependencies linked."""
    environment = Environment(folder / "environment", folder / "work")
    environment.work.mkdir()
    venv.create(environment.folder, symlinks=True)
    python = str(environment.folder / "bin" / "python")
    offline = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    _run("-m", "pip", "--python", python, "install", "--quiet", *offline, str(wheel))
    (metadata,) = environment.site.glob("vflops-*.dist-info")
    for needed in _closure(Distribution.at(metadata)):
        _link(needed, environment.site)
    return environment


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _closure(top: Distribution) -> Iterator[Distribution]:
    """Yield what ``top`` needs on this machine, and what that needs in turn."""
    known, waiting = {_key(top.name)}, [(top, "")]
    while waiting:
        parent, extra = waiting.pop()
        for text in parent.requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = distribution(requirement.name)
            if _key(needed.name) not in known:
                known.add(_key(needed.name))
                yield needed
                waiting.append((needed, ""))
            waiting += [(needed, extra) for extra in requirement.extras]


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _link(needed: Distribution, site: Path) -> None:
    """Link every package and module of a distribution, and its metadata."""
    for name in {file.parts[0] for file in needed.files or ()}:
        target, link = Path(str(needed.locate_file(name))), site / name
        if name not in ("..", "__pycache__") and not name.endswith(".pth") and not link.exists():
            link.symlink_to(target.resolve())
