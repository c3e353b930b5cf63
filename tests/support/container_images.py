"""The container image of this checkout, built as ``make image`` does, in a storage of its own."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.support.paths import ROOT
from tools.build_image import TAG, BuildError, ImageBuild, missing_programs

_PREFIX = "vflops-image-"
_SPACE_BYTES, _CUDA_SPACE_BYTES = 4 * 10**9, 25 * 10**9
"""For an image with the kind of torch that is installed here, for CPUs or for CUDA."""
_UNREACHABLE = (
    "Temporary failure",
    "Could not resolve",
    "Could not connect",
    "Connection timed out",
    "Failed to establish",
    "Name or service",
    "Network is unreachable",
)


@contextmanager
def built() -> Iterator[tuple[Path, str]]:
    """Build the image; yield the folder of its files, as Charliecloud runs it, and its metadata."""
    missing = missing_programs() + (["charliecloud"] if shutil.which("ch-run") is None else [])
    if os.geteuid() != 0:
        pytest.skip("mounting an image needs root")
    if missing:
        reason = f"apt-get install {' '.join(missing)}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    separate = ["unshare", "--user", "--mount", "true"]
    if subprocess.run(separate, check=False, capture_output=True).returncode:
        pytest.skip("this machine forbids user namespaces, which containers need")
    space_bytes = _SPACE_BYTES if torch.version.cuda is None else _CUDA_SPACE_BYTES
    if shutil.disk_usage("/tmp").free < space_bytes:
        pytest.skip(f"an image needs {space_bytes / 1e9:.0f} GB in /tmp")
    for stale in Path("/tmp").glob(f"{_PREFIX}*"):
        if not Path("/proc", stale.name.removeprefix(_PREFIX).split("-")[0]).exists():
            _remove(stale)
    # Not in pytest's folder: Podman refuses long paths.
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir="/tmp"))
    build = ImageBuild(folder / "work", folder)
    try:
        build.run()
        container = build.podman("create", TAG).strip()
        yield Path(build.podman("mount", container).strip()), build.podman("inspect", TAG)
    except BuildError as error:
        if any(words in str(error) for words in _UNREACHABLE):
            pytest.skip(f"no package registry can be reached from here: {error}")
        raise
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the folder of an image, and what Podman mounted in it."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for path in reversed([path for path in mounted if path.startswith(f"{folder}/")]):
        subprocess.run(["umount", path], check=True)
    shutil.rmtree(folder, ignore_errors=True)


def traces_of_this_machine(image: Path, metadata: str) -> list[str]:
    """Return where the image or its metadata name something of this machine.

    The host's name may be an ordinary word, so it is looked for only where machines are named.
    """
    settings = [*(image / name for name in ("etc", "root", "home"))]
    packages = (image / "usr/local/lib").glob("python3*/*-packages/*.dist-info")
    everywhere = [*settings, image / "opt", image / "var/lib", *packages]
    found = [
        *_found(image, everywhere, {*_places()}, rb"%s"),
        *_found(image, settings, {*_machines()}, rb"(?<![\w.-])%s(?![\w-])"),
    ]
    found += [f"metadata: {name}" for name in sorted({*_places()}) if name in metadata]
    own = [path for path in ("etc/hostname", "etc/resolv.conf") if _content(image / path)]
    return [*found, *(f"{path} is not empty" for path in own)]


def _found(image: Path, folders: list[Path], names: set[str], pattern: bytes) -> list[str]:
    """Return the files that contain one of the names."""
    patterns = {name: re.compile(pattern % re.escape(name.encode())) for name in sorted(names)}
    return [
        f"{path.relative_to(image)}: {name}"
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
        for name, wanted in patterns.items()
        if wanted.search(path.read_bytes())
    ]


def _machines() -> Iterator[str]:
    """Yield the names of the host and of its name servers."""
    yield socket.gethostname()
    for line in _content(Path("/etc/resolv.conf")).splitlines():
        if line.startswith("nameserver"):
            yield line.split()[1]


def _places() -> Iterator[str]:
    """Yield this checkout, and where the host's package managers look."""
    yield str(ROOT)
    for name, value in os.environ.items():
        if name.upper().startswith(("PIP_", "UV_")) or name.upper().endswith("_PROXY"):
            yield from (word for word in value.split() if "/" in word)
    for path in (
        "/etc/pip.conf",
        Path.home() / ".config/pip/pip.conf",
        Path.home() / ".pip/pip.conf",
    ):
        for line in _content(Path(path)).splitlines():
            yield from (word for word in line.partition("=")[2].split() if "/" in word)


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
