"""The rule sets by name, for who only lists them: their judges take a while to load."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SetName:
    """What a rule set is called; the version changes with any of its rules."""

    version: int
    title: str


NAMES: dict[str, SetName] = {
    "practice": SetName(10, "what any honest run must meet, at any size"),
    "hpcai500-v2": SetName(5, "HPC AI500 V2.0: one model, trained to its target"),
    "hpcai500-v3": SetName(5, "HPC AI500 V3.0: ensembles"),
    "aiperf": SetName(4, "AIPerf: a search for architectures"),
}
