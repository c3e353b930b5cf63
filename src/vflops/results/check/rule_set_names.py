"""Names and titles of the rule sets, without loading the rules, which takes time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SetName:
    """Title and version of a rule set; the version changes with any of its rules."""

    version: int
    title: str


NAMES: dict[str, SetName] = {
    "practice": SetName(10, "what any honest run must meet, at any size"),
    "hpcai500-v2": SetName(5, "HPC AI500 V2.0: one model, trained to its target"),
    "hpcai500-v3": SetName(5, "HPC AI500 V3.0: ensembles"),
    "aiperf": SetName(4, "AIPerf: a search for architectures"),
}
