"""Build the container image of ``Containerfile`` from packages alone, as ``make image`` does.

The base is made from Debian's packages and needs no registry of images. The wheels are downloaded
on this machine, with its own settings of pip; in the build, pip has no index and installs these. So
no name of a package index, proxy or certificate of this machine is in the image, nor anything else
of it.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TAG = "localhost/vflops"
_SUITE, _PYTHON = "bookworm", "311"
"""The Debian release of the base, and the version of its Python."""
_PACKAGES = "base-files,bash,coreutils,dash,libstdc++6,python3,python3-pip"
_PROGRAMS = {"mmdebstrap": "mmdebstrap", "podman": "podman", "crun": "crun"}
_UNUSED = ("doc", "locale", "man")
"""The folders of /usr/share that are removed."""
_ROOT_USER = (
    r"""printf 'root:x:0:0:root:/root:/bin/bash\n' > "$1/etc/passwd" """
    r"""&& printf 'root:x:0:\n' > "$1/etc/group" """
    """&& chmod 644 "$1/etc/passwd" "$1/etc/group" """
)
_WITHOUT_HOST = 'rm -f "$1/etc/hostname" "$1/etc/resolv.conf"'
"""mmdebstrap copies both from this machine for the time of the installation."""
_LONGEST_S = 1800
"""How long one step may take; the wheels of a torch for CUDA are gigabytes."""
_MANYLINUX = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")


class BuildError(Exception):
    """A step failed; the message has its command and the end of its output."""


def missing_programs() -> list[str]:
    """Return the Debian packages of the programs that a build needs and this machine lacks."""
    return [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]


class ImageBuild:
    """A build of the image in Podman's storage, or in ``storage`` if given."""

    def __init__(self, work: Path, storage: Path | None = None) -> None:
        self._work = work
        self._podman = ["podman"]
        if storage is not None:
            folders = ("--root", storage / "images", "--runroot", storage / "state")
            self._podman += map(str, folders)
        work.mkdir(parents=True, exist_ok=True)

    def run(self) -> str:
        """Build the image and return its id."""
        print(f"1/3 base from Debian's packages ({_SUITE}) …", file=sys.stderr, flush=True)
        base = self._base()
        print("2/3 wheels …", file=sys.stderr, flush=True)
        wheels = self._wheels()
        print("3/3 image …", file=sys.stderr, flush=True)
        arguments = {"BASE": base, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/mnt"}
        output = self.podman(
            *("build", "--quiet", "--isolation=chroot", "--layers=false", "--tag", TAG),
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            f"--volume={wheels}:/mnt:ro",
            str(ROOT),
        )
        return output.split()[-1]

    def podman(self, *arguments: str) -> str:
        """Run a command of Podman on the storage of this build and return its output."""
        return _run([*self._podman, *arguments])

    def _base(self) -> str:
        """Return the name of the base image: a Debian with Python, made unless it is there."""
        made_of = hashlib.sha256(f"{_PACKAGES} {_UNUSED}".encode()).hexdigest()[:8]
        name = f"{TAG}-base:{_SUITE}-{made_of}"
        if name in self.podman("images", "--format", "{{.Repository}}:{{.Tag}}").split():
            return name
        archive = self._work / "base.tar"
        options = ["--variant=extract", f"--include={_PACKAGES}", "--quiet"]
        options += ["--aptopt=Acquire::Languages none"]
        # Without their scripts: those of the packages would create users, caches and certificates.
        # Hooks remove what is unused: to filter every package takes three times as long.
        unused = " ".join(f'"$1/usr/share/{name}"/*' for name in _UNUSED)
        hooks = (_ROOT_USER, _WITHOUT_HOST, f"rm -rf {unused}")
        options += [f"--extract-hook={hook}" for hook in hooks]
        _run(["mmdebstrap", *options, _SUITE, str(archive)])
        self.podman("import", "--quiet", str(archive), name)
        archive.unlink()
        return name

    def _wheels(self) -> Path:
        """Return a folder with the wheels of vflops' dependencies for the Python of the base."""
        wheels = self._work / "wheels"
        machine = platform.machine()
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        pip += ["--only-binary=:all:", "--implementation=cp", f"--python-version={_PYTHON}"]
        pip += [f"--abi={abi}" for abi in (f"cp{_PYTHON}", "abi3", "none")]
        pip += [f"--platform={name}_{machine}" for name in _MANYLINUX]
        pip += [f"--constraint={ROOT / 'constraints.txt'}", f"--dest={wheels}"]
        _run([*pip, *_requirements(), "hatchling"])
        return wheels


def _requirements() -> list[str]:
    """Return what vflops needs; pip would build a wheel of this checkout to learn it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"]]


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{' '.join(command[:3])} … took more than {_LONGEST_S} s") from error
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command[:3])} …: {done.stderr[-2000:] or done.stdout[-2000:]}")
    return done.stdout


def main() -> int:
    """Build the image and print its name and id."""
    parser = argparse.ArgumentParser(description="Build the container image from packages alone.")
    parser.add_argument("--work", type=Path, default=ROOT / "image", help="folder for downloads")
    parser.add_argument("--storage", type=Path, help="storage of images; by default Podman's own")
    arguments = parser.parse_args()
    if missing := missing_programs():
        print(f"missing: apt-get install {' '.join(missing)}", file=sys.stderr)
        return 2
    try:
        id = ImageBuild(arguments.work, arguments.storage).run()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{TAG} {id}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
