"""Whether a framework is installed, new enough, and sees the device (no framework is imported)."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib import metadata

from vflops.config.frameworks import FRAMEWORKS, Framework
from vflops.errors import UsageError
from vflops.python_start import SAFE_PATH

_PROBE_S = 120
_PROBES = {
    "jax": "import jax; print(sum(d.platform != 'cpu' for d in jax.devices()))",
}
"""Programs that print the number of accelerators that a framework sees."""


def require_framework(name: str) -> None:
    """Raise ``UsageError`` if a framework is not installed or too old."""
    if name == "pytorch":
        return
    framework = FRAMEWORKS[name]
    install = f"pip install 'vflops[{name}]', or use --framework pytorch"
    if importlib.util.find_spec(framework.package) is None:
        raise UsageError(f"{framework.title} is not installed", hint=install)
    version = installed_version(framework)
    if version is not None and _numbers(version) < framework.minimum:
        raise UsageError(
            f"{framework.title} {version} is too old: vflops needs {framework.oldest} or newer",
            hint=install,
        )


def require_offered(name: str, device: str, ranks: int = 1) -> None:
    """Raise ``UsageError`` if a framework is not offered on a device, such as ``cuda:1``.

    An accelerator other than the first, and several ranks of one model on accelerators, are
    refused: each process would compute on the first one.
    """
    if name == "pytorch" or device == "cpu":
        return
    framework = FRAMEWORKS[name]
    kind, _, index = device.partition(":")
    if kind not in framework.accelerators:
        offered = " and ".join(("CPUs", *framework.accelerators))
        raise UsageError(
            f"{framework.title} is offered on {offered}, not on {device}: it was never tested "
            "there",
            hint="use --framework pytorch or --set train.device=cpu",
        )
    if index not in ("", "0"):
        raise UsageError(
            f"{framework.title} is offered on the first accelerator, not on {device}",
            hint="use --framework pytorch, or let the job see one accelerator "
            "(CUDA_VISIBLE_DEVICES)",
        )
    if ranks > 1:
        raise UsageError(
            f"{framework.title} is offered on an accelerator with one rank, not with {ranks}",
            hint="use --framework pytorch, --set train.ranks=1 or --set train.device=cpu",
        )


def require_one_node(name: str, ranks: int, local_ranks: int) -> None:
    """Raise ``UsageError`` if the ranks of a model span nodes, and the framework does not offer it.

    ``local_ranks`` is the number of ranks on a node.
    """
    if name == "pytorch" or local_ranks >= ranks or FRAMEWORKS[name].across_nodes:
        return
    raise UsageError(
        f"{FRAMEWORKS[name].title} is offered with all ranks of a model on one node, not with "
        f"{ranks} ranks and {local_ranks} per node: it was never tested",
        hint=f"use --set launch.ranks_per_node={ranks}, fewer --ranks or --framework pytorch",
    )


def require_accelerator(name: str, device: str, ranks: int = 1) -> None:
    """Raise ``UsageError`` if a framework is not offered on a device, or does not see it.

    It is asked in a process of its own, since it would keep memory of the device.
    """
    require_offered(name, device, ranks)
    if name == "pytorch" or device == "cpu":
        return
    framework = FRAMEWORKS[name]
    hint = f"install {framework.title} for this accelerator, or use --set train.device=cpu"
    try:
        probe = subprocess.run(
            [sys.executable, SAFE_PATH, "-c", _PROBES[name]],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"{framework.title} did not say within {_PROBE_S} s whether it sees {device}", hint=hint
        ) from error
    words = probe.stdout.split()
    if probe.returncode or not words or words[-1] == "0":
        lines = probe.stderr.strip().splitlines() if probe.returncode else []
        reason = f" ({lines[-1]})" if lines else ""
        raise UsageError(
            f"{framework.title} sees no accelerator{reason}, but torch computes on {device}",
            hint=hint,
        )


def installed_version(framework: Framework) -> str | None:
    """Return the version of a framework; None if its package does not say."""
    names = metadata.packages_distributions().get(framework.package, ())
    return metadata.version(names[0]) if names else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
