"""Names and titles of the rule sets, for use without importing the rules, which is slow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SetName:
    """Title and version of a rule set. The version changes when a rule changes."""

    version: int
    title: str


NAMES: dict[str, SetName] = {
    "practice": SetName(16, "what any honest run must meet, at any size"),
    "hpcai500-v2": SetName(12, "HPC AI500 V2.0: one model, trained to its target"),
    "hpcai500-v3": SetName(12, "HPC AI500 V3.0: ensembles"),
    "aiperf": SetName(11, "AIPerf: a search for architectures"),
}
